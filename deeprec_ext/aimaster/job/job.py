"""The job: the state that its parts share (`state.shared`), and the parts that keep it up.

- `admission` answers Register, `inbox` handles what agents say, `pods` what the backend says,
- `queue` takes requests and drives one scaling at a time through `machine`'s states (`changes`: PS, `workers`: workers),
- `failover` replaces what died or hung, `recovery` continues after this process itself was killed.
"""

from __future__ import annotations

import logging
import sqlite3

from deeprec_ext.aimaster.backups.copies import Copies
from deeprec_ext.aimaster.backups.disk import DiskBackups
from deeprec_ext.aimaster.backups.peers import PeerBackups
from deeprec_ext.aimaster.backups.trainers import TrainerBackups
from deeprec_ext.aimaster.core.clock import Clock
from deeprec_ext.aimaster.job.expiring import Expiring
from deeprec_ext.aimaster.job.notices import Notices
from deeprec_ext.aimaster.job.replicated import ReplicatedState
from deeprec_ext.aimaster.job.unwritten import Unwritten
from deeprec_ext.aimaster.ledger import Ledger
from deeprec_ext.aimaster.metrics.collector import MetricsCollector
from deeprec_ext.aimaster.state.shared import JobState
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.options import JobSpec

log = logging.getLogger(__name__)


class Job(JobState):
    """All of it, wired together: each part takes the state and the parts that it uses."""

    def __init__(self, spec: JobSpec, store: Store, clock: Clock | None = None, certs: str | None = None) -> None:
        super().__init__(spec, store, clock)
        self.ledger = Ledger(self)
        self.metrics = MetricsCollector(self, self.ledger)
        copies = Copies(self)
        self.trainer_backups = TrainerBackups(self, copies, self.metrics)
        self.peer_backups = PeerBackups(self, copies, self.trainer_backups)
        self.disk = DiskBackups(self, self.ledger)
        self.replicated = ReplicatedState(self, self.ledger)
        self.notices = Notices(self)
        self.ledger.notice = self.notices.add
        self.unwritten, self.expiring = Unwritten(self), Expiring(self, certs)
        self.tell_quarantined()

    def reopen(self) -> None:
        """A stopped run is resumed: how it ended does not count any more."""
        self.ending = self.failure = ""
        self.store.put(ending="", failure="")
        self.notices.forget()

    def close(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
        for member in self.members:
            member.outbox.detach()
        self.members.flush()
        self.ledger.close()
        self.events.close()
        if not self._copied():
            self.store.try_again()  # of a file that was found damaged now: all is written anew
            self._copied()
        self.store.close()

    def _copied(self) -> bool:
        try:
            self.store.copy()
        except (sqlite3.Error, OSError) as error:
            log.warning("the copy of the store is as it was: %s", error)
            return False
        return True
