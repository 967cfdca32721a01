"""From what agents say to the store that was lost: the pure part."""

from __future__ import annotations

import dataclasses
from typing import Any

from deeprec_ext.aimaster.core.records import Scaling, parse_name
from deeprec_ext.aimaster.job import replicated
from deeprec_ext.aimaster.job.replicated import Kept
from deeprec_ext.aimaster.ledger.replica import REPLICA, pack_replica
from deeprec_ext.aimaster.pods.backend import PodState
from deeprec_ext.aimaster.rebuilding.claims import Claim, still_missing
from deeprec_ext.aimaster.rebuilding.state import RebuiltState, rebuilt_state
from deeprec_ext.aimaster.rebuilding.unfinished import unfinished
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.proto import deeprec_ext_pb2 as pb

WORKERS = ("chief-0", "worker-0")
SLOTS = 4


def view(epoch: int, slot_map: list[int], workers: tuple[str, ...] = WORKERS, **fields: Any) -> pb.View:
    """PS `ps-<task>`; everybody's incarnation is `<name>#1`."""
    ps = [
        pb.PsMember(task=task, name=f"ps-{task}", address=f"host:{task}", incarnation=f"ps-{task}#1")
        for task in sorted(set(slot_map))
    ]
    members = [pb.WorkerMember(name=name, incarnation=f"{name}#1") for name in workers]
    return pb.View(epoch=epoch, ps=ps, slot_map=slot_map, workers=members, **{"live": True, "generation": 1, **fields})


def claim(
    name: str, one: pb.View | None, *, incarnation: str = "", destroyed: tuple[int, ...] = (), **known: Any
) -> Claim:
    """`destroyed`: slots of its own that the PS was told to destroy."""
    role, index = parse_name(name)
    task = index if role == pb.PS and one is not None else -1
    request = pb.RegisterRequest(
        role=role, index=index, incarnation=incarnation or f"{name}#1", known_task=task, address=f"{name}:1", pid=9,
        known_epoch=one.epoch if one is not None else 0, known_aimaster=3 if one is not None else 0,
    )  # fmt: skip
    if one is not None:
        highest = {"highest_epoch": one.epoch, "highest_task": max(one.slot_map), "served": True}
        request.known.CopyFrom(pb.Known(view=one, **{**highest, **known}))
        owned = [slot for slot, owner in enumerate(one.slot_map) if owner == task]
        request.resident_slots.extend(slot for slot in owned if slot not in destroyed)
    return Claim(name, request)


def pods(*names: str, **states: str) -> dict[str, PodState]:
    found = {name: PodState(name, "running", pid=1000 + number) for number, name in enumerate(names)}
    for name, state in states.items():
        name = name.replace("_", "-")
        found[name] = PodState(name, state.split()[0], exit_code=137, restarting="restarting" in state)
    return found


ALL = ("ps-0", "ps-1", *WORKERS)


def everybody(one: pb.View, *names: str, **known: Any) -> list[Claim]:
    return [claim(name, one, **known) for name in names or ALL]


def found(claims: list[Claim], running: dict[str, PodState] | None = None) -> RebuiltState:
    result = rebuilt_state(claims, running or pods(*ALL))
    assert result is not None
    return result


# ------------------------------------------------------------------------------------------------------------ complete


def test_when_all_have_come_back_the_store_is_what_it_was() -> None:
    now = view(7, [0, 1, 0, 1])
    result = found(everybody(now, step=55, highest_epoch=9, highest_task=4))
    cluster = result.cluster
    assert (cluster.epoch, cluster.generation, cluster.live, cluster.slot_map) == (7, 1, True, (0, 1, 0, 1))
    assert (cluster.next_epoch, cluster.next_task) == (10, 5), "numbers that anybody has heard of are not used again"
    assert [(ps.name, ps.task, ps.address) for ps in cluster.ps] == [("ps-0", 0, "host:0"), ("ps-1", 1, "host:1")]
    roles = {record.name: record for record in result.roles}
    assert {record.state for record in roles.values()} == {"running"} and all(
        record.wanted for record in roles.values()
    )
    assert roles["ps-1"].incarnation == "ps-1#1" and roles["ps-1"].task == 1 and roles["worker-0"].pod_pid == 1003
    assert result.aimaster == 3 and result.step == 55 and not result.missing and not result.scalings


def test_a_job_in_which_nobody_has_taken_part_is_new() -> None:
    assert rebuilt_state([claim("ps-0", None), claim("ps-1", None)], pods(*ALL)) is None
    assert rebuilt_state([], pods(*ALL)) is None


def test_of_two_epochs_the_newer_one_counts() -> None:
    old, new = view(7, [0, 1, 0, 1]), view(8, [0, 0, 0, 0], generation=2)
    result = found([claim("ps-0", old), claim("chief-0", old), claim("worker-0", new)])
    assert result.cluster.epoch == 8 and result.cluster.slot_map == (0, 0, 0, 0) and result.cluster.generation == 2


def test_a_model_that_the_chief_has_called_live_is_live_though_no_view_says_so() -> None:
    dead = view(2, [0, 1, 0, 1], live=False)
    assert not found(everybody(dead)).cluster.live
    claims = [*everybody(dead, "ps-0", "ps-1", "worker-0"), claim("chief-0", dead, live_generation=1)]
    assert found(claims).cluster.live
    before = view(9, [0, 1, 0, 1], live=False, generation=2)
    claims = [*everybody(before, "ps-0", "ps-1", "worker-0"), claim("chief-0", before, live_generation=1)]
    assert not found(claims).cluster.live, "of the generation that was lost"


# ------------------------------------------------------------------------------------------------------------- missing


def test_who_is_in_the_view_and_runs_is_waited_for() -> None:
    now = view(7, [0, 1, 0, 1])
    assert still_missing([claim("worker-0", now)], pods(*ALL)) == ["chief-0", "ps-0", "ps-1"]
    assert still_missing(
        [claim("worker-0", now)], pods("worker-0", "chief-0", ps_1="exited", ps_0="exited restarting")
    ) == ["chief-0"]
    assert (
        still_missing(
            [*everybody(now, "chief-0", "worker-0", "ps-0"), claim("ps-1", None, incarnation="other")], pods(*ALL)
        )
        == []
    )


def test_while_nobody_knows_a_view_running_ps_are_waited_for() -> None:
    assert still_missing([claim("worker-0", None)], pods(*ALL)) == ["ps-0", "ps-1"]
    assert still_missing([claim("ps-0", None), claim("ps-1", None)], pods(*ALL)) == []


def test_while_a_scaling_is_under_way_new_ps_are_waited_for() -> None:
    now, running = view(7, [0, 1, 0, 1]), pods(*ALL, "ps-2")
    assert still_missing(everybody(now), running) == []
    assert still_missing([*everybody(now, "ps-0", "ps-1", "chief-0"), claim("worker-0", now, scaling=3)], running) == [
        "ps-2"
    ]


def test_a_ps_that_does_not_come_stays_in_the_view_and_is_named() -> None:
    result = found(everybody(view(7, [0, 1, 0, 1]), "ps-0", *WORKERS))
    assert result.missing == ("ps-1",)
    record = next(record for record in result.roles if record.name == "ps-1")
    assert (record.state, record.incarnation, record.task) == ("running", "ps-1#1", 1), "so that its death is noticed"


def test_another_incarnation_is_recognised_as_one_by_its_registration() -> None:
    result = found([*everybody(view(7, [0, 1, 0, 1]), "ps-0", *WORKERS), claim("ps-1", None, incarnation="ps-1#2")])
    record = next(record for record in result.roles if record.name == "ps-1")
    assert record.incarnation == "ps-1#1" and not result.missing and not result.fenced


def test_who_was_replaced_while_its_successor_is_there_is_fenced() -> None:
    now = view(7, [0, 1, 0, 1])
    zombie = claim("ps-1", view(3, [0, 1, 0, 1]), incarnation="ps-1#0")
    assert found([*everybody(now), zombie]).fenced == {"ps-1#0": "ps-1"}
    assert not found([*everybody(now, "ps-0", *WORKERS), zombie]).fenced


def test_new_processes_are_wanted_and_drained_ones_are_not() -> None:
    now = view(7, [0, 1, 0, 1])
    claims = [
        *everybody(now), claim("ps-2", now, served=False), claim("ps-3", view(6, [0, 1, 0, 3])),
        claim("worker-1", now, leaving=True), claim("worker-2", None),
    ]  # fmt: skip
    result = found(claims, pods(*ALL, "worker-7", ps_9="exited"))
    roles = {record.name: record for record in result.roles}
    assert {name for name, record in roles.items() if not record.wanted} == {"ps-3", "worker-1"}
    assert {name for name, record in roles.items() if record.state == "starting"} == {"ps-2", "worker-2", "worker-7"}
    assert "ps-9" not in roles
    assert {(scaling.role, scaling.state, scaling.drained) for scaling in result.scalings} == {
        ("ps", "RELEASE", ("ps-3",)), ("worker", "RELEASE", ("worker-1",)),
    }  # fmt: skip


def test_a_worker_that_no_view_has_yet_stays_unless_its_scaling_had_been_decided(tmp_path) -> None:
    """The AIMaster was lost again before all had registered with it."""
    now = view(7, [0, 1, 0, 1])
    claims = [*everybody(now), claim("worker-1", now)]
    result = found(claims, pods(*ALL, "worker-1"))
    assert all(record.wanted for record in result.roles) and not result.scalings
    decided = Scaling(4, "scale-down", "worker", state="RELEASE", drained=("worker-1",), epoch=7)
    store = Store(tmp_path / "a.db")
    store.save_scaling(decided)
    remembered = [pb.Remember(key=replicated.JOB, number=9, value=replicated.pack(store))]
    store.close()
    result = found([*claims[1:], claim("ps-0", now, remembered=remembered)], pods(*ALL, "worker-1"))
    assert [record.name for record in result.roles if not record.wanted] == ["worker-1"]


def test_a_chief_that_is_ending_is_not_drained() -> None:
    now, before = view(7, [0, 1, 0, 1], ("worker-0",)), view(6, [0, 1, 0, 1])
    result = found([*everybody(now, "ps-0", "ps-1", "worker-0"), claim("chief-0", before)])
    assert not result.scalings and all(record.wanted for record in result.roles)


def test_a_chief_that_is_gone_altogether_is_asked_for_again() -> None:
    result = found(
        everybody(view(7, [0, 1, 0, 1], ("worker-0",)), "ps-0", "ps-1", "worker-0"), pods("ps-0", "ps-1", "worker-0")
    )
    chief = next(record for record in result.roles if record.name == "chief-0")
    assert chief.state == "requested" and chief.wanted


# --------------------------------------------------------------------------------------------------------------- marks


def test_tables_count_as_marked_when_every_trainer_marks_all_or_the_view_says_so() -> None:
    now, some = view(7, [0, 1, 0, 1]), everybody(view(7, [0, 1, 0, 1]), "ps-0", "ps-1")
    one, other = claim("chief-0", now, marked_slots=range(SLOTS)), claim("worker-0", now, marked_slots=[1])
    assert found([*some, one, claim("worker-0", now, marked_slots=range(SLOTS))]).cluster.marked == (0, 1, 2, 3)
    assert found([*some, one, other]).cluster.marked == ()
    said = view(7, [0, 1, 0, 1], marked_slots=range(SLOTS))
    result = found(everybody(said))
    assert result.cluster.marked == (0, 1, 2, 3) and result.marks == "", "but one is not sure of it"


# ----------------------------------------------------------------------------------------------------- a half-done scaling


def moves(*slots: int, source: int) -> list[pb.Move]:
    return [pb.Move(variable=pb.Variable(name=f"v{slot}", slot=slot), source_task=source) for slot in slots]


def scale_up(new: pb.View, old: pb.View, *, first: bool = False, **of: Any) -> list[Claim]:
    """2 → 3 PS: slot 1 moves from ps-1 to ps-2. `first`: only the chief has the new view. `of`: what ps-1 says."""
    target = claim("ps-2", old, served=False, scaling=5, moves=moves(1, source=1))
    return [
        claim("chief-0", new if first else old, scaling=5, prepared=None if first else new),
        claim("worker-0", old, scaling=5, prepared=new), claim("ps-0", old), claim("ps-1", old, **of), target,
    ]  # fmt: skip


OLD, NEW = view(7, [0, 1, 0, 1]), view(9, [0, 2, 0, 1])


def test_a_scaling_that_was_not_decided_is_rolled_back() -> None:
    result = found(scale_up(NEW, OLD))
    [scaling] = result.scalings
    assert result.cluster.slot_map == (0, 1, 0, 1) and result.cluster.epoch == 7
    assert (scaling.id, scaling.state, scaling.outcome, scaling.added) == (5, "PAUSE", "", ("ps-2",))
    assert (scaling.old_map, scaling.new_map, scaling.armed, scaling.marked) == ((0, 1, 0, 1), (0, 2, 0, 1), True, True)
    assert [variable.name for variable in result.moved[5].variables] == ["v1"]


def test_a_scaling_whose_view_is_known_to_anybody_goes_forward() -> None:
    result = found(scale_up(NEW, OLD, first=True))
    [scaling] = result.scalings
    assert result.cluster.slot_map == (0, 2, 0, 1) and result.cluster.epoch == 9
    assert (scaling.state, scaling.epoch, scaling.old_map) == ("COMMIT", 9, (0, 1, 0, 1))
    assert [ps.name for ps in scaling.targets] == ["ps-0", "ps-1", "ps-2"]
    target = next(record for record in result.roles if record.name == "ps-2")
    assert (target.state, target.task, target.incarnation) == ("running", 2, "ps-2#1")


def test_a_scaling_of_which_an_owner_was_told_to_destroy_goes_forward() -> None:
    result = found(scale_up(NEW, OLD, destroyed=(1,)))
    [scaling] = result.scalings
    assert result.cluster.slot_map == (0, 2, 0, 1) and result.cluster.epoch == 9 and scaling.state == "COMMIT"
    assert result.cluster.next_epoch > 9 and result.cluster.by_name("ps-2") is not None and not result.missing


def test_without_a_trainer_that_has_prepared_the_decided_view_is_made_from_what_the_targets_know() -> None:
    claims = [claim("chief-0", OLD, scaling=5), *scale_up(NEW, OLD, destroyed=(1,))[2:]]
    result = found(claims)
    assert result.cluster.slot_map == (0, 2, 0, 1) and result.cluster.epoch > 7
    assert result.cluster.by_name("ps-2") is not None


def test_an_owner_that_has_destroyed_its_slots_for_targets_that_are_gone_counts_as_lost() -> None:
    result = found(scale_up(NEW, OLD, destroyed=(1,))[:-1])
    assert result.missing == ("ps-1",) and result.cluster.slot_map == (0, 1, 0, 1)


def test_a_scaling_whose_end_everybody_has_heard_is_over() -> None:
    claims = [claim("chief-0", NEW), claim("worker-0", NEW), claim("ps-0", NEW), claim("ps-1", NEW)]
    result = found([*claims, claim("ps-2", NEW, scaling=5, moves=moves(1, source=1))])
    assert not result.scalings and result.cluster.slot_map == (0, 2, 0, 1)


KEPT = Scaling(
    5, "replace", "ps", replace="ps-1", asked_reason="slow", from_count=2, to_count=2, state="PREPARE", detail="",
    added=("ps-2",), drained=("ps-1",), old_map=(0, 1, 0, 1), new_map=(0, 2, 0, 2), epoch=9,
)  # fmt: skip


def driven(kept: Scaling, claims: list[Claim]) -> Scaling:
    newest = rebuilt_state(claims, pods(*ALL))
    assert newest is not None
    result = unfinished(claims, newest.cluster, [kept], pb.Catalogue(), 5, 0.0)
    return next(scaling for scaling in result.scalings if scaling.id == kept.id)


def test_the_history_says_what_was_asked_and_the_agents_how_far_it_came() -> None:
    scaling = driven(KEPT, scale_up(NEW, OLD, first=True))
    assert (scaling.kind, scaling.replace, scaling.asked_reason, scaling.drained) == (
        "replace",
        "ps-1",
        "slow",
        ("ps-1",),
    )
    assert scaling.state == "COMMIT"


def test_the_history_may_be_a_moment_old() -> None:
    committed = everybody(view(9, [0, 2, 0, 2]), "ps-0", "ps-2", *WORKERS)
    assert driven(KEPT, committed).state == "RELEASE", "its view is in use"
    asked = dataclasses.replace(KEPT, state="ACQUIRE", old_map=(), new_map=(), epoch=0)
    assert driven(asked, committed).state == "RELEASE", "who was added is there, who was drained is not"
    rolled_back = everybody(OLD)
    assert driven(KEPT, rolled_back).state == "PAUSE", "taken back once more: that does no harm"
    begun = [*everybody(OLD, "ps-0", "ps-1", "chief-0"), claim("worker-0", OLD, scaling=5)]
    assert driven(asked, begun) == asked, "nobody has copied anything: it is resumed"
    workers = dataclasses.replace(asked, role="worker", added=("worker-1",), drained=())
    assert driven(workers, begun) == workers
    assert driven(workers, rolled_back).outcome == "rolled_back"
    assert driven(dataclasses.replace(workers, state="RELEASE"), rolled_back).state == "RELEASE"


def test_a_rollback_never_takes_away_a_member_of_the_view() -> None:
    assert driven(dataclasses.replace(KEPT, added=("ps-0", "ps-2"), drained=()), everybody(OLD)).added == ("ps-2",)


def test_scalings_that_wait_and_those_that_ended_stay_as_they_are() -> None:
    queued, ended = (
        dataclasses.replace(KEPT, state="STEADY"),
        dataclasses.replace(KEPT, state="STEADY", outcome="committed"),
    )
    for scaling in (queued, ended):
        assert driven(scaling, everybody(OLD)) == scaling


# ------------------------------------------------------------------------------------------------------- what PS remember


def test_history_and_ledger_come_from_the_newest_value_of_any_ps(tmp_path: Any) -> None:
    store = Store(tmp_path / "aimaster.db")
    store.put(started=123.5, metrics={"auc": 0.8}, scalings=4, cluster="not told", marks="v1")
    store.save_totals([("gone", 500)])
    new, old = replicated.pack(store), b"damaged"
    store.close()
    memo = pack_replica({}, {}, 40)
    now, known = view(7, [0, 1, 0, 1]), pb.DataKnown(dataset="train", highest_lease=60)
    result = found([
        claim("ps-0", now, remembered=[pb.Remember(key=replicated.JOB, number=1, value=old)]),
        claim("ps-1", now, remembered=[pb.Remember(key=replicated.JOB, number=2, value=new),
                                       pb.Remember(key=REPLICA, number=1, value=memo)]),
        claim("chief-0", now, marked_slots=range(SLOTS)), claim("worker-0", now, data=[known], marked_slots=range(SLOTS)),
    ])  # fmt: skip
    assert result.kept.meta["started"] == 123.5 and "cluster" not in result.kept.meta
    assert result.kept.examples == {"gone": 500} and result.marks == "v1" and result.last_lease == 60
    assert set(result.datasets["train"].told) == {"worker-0#1"}


def test_without_any_history_the_rest_is_rebuilt_all_the_same() -> None:
    result = found(
        everybody(view(7, [0, 1, 0, 1]), remembered=[pb.Remember(key=replicated.JOB, number=1, value=b"torn")])
    )
    assert result.kept == Kept() and result.cluster.epoch == 7


def variables(*names: str, **more: Any) -> pb.Catalogue:
    made = [pb.Variable(name=name, slot=1, update=pb.Variable.DENSE, bytes=4, shape=[1], **more) for name in names]
    return pb.Catalogue(variables=made, fingerprint=",".join(names))


def test_variables_of_a_trainer_that_is_gone_are_known_to_the_ps_and_those_of_the_others_are_added() -> None:
    now = view(7, [0, 1, 0, 1])
    kept = variables("chief's", "shared", generation=1, declared_by="chief-0")
    remembered = [pb.Remember(key=replicated.CATALOGUE, number=1, value=kept.SerializeToString())]
    result = found([
        claim("ps-0", now, remembered=remembered), claim("ps-1", now),
        claim("worker-0", now, catalogue=variables("shared", "worker's")),
    ])  # fmt: skip
    assert [one.name for one in result.catalogue.variables] == ["chief's", "shared", "worker's"]


def test_without_what_ps_keep_all_that_trainers_tell_is_merged_and_what_differs_is_the_chiefs() -> None:
    now = view(7, [0, 1, 0, 1])
    other = variables("shared")
    other.variables[0].slot = 2
    result = found([
        claim("ps-0", now, remembered=[pb.Remember(key=replicated.CATALOGUE, number=1, value=b"\xff torn")]),
        claim("ps-1", now),
        claim("chief-0", now, catalogue=variables("chief's", "shared")),
        claim("worker-0", now, catalogue=other),
        claim("worker-1", now, catalogue=variables("shared", "worker's")),
    ], pods(*ALL, "worker-1"))  # fmt: skip
    assert {one.name: one.slot for one in result.catalogue.variables} == {"chief's": 1, "shared": 1, "worker's": 1}
