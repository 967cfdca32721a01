"""The autoscaler: observes a job, decides on its size, carries that out and looks what came of it.

Rooms, in their order: docs/architecture.md. Start reading at `observe/observed.py` (what the policy sees), `policy/decide.py`
(the rules) and `loop/autoscaler.py` (the loop around them). `deeprec_ext.simulator` drives the same rules in virtual time.
"""
