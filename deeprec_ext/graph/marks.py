"""Names that the data ledger writes into graphs. No TensorFlow."""

RECORD = "deeprec_record"
"""The feature that carries the records' ids, with `with_ids=True`."""

RECORDS = "deeprec_ext_records"
"""Graph collection of the tensors of that feature, as the iterators give them."""
