"""The data ledger, master side: which records of which dataset are trained, and in whose hands the others are.

`visits` knows the states, `dataset` answers requests, `tables` makes both durable, `ledger` is what the job owns.
"""

from deeprec_ext.aimaster.ledger.ledger import Ledger

__all__ = ["Ledger"]
