"""The job's master: who is registered, which view is valid, how the cluster changes. Never imports tensorflow.

Start reading at `job.py` (the parts and how they are wired), `machine.py` (the states of a scaling) and
`changes.py` / `workers.py` (what happens in them).
"""
