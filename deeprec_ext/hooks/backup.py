"""`BackupHook`: what a script wants to have backed up, and how often."""

from __future__ import annotations

import logging
import os
from typing import Any

import tensorflow as tf

from deeprec_ext import autoload
from deeprec_ext.elastic.trainer import process
from deeprec_ext.errors import UsageError
from deeprec_ext.proto import deeprec_ext_pb2 as pb

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")


class BackupHook(v1.train.SessionRunHook):
    """Tells the AIMaster, once. No training step does anything for a backup: the PS pull from each other and write.

    Without this hook peer backups are on and disk backups off. What is given on the command line
    (`--backup`, `--setting peer_backup=...`) wins over the hook.

    Args:
      peer: keep a backup of every slot in another PS's memory; None: the default.
      peer_seconds: refresh it so often; the most that is forgotten when a PS dies. None: 5 s.
      peer_steps: refresh it every so many global steps instead.
      disk: directory (anything tf.io.gfile writes) of incremental disk backups; None: none.
      disk_seconds: a cut so often; None: 60 s.

    Raises UsageError for times or steps that are not positive.
    """

    def __init__(
        self, peer: bool | None = None, peer_seconds: float | None = None, peer_steps: int | None = None,
        disk: str | None = None, disk_seconds: float | None = None,
    ) -> None:  # fmt: skip
        given = {"peer_seconds": peer_seconds, "peer_steps": peer_steps, "disk_seconds": disk_seconds}
        for name, value in given.items():
            if value is not None and value <= 0:
                raise UsageError(f"BackupHook({name}={value}): give a positive number, or leave it out")
        autoload.install()
        self._trainer = process.trainer()
        self._wish = pb.BackupWish(
            peer_seconds=peer_seconds or 0.0, peer_steps=peer_steps or 0, disk_seconds=disk_seconds or 0.0
        )
        if peer is not None:
            self._wish.peer = peer
        if disk is not None:
            self._wish.disk_path = disk if "://" in disk or not disk else os.path.abspath(disk)  # the PS are elsewhere

    def begin(self) -> None:
        if self._trainer is None:
            log.info("no AIMaster: BackupHook does nothing, this is stock training")

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self._trainer is not None and self._trainer.chief:
            self._trainer.agent.send(pb.AgentMessage(backup_wish=self._wish))
