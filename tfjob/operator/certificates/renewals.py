"""Renews the certificates of elastic jobs that run, in their Secrets; kubelets bring them to the pods within a minute or two.

A Secret is read by the operator that leads, again when something in it is due (`deeprec_ext.security.lifetimes`), and once a
day, for the history's authority has a time of its own: of 1 000 jobs that is a request in 86 s. It is written whole, so no pod
ever sees half a pair.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from deeprec_ext.errors import DeepRecError
from deeprec_ext.security import lifetimes
from tfjob.api.client import Api, ConflictError, NotFoundError
from tfjob.model import conditions
from tfjob.model.annotations import is_elastic, parse
from tfjob.model.events import Event
from tfjob.model.kinds import SECRETS, Manifest
from tfjob.model.spec import InvalidError, TFJob
from tfjob.operator.certificates.history_certificates import HistoryAuthority
from tfjob.operator.informer import Key
from tfjob.operator.recorder import EventRecorder
from tfjob.pods import certificates

log = logging.getLogger(__name__)

REMEMBERED = 10_000
FAILED_SECONDS = 600.0
"""After which a Secret that could not be written is tried again: of 1 000 jobs that is three requests a second."""

REASON, FAILED = "RenewedCertificates", "FailedRenewCertificates"


class Renewals:
    def __init__(
        self, api: Api, jobs: Mapping[Key, Manifest], recorder: EventRecorder, history: HistoryAuthority | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`jobs`: those that are seen, as they are at any time. `history`: whose certificates some Secrets have as well."""
        self._api, self._jobs, self._recorder, self._history, self._clock = api, jobs, recorder, history, clock
        self._due: OrderedDict[str, float] = OrderedDict()  # uids of jobs → Unix seconds of the next look

    async def act(self) -> None:
        """For ever; only while we lead. New jobs are looked at within `AGAIN_SECONDS`."""
        while True:
            await self.look()
            await asyncio.sleep(lifetimes.AGAIN_SECONDS)

    async def look(self) -> None:
        """At each job where something is due; whatever is wrong with one of them is told, and tried again."""
        for key in list(self._jobs):
            job, now = self._jobs.get(key), self._clock()
            if job is None or self._due.get(uid := job["metadata"].get("uid", ""), 0.0) > now:
                continue
            due = now + lifetimes.LOOK_SECONDS
            try:
                if _runs_elastic(job):
                    found = await self._renew(key, job)
                    due = now if found is None else found
            except ConflictError:  # of another operator: what it wrote is as good
                due = now
            except (DeepRecError, ValueError) as error:
                log.warning("%s/%s: the job's certificates are not renewed: %s", *key, error)
                await self._tell_failure(job, str(error))
                due = now + FAILED_SECONDS
            except Exception:  # one job never ends the operator of all
                log.exception("%s/%s: the job's certificates could not be looked at", *key)
                due = now + FAILED_SECONDS
            self._due[uid] = due
            while len(self._due) > REMEMBERED:
                self._due.popitem(last=False)

    async def _renew(self, key: Key, job: Manifest) -> float | None:
        """When to look again; None: there is no Secret yet. Raises ApiError, UnreachableError, ValueError."""
        name, now = certificates.secret_name(key[1]), self._clock()
        try:
            found = await self._api.get(SECRETS, key[0], name)
        except NotFoundError:
            return None
        owners = [one.get("uid") for one in found["metadata"].get("ownerReferences") or []]
        if job["metadata"].get("uid") not in owners:
            return None  # of a deleted job of this name, and goes: `aimasters` tells
        files = {one: base64.b64decode(text) for one, text in (found.get("data") or {}).items()}
        changed = await asyncio.to_thread(certificates.renewed_files, files, *key, now)
        if self._history is not None and certificates.has_history(files):
            authority = await self._history.files()
            changed |= await asyncio.to_thread(certificates.renewed_history, files, authority, key[0], now)
        if changed:
            files |= changed
            await self._api.replace(SECRETS, key[0], {**found, "data": certificates.secret_data(files)})
            names = ", ".join(sorted(one for one in changed if not one.endswith("-key.pem")))
            log.info("%s/%s: renewed in Secret %s: %s", *key, name, names)
            ends = lifetimes.shown(lifetimes.read(files["aimaster.pem"]).ends)
            text = f"Renewed in Secret {name}: {names}; the AIMaster's expires at {ends}"
            await self._recorder.done(job, [Event("Normal", REASON, text)])
        return min(certificates.next_look(files), now + lifetimes.DAY_SECONDS)

    async def _tell_failure(self, job: Manifest, why: str) -> None:
        text = f"The job's certificates are not renewed: {why}. It is tried again every ten minutes"
        await self._recorder.state(job, Event("Warning", FAILED, text))


def _runs_elastic(manifest: Manifest) -> bool:
    if conditions.is_finished(manifest.get("status") or {}):
        return False
    try:
        job = TFJob.parse(manifest)
        return is_elastic(job) or parse(job)[0] is not None
    except InvalidError:
        return False
