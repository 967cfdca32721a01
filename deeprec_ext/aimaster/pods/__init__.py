"""The contract of pod backends, the pods as the job wants them, and the first minutes of an AIMaster."""
