"""The job's master: who is registered, which view is valid, how the cluster changes. Never imports tensorflow.

Rooms, in their order: docs/architecture.md. Start reading at `job/job.py` (the parts and how they are wired),
`scaling/machine.py` (the states of a scaling) and `scaling/changes.py` / `scaling/workers.py` (what happens in them).
"""
