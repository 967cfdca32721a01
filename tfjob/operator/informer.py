"""All objects of one kind, as the API server has them, and who is told when one changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tfjob.api.client import Api
from tfjob.api.watching import changes
from tfjob.model.kinds import Manifest, Resource

Key = tuple[str, str]
"""Namespace and name of a job, or of an object."""

EXPECTED_SECONDS = 10.0
"""How long an object that we created counts as there before the watch has shown it. The watch is late by milliseconds; one
that never comes was deleted at once."""


class Informer:
    """Run `run` as a task; `of` can be relied on once `synced` is set.

    Args:
      labels: selector that the server applies: what it does not match is never sent.
      job_of: which job an object belongs to; None: none.
      namespace: None: all.
      changed: called with the job of each object that has come, changed or gone.
    """

    def __init__(
        self, api: Api, resource: Resource, labels: str, namespace: str | None,
        job_of: Callable[[Manifest], Key | None], changed: Callable[[Key], None],
    ) -> None:  # fmt: skip
        self._api, self._resource, self._labels, self._namespace = api, resource, labels, namespace
        self._job_of, self._changed = job_of, changed
        self._objects: dict[Key, Manifest] = {}
        self._of: dict[Key, dict[str, Manifest]] = {}  # by job, then by name
        self._expected: dict[Key, dict[str, tuple[float, Manifest]]] = {}
        self.synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._objects)

    def of(self, job: Key) -> tuple[Manifest, ...]:
        """Those of one job, in the order of their names; among them what was created a moment ago."""
        found = dict(self._of.get(job, {}))
        now = asyncio.get_running_loop().time()
        expected = self._expected.get(job, {})
        for name, (until, one) in list(expected.items()):
            if name in found or until < now:
                del expected[name]
            else:
                found[name] = one
        if not expected:
            self._expected.pop(job, None)
        return tuple(found[name] for name in sorted(found))

    def expect(self, job: Key, created: Manifest) -> None:
        """It was created, or found to be there, and the watch will show it (or not, if it has gone again)."""
        until = asyncio.get_running_loop().time() + EXPECTED_SECONDS
        self._expected.setdefault(job, {})[created["metadata"]["name"]] = until, created

    async def run(self) -> None:
        """For ever."""
        watched = changes(self._api, self._resource, self._namespace, labels=self._labels, forbidden_ends=False)
        async for kind, found in watched:
            if isinstance(found, list):
                self._listed(found)
            else:
                self._take(found, gone=kind == "DELETED")

    def _listed(self, found: list[Manifest]) -> None:
        present = {name_of(one) for one in found}
        for gone in [one for name, one in self._objects.items() if name not in present]:
            self._take(gone, gone=True)
        for one in found:
            known = self._objects.get(name_of(one))
            if known is None or version_of(known) != version_of(one):
                self._take(one, gone=False)
        self.synced.set()

    def _take(self, found: Manifest, *, gone: bool) -> None:
        found["metadata"].pop("managedFields", None)  # half of an object's size, and nobody reads it
        name, job = name_of(found), self._job_of(found)
        before = self._objects.pop(name, None)
        old_job = self._job_of(before) if before is not None else None
        if old_job is not None:
            self._of[old_job].pop(name[1], None)
            if not self._of[old_job]:
                del self._of[old_job]
        if not gone:
            self._objects[name] = found
            if job is not None:
                self._of.setdefault(job, {})[name[1]] = found
        for one in {old_job, job} - {None}:
            assert one is not None
            self._expected.get(one, {}).pop(name[1], None)
            self._changed(one)


def name_of(found: Manifest) -> Key:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def version_of(found: Manifest) -> str:
    return str(found["metadata"].get("resourceVersion", ""))
