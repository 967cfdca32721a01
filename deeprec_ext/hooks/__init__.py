"""The SessionRunHooks that users add; thin, they call the packages beside them.

Without an AIMaster each is a no-op with one log line: the same script is stock training.
"""

from deeprec_ext.hooks.backup import BackupHook
from deeprec_ext.hooks.data import DataShardHook
from deeprec_ext.hooks.elastic import ElasticTrainingHook, LiveHook, default_hooks
from deeprec_ext.hooks.gazer import GazerHook

__all__ = ["BackupHook", "DataShardHook", "ElasticTrainingHook", "GazerHook", "LiveHook", "default_hooks"]
