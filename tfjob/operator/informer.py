"""All objects of one kind, as the API server has them, and who is told when one changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tfjob.api.client import Api
from tfjob.api.watching import changes
from tfjob.model.kinds import Manifest, Resource
from tfjob.operator.running import together
from tfjob.operator.sight import Key as Key
from tfjob.operator.sight import Missing, Namespaces, Sight, within

EXPECTED_SECONDS = 10.0
"""How long an object that we created counts as there before the watch has shown it. The watch is late by milliseconds; one
that never comes was deleted at once."""


class Informer:
    """Run `run` as a task; `of` can be relied on once `synced` is set.

    Args:
      labels: selector that the server applies: what it does not match is never sent.
      job_of: which job an object belongs to; None: none.
      changed: called with the job of each object that has come, changed or gone.
      missing: where rights are told that are not there.
      so: what is done in a namespace where these objects may not be seen.
      sight_changed: see `Sight`.
    """

    def __init__(
        self, api: Api, resource: Resource, labels: str, namespaces: Namespaces,
        job_of: Callable[[Manifest], Key | None], changed: Callable[[Key], None],
        missing: Missing | None = None, so: str = "", sight_changed: Callable[[str | None], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._api, self._resource, self._labels = api, resource, labels
        self._job_of, self._changed = job_of, changed
        self._objects: dict[Key, Manifest] = {}
        self._of: dict[Key, dict[str, Manifest]] = {}  # by job, then by name
        self._expected: dict[Key, dict[str, tuple[float, Manifest]]] = {}
        self.sight = Sight(missing or Missing(), resource, namespaces, so, sight_changed)
        self.synced = self.sight.seen

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

    def jobs(self, namespace: str | None) -> list[Key]:
        """Of which there are any in what is listed together."""
        return [job for job in self._of if within(namespace, job)]

    def expect(self, job: Key, created: Manifest) -> None:
        """It was created, or found to be there, and the watch will show it (or not, if it has gone again)."""
        until = asyncio.get_running_loop().time() + EXPECTED_SECONDS
        self._expected.setdefault(job, {})[created["metadata"]["name"]] = until, created

    async def run(self) -> None:
        """For ever."""
        await together(self._follow(namespace) for namespace in self.sight.namespaces)

    async def _follow(self, namespace: str | None) -> None:
        rights = self.sight.rights(namespace)
        async for kind, found in changes(self._api, self._resource, namespace, labels=self._labels, rights=rights):
            if isinstance(found, list):
                self._listed(found, namespace)
            else:
                self._take(found, gone=kind == "DELETED")

    def _listed(self, found: list[Manifest], namespace: str | None) -> None:
        present = {name_of(one) for one in found}
        known = [(name, one) for name, one in self._objects.items() if within(namespace, name)]
        for gone in [one for name, one in known if name not in present]:
            self._take(gone, gone=True)
        for one in found:
            before = self._objects.get(name_of(one))
            if before is None or version_of(before) != version_of(one):
                self._take(one, gone=False)
        self.sight.listed(namespace)

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
