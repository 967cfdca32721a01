"""As Horovod calls it: `deeprec_ext.horovod` under another name."""

from deeprec_ext.horovod import *  # noqa: F403
from deeprec_ext.horovod import __getattr__ as __getattr__
