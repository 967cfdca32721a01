"""Giving variables away with what was compiled while training went on; and without, where that does not fit any more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.elastic.ps import parameter_server
from deeprec_ext.elastic.ps.collector import make_bitmaps
from deeprec_ext.elastic.ps.copies import Parting, backup_of
from deeprec_ext.elastic.ps.parameter_server import ParameterServer
from deeprec_ext.elastic.ps.variables import Facts, Located, bitmap_of, local_program, present
from deeprec_ext.elastic.runtime.ops import Ops, Program
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from tests.unit.elastic.cluster import LocalCluster

FLOAT = tf.float32.as_datatype_enum
TABLE = pb.Variable(
    name="table", dtype=FLOAT, shape=[8, 2], slot=1, update=pb.Variable.ROWS, bitmap="table@dirty", bytes=64
)
DENSE = pb.Variable(name="w", dtype=FLOAT, shape=[4], slot=1, update=pb.Variable.DENSE, bytes=16)
LATE = pb.Variable(name="late", dtype=FLOAT, shape=[2], slot=1, update=pb.Variable.DENSE, bytes=8)
VARIABLES = (TABLE, DENSE)


class Here:
    """A PS with these variables."""

    def __init__(self, target: str) -> None:
        self.target = target
        for variable in VARIABLES:
            self.write(variable)
        make_bitmaps(target, 0, VARIABLES)

    def write(self, variable: pb.Variable) -> None:
        program, ops = local_program(self.target, 0), Ops()
        one = Located(ops, Facts.from_proto(variable), 0)
        value = np.arange(np.prod(variable.shape), dtype=np.float32).reshape(variable.shape)
        program.run(ops, [one.assign(ops.constant(value, tf.float32, one.device))])
        program.close()

    def has(self, *facts: Facts) -> list[bool]:
        program = local_program(self.target, 0)
        try:
            return present(program, [(one, 0) for one in facts])
        finally:
            program.close()

    def state(self) -> tuple[list[bool], list[bool], bool]:
        """Which variables there are, which backups, and whether there is the bitmap."""
        facts = [Facts.from_proto(one) for one in VARIABLES]
        return self.has(*facts), self.has(*map(backup_of, facts)), self.has(bitmap_of(facts[0]))[0]


THERE, KEPT, GONE = ([True] * 2, [False] * 2, True), ([False] * 2, [True] * 2, False), ([False] * 2, [False] * 2, False)


@pytest.fixture(scope="module")
def cluster() -> LocalCluster:
    return LocalCluster(1)


@pytest.fixture
def here(cluster: LocalCluster) -> Iterator[Here]:
    it = Here("grpc://" + cluster.ps[0])
    yield it
    program, ops = local_program(it.target, 0), Ops()
    facts = [Facts.from_proto(one) for one in (*VARIABLES, LATE)]
    rest = [Located(ops, one, 0).destroy() for one in (*facts, *map(backup_of, facts), bitmap_of(facts[0]))]
    program.run(ops, rest)
    program.close()


@contextlib.contextmanager
def made(here: Here, *variables: pb.Variable, keep: bool) -> Iterator[Parting]:
    with contextlib.closing(Parting(here.target, 0, variables, keep)) as parting:
        yield parting


def test_it_becomes_backups_and_no_bitmaps_are_left(here: Here) -> None:
    with made(here, *VARIABLES, keep=True) as parting:
        assert here.state() == THERE, "nothing is done in advance"
        assert parting.keep(VARIABLES[::-1]) == frozenset()
        assert here.state() == KEPT
        assert parting.keep(VARIABLES) is None and here.state() == KEPT, "said again"


def test_it_is_destroyed(here: Here) -> None:
    with made(here, *VARIABLES, keep=False) as parting:
        assert parting.keep(VARIABLES) is None and here.state() == THERE, "it was not compiled to keep them"
        assert parting.destroy(VARIABLES)
        assert here.state() == GONE


def test_what_was_compiled_to_be_kept_does_not_destroy(here: Here) -> None:
    with made(here, *VARIABLES, keep=True) as parting:
        assert not parting.destroy(VARIABLES) and here.state() == THERE


def test_who_was_never_initialised_is_named(here: Here) -> None:
    with made(here, *VARIABLES, LATE, keep=True) as parting:
        assert parting.keep((*VARIABLES, LATE)) == {"late"} and here.state() == KEPT


def test_of_what_nobody_has_initialised_nothing_is_kept(here: Here) -> None:
    with made(here, LATE, keep=True) as parting:
        assert parting.keep([LATE]) == {"late"}


@pytest.mark.parametrize("variables", [VARIABLES[:1], (*VARIABLES, LATE), ()])
def test_others_than_were_compiled_are_left_to_who_asks(here: Here, variables: tuple[pb.Variable, ...]) -> None:
    with made(here, *VARIABLES, keep=True) as parting:
        assert parting.keep(variables) is None and here.state() == THERE


def test_a_variable_of_another_shape_is_another(here: Here) -> None:
    other = pb.Variable()
    other.MergeFrom(DENSE)
    other.shape[0] = 5
    with made(here, *VARIABLES, keep=True) as parting:
        assert parting.keep((TABLE, other)) is None and here.state() == THERE


def test_what_was_initialised_since_is_not_lost(here: Here) -> None:
    with made(here, *VARIABLES, LATE, keep=True) as parting:
        here.write(LATE)
        assert parting.keep((*VARIABLES, LATE)) is None and here.state() == THERE


def test_one_that_cannot_be_compiled_leaves_no_session(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    monkeypatch.setattr(Parting, "_looked", lambda _: 1 / 0)
    monkeypatch.setattr(Program, "close", lambda one: closed.append(one))
    with pytest.raises(ZeroDivisionError):
        Parting(here.target, 0, VARIABLES, keep=True)
    assert len(closed) == 1


class Told:
    """A PS with the variables, and what is destroyed there that was not compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slow: list[list[str]] = []
        monkeypatch.setenv("DEEPREC_EXT_ROLE", "ps-0")
        monkeypatch.setattr(parameter_server, "destroy", lambda *given: self.slow.append([v.name for v in given[-1]]))
        self.ps = ParameterServer()
        self.ps._task = 0
        self.here = Here(self.ps._target)

    def obey(self, number: int = 1, **command: Any) -> None:
        self.ps._table[next(iter(command))](pb.Command(id=number, **command))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    it = Told(monkeypatch)
    yield it
    it.ps.stop()


def test_a_ps_that_was_told_in_advance_parts_at_once(told: Told) -> None:
    told.obey(compile=pb.Compile(variables=VARIABLES))
    assert told.here.state() == THERE
    told.obey(destroy=pb.Destroy(variables=VARIABLES))
    assert told.here.state() == GONE and not told.slow and told.ps._parting is None
    told.obey(destroy=pb.Destroy(variables=VARIABLES))  # said again
    assert told.slow == [["table", "w"]]


def test_a_ps_that_was_told_of_other_variables_or_otherwise_compiles_then(told: Told) -> None:
    told.obey(compile=pb.Compile(variables=VARIABLES))
    told.obey(destroy=pb.Destroy(variables=VARIABLES[:1]))
    assert told.slow.pop() == ["table"] and told.ps._parting is None
    told.obey(compile=pb.Compile(variables=VARIABLES, keep=True))
    told.obey(destroy=pb.Destroy(variables=VARIABLES))
    assert told.slow.pop() == ["table", "w"] and told.here.state() == THERE
    told.obey(compile=pb.Compile(variables=VARIABLES))
    told.obey(compile=pb.Compile())  # the change was rolled back
    assert told.ps._parting is None
    reference = pb.Variable(reference=True)
    reference.MergeFrom(DENSE)
    told.obey(compile=pb.Compile(variables=[reference]))
    assert told.ps._parting is None, "of these it is not known so simply whether they are there"


def test_what_is_not_wanted_any_more_is_not_waited_for(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow(Parting):
        def __init__(self, *given: Any) -> None:
            began.set()
            may.wait(30)
            super().__init__(*given)

        def close(self) -> None:
            super().close()
            closed.set()

    monkeypatch.setattr(parameter_server, "Parting", Slow)
    work = threading.Thread(
        target=told.obey, args=(1,), kwargs={"compile": pb.Compile(variables=VARIABLES)}, daemon=True
    )
    work.start()
    assert began.wait(30)
    told.ps.receive(pb.MasterMessage(command=pb.Command(id=2, destroy=pb.Destroy(variables=VARIABLES))))
    work.join(30)
    assert not work.is_alive() and told.ps._parting is None
    may.set()
    assert closed.wait(30) and told.here.state() == THERE
