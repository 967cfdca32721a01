"""The sessions behind one `ElasticSession`: the present one, those prepared for other views, and those that must stay.

Each is a placed copy of the user's graph (`PlacedSession`). The training thread takes the present one before every run; the
agent's threads prepare others meanwhile and exchange them. What the training thread finds missing it builds itself,
between two runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf

from deeprec_ext import graph as passes
from deeprec_ext.elastic.agent.background import (
    IDLE_NICENESS,
    Polite,
    hasten,
    politely,
    without_collections,
)  # fmt: skip
from deeprec_ext.elastic.agent.causes import SESSION, causes
from deeprec_ext.elastic.session.host import SessionHost, Wanted
from deeprec_ext.elastic.session.making import OWN_NODES_MIN, RunMaker
from deeprec_ext.elastic.session.placed import Copy, ExchangedError, PlacedSession, Signature
from deeprec_ext.elastic.session.tracing import Traceable
from deeprec_ext.elastic.session.usergraph import Exported, UserGraph
from deeprec_ext.errors import RefusedError

v1 = tf.compat.v1
log = logging.getLogger("deeprec_ext")

DROP_SECONDS, DROP_PATIENCE_SECONDS = 2.0, 20.0
"""How long closing waits until iterators are gone: where the session names a dead PS, which may keep it for ever, and where it
does not. Then the only reason is a busy machine, and giving up costs a crash: an iterator that outlives its session."""

DEAR_NODES = 4000
"""From that size of the user's graph on (compiling a step takes a second of a core) what is made beside training, or while it
stands still, is made in two goes: first without TensorFlow's graph optimiser, and once that is in use, with it."""

PACK_NICENESS = 3
"""Of what makes the steps of a session that was made in haste half as long: sooner than anything else beside training."""

HURRY_SECONDS, UNDER_WAY_LIMIT_SECONDS = 0.1, 30.0
"""How often a run that waits for a session which is being made hastens it (its threads start others), and how long it waits
for it at most before it makes one itself."""

_numbers = itertools.count()


class _UnderWay:
    """A session that is being made, or completed, beside training."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.hurried = False
        """Training stands still and waits for it: no more is compiled than it needs to go on."""

    def hurry(self) -> None:
        self.hurried = True
        hasten()


class _Better(NamedTuple):
    """A session in which a run is being compiled: an optimised one, or the present one, whose runs are packed."""

    placed: PlacedSession
    wanted: Wanted
    work: Polite[None]
    packs: bool = False
    """A run of the session that was in use when this began."""


class SessionPool:
    """Of one `ElasticSession`.

    Args:
      user: the graph that is copied.
      host: says what the present session is to be made for; None: on the spot, without a cluster.
      config: what the script gave its session.
    """

    def __init__(self, user: UserGraph, host: SessionHost | None, config: v1.ConfigProto | None) -> None:
        self._user, self._host, self._given = user, host, config
        self.present: PlacedSession | None = None
        """The session of the next run, as far as nothing changes."""
        self.made_for: Wanted | None = None
        """What the present one serves."""
        self._made_version: tuple[int, bool] | None = None  # of the user's graph
        self._prepared: dict[object, PlacedSession] = {}
        self._standby: dict[object, PlacedSession] = {}  # for views that come only when a PS dies
        self._under_way: dict[object, _UnderWay] = {}
        self._better: _Better | None = None
        self._outdated: list[_Better] = []  # for a view that is over, and still being compiled
        self._uncompilable: set[Signature] = set()  # of those that were run once
        self._kept: list[PlacedSession] = []  # sessions in which an iterator was initialised
        self._left_behind = threading.Event()  # some session could not be closed
        self._building = threading.RLock()
        self._swaps = itertools.count(1)
        self._scope = f"deeprec_ext/{next(_numbers)}/"  # two graphs of a process may call their iterators alike

    # -- the training thread

    def current(self) -> PlacedSession:
        """The session for the present view; built here and now when nobody prepared it."""
        exported = self._user.exported()
        placed = self.present
        wanted = self._host.wanted() if self._host is not None else _ON_THE_SPOT
        if placed is not None and (self.made_for is wanted and self._made_version == exported.version):
            return placed
        self._wait_for((wanted.key, exported.version))
        with self._building:
            placed = self.present
            if placed is not None and placed.key == (wanted.key, exported.version):
                self.made_for, self._made_version = wanted, exported.version
                return placed
            fresh = self._take_prepared((wanted.key, exported.version))
            if fresh is None:
                started = time.monotonic()
                with causes.during(SESSION):
                    fresh = self._build(wanted, exported, quick=self.present is not None and _dear(exported), here=True)
                if self.present is not None:
                    log.info("built a session between two runs, in %.2f s", time.monotonic() - started)
            old = self._install(fresh, wanted)
        if old is not None and self._host is not None:
            self._host.retire([old])
        return fresh

    def _wait_for(self, key: object) -> None:
        """A session that is being made beside training is sooner there than another one begun now."""
        under_way = self._under_way.get(key)
        ready = key in self._prepared or key in self._standby or (self.present is not None and self.present.key == key)
        if under_way is None or ready:
            return
        began = time.monotonic()
        with causes.during(SESSION):
            while not under_way.ended.is_set() and time.monotonic() - began < UNDER_WAY_LIMIT_SECONDS:
                under_way.hurry()
                under_way.ended.wait(HURRY_SECONDS)
        log.info("waited %.2f s for a session that was being prepared", time.monotonic() - began)

    def _context(self, wanted: Wanted, *, here: bool = False) -> passes.Context:
        """With names that no other copy has, and draws that no other one has, but those which are made for the next run before
        training has begun (`here`): they draw as the graph says."""
        if here and not self._user.recurring():
            return dataclasses.replace(wanted.context, swaps=0, resource_scope=self._scope)
        return dataclasses.replace(wanted.context, swaps=next(self._swaps), resource_scope=self._scope)

    def _build(
        self, wanted: Wanted, exported: Exported, *, quick: bool = False, at_once: bool = False, here: bool = False
    ) -> PlacedSession:
        """`at_once`: nobody waits for it; its runs are packed when they are compiled. `here`: the next run is made in it."""
        context = self._context(wanted, here=here)
        first = list(exported.cuts.reports)
        with without_collections():
            try:
                on_slots = exported.of_views(context)
                rewritten: Copy = (
                    on_slots.of(context, first)
                    if on_slots is not None
                    else passes.rewrite(exported.definition, context, first)
                )
            except RefusedError as error:
                if self._host is not None:
                    self._host.refused(str(error))
                raise
            key, config = (wanted.key, exported.version), wanted.config(self._given)
            maker = None
            if context.slot_map is not None and (context.pack != "off" or context.optimise != "off"):
                maker = RunMaker(exported, context, on_slots, self._user.told, config.graph_options)
            later = not at_once and (quick or context.pack != "on")  # what is in a hurry is not packed at once
            return PlacedSession(
                key, rewritten, wanted.target, config, self._left_behind, quick=quick, maker=maker, later=later,
                often=lambda signature: signature in self._user.each_step(),
            )  # fmt: skip

    def _install(self, fresh: PlacedSession, wanted: Wanted) -> PlacedSession | None:
        """Makes `fresh` the session of the next run; returns the one that may be closed now."""
        with self._building:
            old, self.present, self.made_for = self.present, fresh, wanted
            self._made_version = self._user.known.version if self._user.known is not None else None
            if old is not None and old is not fresh and old.pinned:
                old.end_probe()
                self._kept.append(old)
                old = None
            if old is fresh or (self._better is not None and self._better.placed is old):
                return None  # with the second: `improve` gives it back once nothing is compiled in it any more
            return old

    # -- the agent's threads, while training goes on

    def prepare(self, wanted: Wanted, *, standby: bool = False, hurry: bool = False) -> None:
        """Builds the session for another view and compiles the runs to be expected. Slow; runs nothing.

        `standby`: for a view that may never come; kept until `drop_standby`. It can be used once the runs of every step are
        compiled; the others are by `complete`. `hurry`: training stands still and waits for it, so only those are compiled.
        A standby session serves any view that it fits. Raises GivenUpError when one of its PS dies.
        """
        exported = self._user.exported()
        key = (wanted.key, exported.version)
        found = self._standby.get(key)
        if key in self._prepared or (found is not None and (standby or hurry)):
            return
        began = time.monotonic()
        with self._making(key) as under_way:
            placed = found if found is not None else self._build(wanted, exported, quick=_dear(exported))
            expected = self._user.expected()
            each_step = self._user.each_step()
            wished = each_step if standby or hurry else expected
            # What starts and ends iterators has no session of its own.
            whole = bool(placed.drops) and not (standby or hurry)
            self._compile(placed, wanted, wished, under_way, learns=not hurry, opens=whole)
            if found is None:
                (self._standby if standby else self._prepared)[key] = placed
        log.info(
            "prepared a session of %d operations for %s in %.1f s; %d of %d runs that it may need are compiled",
            len(exported.definition.node), "the loss of a PS" if standby else "another view", time.monotonic() - began,
            sum(map(placed.is_compiled, expected)), len(expected),
        )  # fmt: skip

    def complete(self, wanted: Wanted) -> bool:
        """Compiles one more run in the standby session for this view; False: there is none, or it has them all."""
        key = (wanted.key, self._user.exported().version)
        placed = self._standby.get(key)
        missing = self._missing(placed) if placed is not None else None
        if placed is None or (missing is None and (placed.opened or not placed.drops)):
            return False
        with self._making(key) as under_way:
            if missing is not None:
                self._compile(placed, wanted, [missing], under_way)
            else:
                self._compile(placed, wanted, [], under_way, opens=True)
        return True

    @contextlib.contextmanager
    def _making(self, key: object) -> Iterator[_UnderWay]:
        """Whoever needs the session finds that it is under way. One that could not be finished is nobody's standby session."""
        under_way = self._under_way[key] = _UnderWay()
        try:
            yield under_way
        except BaseException:
            self._standby.pop(key, None)
            raise
        finally:
            self._under_way.pop(key, None)
            under_way.ended.set()

    def improve(self, again: Callable[[], None]) -> list[PlacedSession] | None:
        """One piece of the work on an optimised session, where a step of the present one is not (the last piece exchanges
        them). Its runs are packed before, by `pack_present`; what the optimiser takes once for all views is optimised then.

        Compiling a run takes long then, and no command shall wait for it: `again` is called, by another thread, when the next
        piece can be done. Returns the sessions that nobody needs any more; None: nothing is to be done now.
        """
        with self._building:  # else whoever takes its place in between gives it back as well
            better = self._compiled_better()
            if self._better is not None:
                return None
            placed, wanted, exported = self.present, self.made_for, self._user.known
        unneeded = [better] if better is not None and better is not placed and not better.pinned else []
        if placed is None or wanted is None or exported is None or placed.key != (wanted.key, exported.version):
            return unneeded or None
        if better is placed or (better is not None and better.key != placed.key):
            better = None  # a run of it has been packed, or it is for another view
        if all(map(placed.is_optimised, self._large())):
            return unneeded or None
        if better is None:
            better = self._build(wanted, exported, at_once=True)
        else:
            unneeded = []
        missing = self._missing(better)
        if missing is not None:
            work = Polite(self._compiling(better, [missing]), niceness=IDLE_NICENESS, then=again)
            self._better = _Better(better, wanted, work)
            return unneeded
        with self._building:
            if self.present is not placed:
                return [better]
            log.info("the session that was made without TensorFlow's graph optimiser is exchanged for an optimised one")
            old = self._install(better, wanted)
        return [old] if old is not None else []

    def _large(self) -> list[Signature]:
        """Of the runs of every step those that an optimiser does something for."""
        return [run for run in self._user.each_step() if self._user.facts_of(run).nodes >= OWN_NODES_MIN]

    def pack_present(self, again: Callable[[], None]) -> None:
        """Begins to pack the next run of the present session; when all are, what recurs is optimised for other views.

        That costs less than any other session, and its steps take less time then, those of one that was made in haste half of
        it: so nothing that is prepared beside training comes before it.

        `again` is called, by another thread, when this can be called for the next one.
        """
        with self._building:
            better, placed, wanted = self._better, self.present, self.made_for
            if placed is None or wanted is None or self._is_dead(wanted):
                return
            if better is not None and better.packs and better.placed is placed:
                try:
                    self._compiled_better()
                except Exception:  # standby sessions shall be prepared all the same
                    log.exception("a run is not packed")
        if self._better is None:
            self._pack(placed, wanted, again)

    def _pack(self, placed: PlacedSession, wanted: Wanted, again: Callable[[], None]) -> None:
        run = next(filter(placed.is_to_be_packed, self._user.each_step()), None)
        often = set(self._user.recurring())
        unknown = [one for one in self._user.expected() if one in often and placed.is_to_learn(one)]
        if run is None and not unknown:
            return
        with self._building:
            if self.present is placed:  # another may just have taken its place
                work = (
                    Polite(placed.pack, run, niceness=PACK_NICENESS, then=again)
                    if run is not None
                    else Polite(placed.learn, unknown, then=again)
                )
                self._better = _Better(placed, wanted, work, packs=True)

    def replaced(self) -> list[PlacedSession]:
        """Sessions whose place was taken, or whose view was over, while they were worked on: now they can be closed. One whose
        PS is gone is left behind: what is under way in it may never end."""
        with self._building:
            better = self._better
            if better is not None and better.placed is not self.present and not self._is_for_present(better):
                self._outdated.append(better)
                self._better = None
            done, outdated, self._outdated = [], self._outdated, []
            for one in outdated:
                if one.work.ended:
                    done += [] if one.placed.pinned else [one.placed]
                elif self._is_dead(one.wanted):
                    self._give_up(one.placed)
                else:
                    self._outdated.append(one)
            return done

    def _is_for_present(self, better: _Better) -> bool:
        """Whether it is an optimised session that is to take the place of the present one."""
        return not better.packs and self.present is not None and better.placed.key == self.present.key

    def _is_dead(self, wanted: Wanted) -> bool:
        return self._host is not None and self._host.dead(wanted)

    def _compiled_better(self) -> PlacedSession | None:
        """The optimised session, as far as it has come, unless it is still being compiled, or one of its PS is gone."""
        better = self._better
        if better is None:
            return None
        if not better.work.ended:
            if better.placed is not self.present and self._is_dead(better.wanted):  # else `replaced` gives it up later
                self._better = None
                self._give_up(better.placed)
            return None
        self._better = None
        try:
            better.work.result()
        except Exception:
            self._give_up(better.placed)
            raise
        return better.placed

    def _give_up(self, placed: PlacedSession) -> None:
        """Nothing more comes of what was compiled in it."""
        if placed is not self.present and placed not in self._kept:
            placed.leak()

    def _missing(self, placed: PlacedSession) -> Signature | None:
        expected = (one for one in self._user.expected() if one not in self._uncompilable)
        return next((one for one in expected if not placed.is_compiled(one)), None)

    def _compile(
        self, placed: PlacedSession, wanted: Wanted, signatures: Iterable[Signature], under_way: _UnderWay,
        *, learns: bool = True, opens: bool = False,
    ) -> None:  # fmt: skip
        """Beside training, one after another. When that fails the session is left behind, unless it is in use by now;
        GivenUpError: one of its PS died.

        Args:
          learns: each is optimised before, once for all views, unless the graph is large: that takes longer than to compile it
            for one view without the optimiser, and is done beside training (`pack_present`).
          opens: then the session of the whole graph as well.
        """
        work = self._compiling(placed, signatures, under_way, learns=learns and not placed.quick, opens=opens)
        try:
            politely(work, give_up=lambda: self._is_dead(wanted))
        except Exception:
            if placed is not self.present:
                placed.leak()
            raise

    def _compiling(
        self, placed: PlacedSession, signatures: Iterable[Signature], under_way: _UnderWay | None = None,
        *, learns: bool = False, opens: bool = False,
    ) -> Callable[[], None]:  # fmt: skip
        recurring = self._user.recurring()

        def hurried() -> bool:
            return under_way is not None and under_way.hurried

        def work() -> None:
            for signature in signatures:
                if hurried() and placed.usable:
                    return
                if learns and not hurried():
                    self._learn(placed, signature)
                try:
                    placed.callable(signature)
                except tf.errors.InvalidArgumentError as error:
                    if signature in recurring:
                        raise
                    self._uncompilable.add(signature)
                    log.info("a run that was made once is not prepared: %s", str(error)[:200])
            if opens and not hurried():
                placed.open()

        return work

    def _learn(self, placed: PlacedSession, signature: Signature) -> None:
        try:
            placed.learn([signature])
        except Exception:  # a mistake of ours: it can be compiled all the same
            log.exception("a run is not optimised once for all views")

    def has_standby(self, wanted: Wanted) -> bool:
        key = (wanted.key, self._user.exported().version)
        return key in self._standby or key in self._prepared

    def drop_standby(self, keep: Iterable[Wanted]) -> list[PlacedSession]:
        """Forgets the standby sessions but for these views (and the present graph); to be closed by the caller."""
        with self._building:
            version = self._user.known.version if self._user.known is not None else None
            kept = {(wanted.key, version) for wanted in keep}
            return [self._standby.pop(key) for key in list(self._standby) if key not in kept]

    def _take_prepared(self, key: object) -> PlacedSession | None:
        """The session that stands ready, to be used now: also what is still being compiled in it holds up its runs."""
        if (under_way := self._under_way.get(key)) is not None:
            under_way.hurry()
        found = self._prepared.pop(key, None)
        return found if found is not None else self._standby.pop(key, None)

    def exchange(self, wanted: Wanted) -> list[PlacedSession]:
        """From the next run on, the session that was prepared for `wanted`; if there is none it is built by that run.

        Returns sessions that nobody needs any more; to be closed once no run is under way in them.
        """
        with self._building:
            exported = self._user.known
            fresh = self._take_prepared((wanted.key, exported.version)) if exported is not None else None
            if fresh is None:
                return []
            old = self._install(fresh, wanted)
            return [old] if old is not None else []

    def drop_prepared(self) -> list[PlacedSession]:
        """Forgets what was prepared; to be closed by the caller."""
        with self._building:
            dropped = list(self._prepared.values())
            self._prepared.clear()
            return dropped

    def traceable(self) -> Traceable | None:
        """The costliest recurring run of the present session, and what it takes to compile it once more."""
        with self._building:
            placed, wanted, exported = self.present, self.made_for, self._user.known
            if placed is None or wanted is None or exported is None or placed.key != (wanted.key, exported.version):
                return None
            signature = self._user.costliest()
            if signature is None:
                return None
            context = self._context(wanted)
        config = wanted.config(self._given)
        return Traceable(
            placed, signature, exported.definition, exported.index, context, wanted, config, self._user.told
        )

    # -- the end

    def leave_behind(self) -> None:
        """Forgets all of them without closing any: where there is no time, or no way, to close them. Waits for nobody, not even
        for who is building one."""
        here = [self.present] if self.present is not None else []
        better = [one.placed for one in (self._better, *self._outdated) if one is not None]
        for one in [*self._kept, *list(self._prepared.values()), *list(self._standby.values()), *better, *here]:
            one.leak()

    def drop_iterators(self) -> None:
        """Destroys the named iterators of the present session: one that is still there when it is closed crashes the process
        later. Never blocks for long: where they cannot be destroyed, the sessions are left behind."""
        placed = self.present
        if placed is None or not placed.drops or self._host is None:
            return
        done = threading.Event()

        def work() -> None:
            for drop in placed.drops:
                if placed.closed:
                    return  # left behind meanwhile: there is no session any more
                try:
                    placed.run(Signature((), (), (drop,)), ())
                except (tf.errors.OpError, ExchangedError) as error:
                    log.debug("dropping an iterator: %s", error)
            done.set()

        threading.Thread(target=work, name="deeprec-drop", daemon=True).start()
        began = time.monotonic()
        while not done.wait(min(DROP_SECONDS, 0.5)):
            waited = time.monotonic() - began
            if waited >= DROP_PATIENCE_SECONDS or (waited >= DROP_SECONDS and self._hopeless()):
                for one in [*self._kept, placed]:
                    one.leak()
                return

    def _hopeless(self) -> bool:
        """Whether the present session names a PS that is gone."""
        return self._host is None or self.made_for is None or self._host.dead(self.made_for)

    def close(self) -> None:
        """All of them; no run may begin any more."""
        placed = self.present
        if placed is not None and placed.pinned:
            self._kept.append(placed)
            placed = None
        better, self._better = self._better, None
        if better is not None and better.packs and not self._hopeless():
            better.work.wait(DROP_SECONDS)
        rest = [placed] if placed is not None else []
        for outdated in self._outdated:
            if outdated.work.ended and not outdated.placed.pinned:
                rest.insert(0, outdated.placed)
            else:
                outdated.placed.leak()
        if better is not None and not better.work.ended:
            better.placed.leak()
        elif better is not None and better.placed not in self._kept:
            rest.insert(0, better.placed)
        for one in [*self.drop_prepared(), *self.drop_standby(()), *rest]:
            one.close()
        # An iterator holds the devices of the session that started it, and the kernels of every session hold the iterator:
        # that session goes last. Of two such sessions (one started the input again) neither can, or the process crashes.
        # Nor can one in which TensorFlow is still ending an iterator.
        stay = self._left_behind.is_set() or len(self._kept) > 1 or not all(one.wait_idle(0) for one in self._kept)
        for one in self._kept:
            if stay:
                one.leak()
            else:
                one.close()
        self._kept.clear()


def _dear(exported: Exported) -> bool:
    return len(exported.definition.node) >= DEAR_NODES


def _local_config(base: v1.ConfigProto | None) -> v1.ConfigProto:
    return base if base is not None else v1.ConfigProto()


_ON_THE_SPOT = Wanted(None, passes.Context(slot_map=None, tracked={}), _local_config, "")
