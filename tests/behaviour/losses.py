"""How much a lost PS may forget, counted exactly: strikes on PS, and a check of the final checkpoint (count.py)."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.behaviour.jobs import RealJob, refused

DELIVERY_SECONDS = 1.0
"""How long the report of a holder may take to the AIMaster, which takes its copies for younger by as much."""


class Losses:
    """Strikes PS of a job with peer backups, and knows for every slot how many steps of each trainer it may have lost."""

    def __init__(self, job: RealJob, ps: int) -> None:
        self.job, self.ps = job, ps
        self.allowed: dict[int, dict[str, int]] = {}
        self.struck = 0

    # ------------------------------------------------------------------------------------------------ waiting

    def wait_protected(self) -> pb.StatusReply:
        """Until all PS are there and have slots, nothing is being changed, and every slot has its backup."""

        def protected() -> pb.StatusReply | None:
            status = self.job.status()
            if status is None or not status.live or status.state != "training" or not status.backup.peer:
                return None
            serving = [role for role in status.roles if role.role == pb.PS and role.state == "running" and role.slots]
            whole = len(serving) == self.ps and not status.backup.unprotected_slots
            return status if whole and not any(not one.outcome for one in status.scalings) else None

        found = self.job.until(protected, f"{self.ps} PS with peer backups", every=0.1)
        assert found is not None
        return found

    def wait_event(self, kind: str, count: int, seconds: float = 60.0) -> None:
        self.job.until(lambda: len(self.job.events(kind)) >= count, f"event {kind} number {count}", seconds)

    # ----------------------------------------------------------------------------------------------- striking

    def certain(self) -> dict[str, int]:
        """Steps of every trainer that all backups have: each has been refreshed from the beginning since they were counted."""
        status = self.wait_protected()
        trainers = [role.name for role in status.roles if role.role in (pb.CHIEF, pb.WORKER)]
        before = {name: self.job.steps_of(name) for name in trainers}
        counted = time.monotonic()

        def younger() -> bool:
            since = time.monotonic() - counted - DELIVERY_SECONDS
            now = self.job.status()
            return now is not None and not now.backup.unprotected_slots and now.backup.oldest_seconds < since

        self.job.until(younger, "refreshes of all backups", every=0.02)
        return before

    def strike(
        self, *names: str, number: signal.Signals = signal.SIGKILL, wait: bool = True, event: str = "promoted"
    ) -> None:
        """These PS at once. With `wait`: until the survivors (or what `event` tells) have taken over and all trainers go on."""
        before = self.certain()
        promoted = len(self.job.events(event))
        self.strike_now(*names, before=before, number=number)
        if wait:
            self.wait_event(event, promoted + 1)
            self.job.wait_training(*before)

    def strike_now(
        self, *names: str, before: dict[str, int] | None = None, number: signal.Signals = signal.SIGKILL
    ) -> None:
        """Whatever state the job is in. `before`: the steps since which updates may be lost, at their last certain backup."""
        status = self.job.until(self.job.status, "status")
        slots = [slot for role in status.roles if role.name in names for slot in role.slots]
        for name in names:
            if number == signal.SIGSTOP:
                self.job.stop(name)
            else:
                os.kill(self.job.pid(name), number)
        for slot in slots:
            may = self.allowed.setdefault(slot, {})
            for name in before or {}:  # one step may be under way, and one more not yet counted
                may[name] = may.get(name, 0) + self.job.steps_of(name) + 2 - (before or {})[name]
        self.struck += len(names)

    # ------------------------------------------------------------------------------------------------ checking

    def check(self, slack: int = 0, *, restored: bool = False) -> dict[int, int]:
        """The last checkpoint holds every update but those; a failed step may have been applied, and was run again.

        Args:
            slack: further steps that may be there and not counted (of trainers that were killed).
            restored: the model went back to a backup on disk, and the global step with it.

        Returns:
            slot -> the most updates of one element that are missing.
        """
        import numpy as np
        import tensorflow as tf

        from tests.behaviour.scripts import count

        directory = self.job.directory
        reader = tf.train.load_checkpoint(str(directory / "model"))
        slots = slots_of(self.catalogue)
        tables: dict[str, Any] = {name: reader.get_tensor(name) for name in count.SGD}
        tables |= {f"{name}/Adagrad": reader.get_tensor(f"{name}/Adagrad") - 1.0 for name in count.ADAGRAD}
        if count.WIDE in slots:
            tables[count.WIDE] = reader.get_tensor(count.WIDE)
        most = self.struck + slack + sum(refused(directory, path.stem) for path in (directory / "count").glob("*.npy"))
        missing: dict[int, int] = {}
        steps = 0
        for path in (directory / "count").glob("*.npy"):
            role, ledger = path.stem, np.load(path)
            kind, _, index = role.partition("-")
            block = 0 if kind == "chief" else 1 + int(index)
            told, done = ledger[: count.BLOCK], int(ledger[count.BLOCK])
            assert restored or int(ledger[count.BLOCK + 2]) == 0, f"{role}: the global step went back"
            steps += done
            parts = {
                name: told[:, None] - table[block * count.BLOCK :][: count.BLOCK] for name, table in tables.items()
            }
            parts |= {name: done - reader.get_tensor(name)[block] for name in count.DENSE}
            for name, left in parts.items():
                may = self.allowed.get(slots[name], {}).get(role, 0)
                assert left.max() <= may, (
                    f"{role}: {name} (slot {slots[name]}) lost {left.max()} updates, at most {may}"
                )
                assert left.min() >= -most, f"{role}: {name} has {-left.min()} updates too many, at most {most}"
                missing[slots[name]] = max(missing.get(slots[name], 0), int(left.max()))
        # The global step goes on from the highest that a living trainer has seen; the dead may have known more.
        forgotten = sum(self.allowed.get(slots["global_step"], {}).values()) + 2 * self.struck
        step = int(reader.get_tensor("global_step"))
        assert steps - forgotten <= step <= steps + 2 * most, f"{step} instead of {steps} global steps"
        return missing

    def remember_catalogue(self) -> None:
        self.catalogue = self.job.catalogue()


def slots_of(catalogue: pb.Catalogue) -> dict[str, int]:
    """Name in a checkpoint -> slot."""
    return {variable.saved_name or variable.name: variable.slot for variable in catalogue.variables}
