"""The pods of an elastic TFJob: made, deleted and watched by the AIMaster itself.

The kubelet starts a container that failed again, in its pod; a pod that is gone as a whole (evicted, preempted, its node lost,
deleted by somebody) is made again here, under its name, as long as the AIMaster wants it. Whether, and how often, says
`restarting`, as on one machine. The AIMaster is told of both in the same words: exited and restarting, then running.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping

from deeprec_ext.aimaster.core.records import ROLE_NAMES, parse_name
from deeprec_ext.aimaster.kubernetes.kept import Kept, Size
from deeprec_ext.aimaster.kubernetes.making import Factory, Maker, may_change
from deeprec_ext.aimaster.kubernetes.naming import Naming
from deeprec_ext.aimaster.kubernetes.reading import LOST_EXIT_CODE, Seen, disruption, identity, last_end, read
from deeprec_ext.aimaster.metrics.cost import OnNode
from deeprec_ext.aimaster.pods.backend import PodState
from deeprec_ext.aimaster.pods.restarting import Action, Ended, Verdict, decide
from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.retries import Sleep, pauses
from deeprec_ext.units import format_seconds
from tfjob.api.client import Api, ApiError
from tfjob.api.watching import changes
from tfjob.model.kinds import PODS, Manifest
from tfjob.pods import spot

log = logging.getLogger(__name__)

REMAKE_SECONDS_MAX = 30.0
PATIENT_RESTARTS = 2
"""Of a container in its pod. The kubelet waits 20 s before the next, then 40 s, and so on: another pod is quicker."""

ROOM_SECONDS = 120.0
"""How long a pod whose requests are an estimate may wait for a node: a cluster that grows has made one by then."""

SPOT_AGAIN_SECONDS = 900.0
"""From the last pod that found no spot node until pods ask for one again. Those that have a node keep it."""

SIGTERM_EXIT_CODE = 143
BY_ITSELF_MAX = 128
"""Exit codes above it are those of signals."""
DELETED = "deleted: not by the AIMaster"
OUTSTAYED = "killed: its script had ended, its process had not"


class KubernetesBackend:
    """Implements PodBackend. Whoever wires it sets `trained`, `trained_seconds`, `reclaimed`, `estimates`,
    `given_up`, `spot`, `spot_seconds`, `fell_back`; then comes `begin`."""

    one_host = False
    resizes_in_place = False  # servers before 1.27 cannot, and later ones need not

    def __init__(
        self, api: Api, namespace: str, naming: Naming, factory: Factory | None, owner_uid: str, *, restarts_max: int,
        sleep: Sleep = asyncio.sleep, maker: Maker | None = None,
    ) -> None:  # fmt: skip
        """`maker`: another one than that which makes pods by `factory`."""
        self._api, self._namespace, self._naming = api, namespace, naming
        self._restarts_max, self._sleep = restarts_max, sleep
        if maker is None:
            assert factory is not None
            maker = Maker(api, namespace, naming, factory, owner_uid, sleep)
        self._maker = maker
        self._pods: dict[str, Kept] = {}
        self._sizes: dict[str, Size] = {}  # of ps, worker
        self._watchers: set[asyncio.Queue[PodState | Exception]] = set()
        self._following: asyncio.Task[None] | None = None
        self._removals: set[asyncio.Task[None]] = set()
        self.trained: Callable[[str], bool] = lambda name: True
        self.trained_seconds: Callable[[str], float] = lambda name: math.inf
        self.reclaimed: Callable[[str, str], None] = lambda name, why: None
        self.estimates: Mapping[str, Size] = {}  # of ps, worker: requested where nobody has said what
        self.spot: tuple[str, str] | None = None  # label of the nodes that pods may ask for, and need not have
        self.spot_seconds = 0.0  # for which they wait for one; 0: for ever
        self.fell_back: Callable[[str, str], None] = lambda name, why: None
        self.monotonic: Callable[[], float] = time.monotonic
        self._on_demand_until = -math.inf
        maker.change = self._without_spot
        self.given_up: Callable[[str], None] = lambda why: None  # the estimates
        self.closed = False  # nothing is made any more: the job is ending

    # ------------------------------------------------------------------------------------------------ PodBackend

    async def create(self, name: str) -> None:
        kept = self._kept(name)
        if self.closed:
            raise UnreachableError(f"{name} is not created: the job is ending")
        kept.begin()
        try:
            await self._maker.insist(f"create {name}", lambda: self._make(kept))
        except UsageError as error:
            raise UnreachableError(f"{name} cannot be created: {error}") from error

    async def delete(self, name: str, grace_seconds: float) -> None:
        kept = self._kept(name)
        kept.wanted = False
        kept.cancel()
        if kept.runs and kept.seen and grace_seconds <= 0:
            kept.avoid = kept.seen.node  # it hangs, and perhaps its node does
        there = await self._maker.delete(name, grace_seconds)
        ended = kept.state is not None and kept.state.state == "exited"
        if not there or ended or kept.seen is None:
            kept.state = None  # said again: whoever asked waits for it
            self._tell(kept, kept.exited_state(kept.seen))
        kept.task = asyncio.get_running_loop().create_task(self._maker.forget_service(name))

    async def end(self, name: str, pid: int, exit_code: int) -> None:
        """Only where the process is the pod's own (number 1): what else runs there may have work to do. Beside Kubeflow, which
        would make again what goes, nothing but the process's own timer ends it."""
        kept = self._kept(name)
        if pid != 1 or kept.seen is None or not kept.seen.running or not self._maker.own_pods:
            return
        seen = dataclasses.replace(
            kept.seen, running=False, ended=True, lost=True, exit_code=exit_code, cause=OUTSTAYED if exit_code else ""
        )
        self._ended(kept, seen)
        if kept.action is Action.DONE:
            self._give_up(kept, seen.uid)

    async def resize(self, name: str, cpu: float, memory_bytes: int) -> None:
        if name not in ("ps", "worker"):
            raise UsageError(
                f"{name}: a pod keeps its size; replace it (`scale --replace {name}`) to move it to a new one"
            )
        if not self._maker.own_pods:
            raise UsageError(f"{name}: its pods are made by Kubeflow, all from one template, and keep the size it says")
        before = self._sizes.get(name, Size())
        self._sizes[name] = Size(cpu or before.cpu, memory_bytes or before.memory_bytes)

    async def watch(self) -> AsyncIterator[PodState]:
        """Raises UnreachableError when the AIMaster has no right to watch pods."""
        queue: asyncio.Queue[PodState | Exception] = asyncio.Queue()
        for kept in self._pods.values():
            if kept.state is not None:
                queue.put_nowait(kept.state)
        self._watchers.add(queue)
        try:
            while True:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self._watchers.discard(queue)

    async def existing(self) -> list[PodState]:
        found = []
        for pod in await self._maker.insist("list its pods", self._maker.pods):
            name, seen = self._naming.role(pod["metadata"].get("labels") or {}), read(pod)
            if name is not None and (seen.running or seen.ended):
                restarting = seen.ended and not seen.lost and seen.exit_code != 0
                found.append(
                    PodState(
                        name, "running" if seen.running else "exited", pid=seen.identity if seen.running else 0,
                        exit_code=seen.exit_code, restarting=restarting, restarts=seen.restarts,
                        last_line=seen.last_line, cause=seen.cause, cpu=seen.cpu, memory_bytes=seen.memory_bytes,
                    )
                )  # fmt: skip
        return found

    def available_memory(self) -> int | None:
        return None

    def waiting_reason(self, name: str) -> str:
        kept = self._pods.get(name)
        return kept.seen.waiting if kept is not None and kept.seen is not None else ""

    async def close(self) -> None:
        self.closed = True
        tasks = [kept.task for kept in self._pods.values() if kept.task is not None]
        tasks += [*self._removals, *([self._following] if self._following is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ following

    async def begin(self) -> None:
        """What there is, from one list, then every change in the background. Raises UnreachableError."""
        self._listed(await self._maker.insist("list its pods", self._maker.pods))
        self._following = asyncio.get_running_loop().create_task(self._follow())

    def pods_on(self, node: str) -> list[str]:
        """Names of the pods that run on a node."""
        return [kept.name for kept in self._pods.values() if kept.runs and kept.seen and kept.seen.node == node]

    def runs(self, name: str) -> bool:
        kept = self._pods.get(name)
        return kept is not None and kept.runs

    def waiting(self) -> dict[str, str]:
        """Pods that do not run yet → why."""
        return {name: why for name in self._pods if (why := self.waiting_reason(name))}

    def unplaced(self) -> dict[str, str]:
        """Pods that are to run and have no node → why. Not those that any other node may have in a while."""
        there = [kept for kept in self._pods.values() if kept.wanted and not kept.for_spot]
        found = {kept.name: kept.seen for kept in there if kept.seen is not None}
        return {
            name: seen.waiting for name, seen in found.items() if not seen.node and not seen.running and not seen.ended
        }

    def on_nodes(self) -> list[OnNode]:
        """Pods that run, with what they request."""
        there = [(kept.name.rpartition("-")[0], kept.seen) for kept in self._pods.values() if kept.runs and kept.seen]
        return [OnNode(role, seen.node, seen.asked_cpu, seen.asked_memory_bytes) for role, seen in there]

    def alive(self) -> list[str]:
        """Names of the pods that run or are about to."""
        return sorted(kept.name for kept in self._pods.values() if kept.alive)

    async def _follow(self) -> None:
        """For ever."""
        try:
            async for kind, what in changes(
                self._api, PODS, self._namespace, labels=self._naming.selector, sleep=self._sleep
            ):
                if isinstance(what, list):
                    self._listed(what)
                else:
                    self._heard(kind, what)
        except ApiError as error:
            broken = UnreachableError(f"the pods of the job cannot be watched: {error}")
            for queue in self._watchers:
                queue.put_nowait(broken)

    def _listed(self, pods: list[Manifest]) -> None:
        uids = {pod["metadata"]["uid"] for pod in pods}
        for kept in list(self._pods.values()):
            if kept.seen is not None and kept.seen.uid not in uids:
                self._gone(kept, kept.seen)
        for pod in pods:
            self._heard("MODIFIED", pod)

    def _heard(self, kind: str, pod: Manifest) -> None:
        name = self._naming.role(pod["metadata"].get("labels") or {})
        if name is None or not self._maker.owns(pod):
            return
        kept, seen = self._kept(name), read(pod)
        if kept.made not in ("", seen.uid):
            return  # late news of a pod that had the name before
        if kind == "DELETED":
            if kept.seen is not None and kept.seen.uid == seen.uid:
                self._gone(kept, dataclasses.replace(seen, cause=seen.cause or disruption(pod.get("status") or {})))
        elif seen.uid != kept.over:
            self._changed(kept, seen, pod)

    def _changed(self, kept: Kept, seen: Seen, pod: Manifest) -> None:
        before, kept.seen = kept.seen, seen
        if before is None and kept.state is None:
            kept.restarts = max(kept.restarts, seen.restarts)
        if seen.running:
            unseen = last_end(pod) if kept.running not in (0, seen.identity) else None
            if unseen is not None and before is not None and before.uid == seen.uid:
                self._ended(kept, unseen)
            if kept.over == seen.uid:
                return  # that was once too often
            kept.running = seen.identity
            self._tell(kept, kept.running_state(seen))
            if seen.terminating and kept.wanted and kept.going != seen.uid:
                kept.going = seen.uid
                self.reclaimed(kept.name, disruption(pod.get("status") or {}) or DELETED)
        elif seen.ended:
            self._ended(kept, seen)
        elif not seen.node and kept.wanted and kept.task is None:
            if self.spot_seconds and self.spot is not None and spot.asks_for(pod, *self.spot):
                kept.task = asyncio.get_running_loop().create_task(self._find_spot(kept, seen.uid))
            elif self._estimate(kept.name):
                kept.task = asyncio.get_running_loop().create_task(self._find_room(kept, seen.uid))

    def _gone(self, kept: Kept, seen: Seen) -> None:
        """The pod does not exist any more."""
        kept.seen, kept.made = None, ""
        if kept.over == seen.uid:
            return
        if not kept.wanted or self.closed:
            self._tell(kept, kept.exited_state(seen))
            return
        if not seen.ended:
            number = seen.identity or identity(seen.uid)
            code = LOST_EXIT_CODE
            seen = dataclasses.replace(
                seen, running=False, ended=True, identity=number, exit_code=code, cause=seen.cause or DELETED
            )
        self._ended(kept, dataclasses.replace(seen, lost=True))

    # ------------------------------------------------------------------------------------------------ ends

    def _ended(self, kept: Kept, seen: Seen) -> None:
        """A process has ended, or its pod with it; the same end is judged once."""
        if seen.identity == kept.judged:
            if seen.lost and kept.action is Action.RESTART and kept.task is None and kept.wanted:
                self._remake_later(kept, seen.uid, 0.0)  # the kubelet was to start it again, and cannot any more
            elif not kept.wanted:
                self._tell(kept, kept.exited_state(seen))
            return
        chief = kept.name.startswith("chief-")
        if seen.terminating and kept.wanted and seen.exit_code <= BY_ITSELF_MAX and not (chief and seen.exit_code == 0):
            seen = dataclasses.replace(seen, exit_code=SIGTERM_EXIT_CODE)  # it ends because it was sent away
        verdict = self._judge(kept, seen)
        kept.judged, kept.action, kept.running = seen.identity, verdict.action, 0
        restarting = verdict.action is Action.RESTART
        if restarting:
            kept.restarts, kept.recent = kept.restarts + 1, kept.recent + 1
            kept.recent_errors += not seen.by_signal
        self._tell(kept, kept.exited_state(seen, restarting=restarting))
        if restarting:
            log.info("%s %s; it is started again", kept.name, verdict.reason)
            if seen.lost and seen.cause != DELETED:
                kept.avoid = seen.node
            if seen.lost or seen.restarts >= PATIENT_RESTARTS or self._size(kept.name).outgrown(seen):
                self._remake_later(kept, seen.uid, verdict.delay_seconds)
        elif verdict.action is not Action.DONE:
            log.warning("%s %s; it is given up", kept.name, verdict.reason)
            self._give_up(kept, seen.uid)  # else the kubelet would start it again

    def _give_up(self, kept: Kept, uid: str) -> None:
        kept.over = uid
        removal = asyncio.get_running_loop().create_task(self._remove(kept, uid))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def _judge(self, kept: Kept, seen: Seen) -> Verdict:
        role, _ = parse_name(kept.name)
        kind = next(name for name, value in ROLE_NAMES.items() if value == role)
        raised, raised_before = "" if seen.by_signal else seen.raised_at, kept.raised_at
        kept.raised_at = raised
        return decide(
            Ended(
                role=kind, exit_code=seen.exit_code, by_signal=seen.by_signal, deleted=not kept.wanted or self.closed,
                trained=self.trained(kept.name), served=True, restarts=kept.recent, error_restarts=kept.recent_errors,
                restarts_max=self._restarts_max, cause=seen.cause, raised_at=raised, raised_before=raised_before,
                trained_seconds=self.trained_seconds(kept.name),
            )
        )  # fmt: skip

    def _size(self, name: str) -> Size:
        return self._of_role(self._sizes, name)

    @staticmethod
    def _of_role(sizes: Mapping[str, Size], name: str) -> Size:
        return sizes.get("ps" if name.startswith("ps-") else "worker", Size())

    def _tell(self, kept: Kept, state: PodState) -> None:
        if state != kept.state:
            kept.state = state
            for queue in self._watchers:
                queue.put_nowait(state)

    # ------------------------------------------------------------------------------------------------ acting

    def _kept(self, name: str) -> Kept:
        return self._pods.setdefault(name, Kept(name))

    def _estimate(self, name: str, estimates: Mapping[str, Size] | None = None) -> Mapping[str, str] | None:
        found = self.estimates if estimates is None else estimates
        return None if name.startswith("evaluator-") else self._of_role(found, name).requests

    async def _make(self, kept: Kept) -> None:
        try:
            found = await self._make_with(kept, self._estimate(kept.name))
        except ApiError as error:
            if not self._estimate(kept.name) or may_change(error):
                raise
            await self._give_up_estimates(f"{kept.name} was refused with them: {error}")
            found = await self._make_with(kept, None)
        if kept.seen is not None and kept.seen.uid == found["metadata"]["uid"]:
            kept.state = None  # told again: whoever asked for it begins anew
        kept.made = found["metadata"]["uid"]
        self._heard("ADDED", found)

    async def _make_with(self, kept: Kept, estimate: Mapping[str, str] | None) -> Manifest:
        requests = self._size(kept.name).requests
        return await self._maker.make(kept.name, requests, estimate=estimate, over=kept.over, avoid=kept.avoid)

    async def _find_spot(self, kept: Kept, uid: str) -> None:
        """A pod that finds no spot node is made again without that wish; so are those to come, for a while."""
        kept.for_spot = True
        try:
            await self._sleep(self.spot_seconds)
        finally:
            kept.for_spot = False
        kept.task, seen = None, kept.seen
        if seen is None or seen.uid != uid or seen.node or self.closed or not kept.alive:
            return
        self._on_demand_until = self.monotonic() + SPOT_AGAIN_SECONDS
        why = f"no spot node for {format_seconds(self.spot_seconds)}" + (f": {seen.waiting}" if seen.waiting else "")
        log.warning("%s is made without a wish for spot nodes: %s", kept.name, why)
        self.fell_back(kept.name, why)
        await self._make_way(kept, uid)

    def _without_spot(self, pod: Manifest) -> Manifest:
        """As it is to be made now."""
        if self.spot is None or self.monotonic() >= self._on_demand_until:
            return pod
        return spot.without(pod, *self.spot)

    async def _find_room(self, kept: Kept, uid: str) -> None:
        """A pod that finds no node is made again without requests that are an estimate."""
        await self._sleep(ROOM_SECONDS)
        kept.task, seen = None, kept.seen
        if seen is not None and seen.uid == uid and not seen.node and not self.closed:
            why = f": {seen.waiting}" if seen.waiting else ""
            await self._give_up_estimates(f"{kept.name} has found no node with them for {ROOM_SECONDS:.0f} s{why}")
            if kept.alive:
                await self._make_way(kept, uid)

    async def _give_up_estimates(self, why: str) -> None:
        """Of all roles, for good: what does not fit one pod is wrong, or wanted elsewhere. Before anybody has trained, pods
        that have them make way at once: they may hold what the others lack."""
        if not self.estimates:
            return
        log.warning("requests from the history are given up: %s", why)
        before, self.estimates = self.estimates, {}
        self.given_up(why)
        for kept in list(self._pods.values()):
            if kept.alive and kept.seen and self._estimate(kept.name, before) and not self.trained(kept.name):
                await self._make_way(kept, kept.seen.uid)

    async def _make_way(self, kept: Kept, uid: str) -> None:
        """This very pod goes, and its end is none of its process; another one is made."""
        kept.over = uid
        try:
            await self._maker.delete_this(kept.name, uid)
        except (ApiError, UnreachableError) as error:
            log.warning("%s does not make way yet: %s", kept.name, error)
        self._remake_later(kept, uid, 0.0)

    def _remake_later(self, kept: Kept, lost: str, delay_seconds: float) -> None:
        kept.cancel()
        kept.task = asyncio.get_running_loop().create_task(self._remake(kept, lost, delay_seconds))

    async def _remake(self, kept: Kept, lost: str, delay_seconds: float) -> None:
        """Until it is made in place of the one with uid `lost`, or not wanted any more (then this is cancelled)."""
        await self._sleep(delay_seconds)
        waits = pauses(1.0, REMAKE_SECONDS_MAX)
        while not self.closed:
            try:
                await self._maker.delete_this(kept.name, lost)
                await self._make(kept)
                break
            except (ApiError, UnreachableError, UsageError) as error:
                log.warning("%s cannot be made again yet: %s", kept.name, error)
            await self._sleep(next(waits))
        kept.task = None

    async def _remove(self, kept: Kept, uid: str) -> None:
        try:
            await self._maker.insist(f"delete {kept.name}", lambda: self._maker.give_up(kept.name, uid))
        except UnreachableError as error:
            log.warning("%s was given up and still there: %s", kept.name, error)
