"""The AIMaster's web page: what the job does, live; with the job's token, also scaling it.

`routes` gives what `deeprec_ext.aimaster.dashboard.http` mounts. Everything here only reads the job; the one exception is
`control`, which asks `ScalingQueue` for exactly what Admin.Scale asks for.
"""

from deeprec_ext.aimaster.dashboard.app import routes

__all__ = ["routes"]
