"""The message that every open page gets each second."""

from __future__ import annotations

import json
import math
import random

from deeprec_ext.aimaster.core.records import Scaling
from deeprec_ext.aimaster.dashboard.picture import ROLES_MAX, left_seconds, number, picture, ranges
from deeprec_ext.proto import deeprec_ext_pb2 as pb

LIMITS = {"ps": (1, 4), "workers": (0, 16)}


def status(ps: int = 2, trainers: int = 3, slots: int = 8) -> pb.StatusReply:
    """Everything is measured, and no value is like another."""
    chance = random.Random(1)
    reply = pb.StatusReply(
        job="demo", state="training", epoch=4, step=1000, last_step=3000, steps_per_second=100, examples_per_second=51234.5,
        seconds=60, slots=slots, slot_map=[10 * (slot % ps) for slot in range(slots)], live=True,
    )  # fmt: skip
    process = {"cpu_cores", "rss_bytes", "working_set_bytes", "memory_limit_bytes", "cpu_limit_cores",
               "received_bytes_per_second", "sent_bytes_per_second"}  # fmt: skip

    def fill(values, names) -> None:
        for name in sorted(names):
            values[name] = chance.random() * (1e9 if "bytes" in name else 3.0)

    for index in range(ps):
        role = reply.roles.add(
            name=f"ps-{index}", role=pb.PS, state="running", task=10 * index, bytes=chance.randrange(10**9)
        )
        role.slots.extend(slot for slot in range(slots) if slot % ps == index)
        role.heartbeat.rss_bytes = chance.randrange(10**9)
        fill(role.gazer, {*process, "busy_share", "rpc_share", "rpc_bytes_per_second"})
    for index in range(trainers):
        name = f"worker-{index - 1}" if index else "chief-0"
        role = reply.roles.add(name=name, role=pb.WORKER if index else pb.CHIEF, state="running", task=-1)
        role.heartbeat.CopyFrom(pb.Heartbeat(step=1000 + index, rss_bytes=chance.randrange(10**9)))
        fill(role.gazer, {*process, "step_seconds", "step_p95_seconds", "gate_wait_share", "input_wait_share",
                          "examples_per_second"})  # fmt: skip
    for slot in range(slots):
        one = reply.slot_load.add(slot=slot, task=reply.slot_map[slot], bytes=chance.randrange(10**8))
        fill(one.gazer, {"lookup_share", "update_share", "lookup_rows_per_second", "update_rows_per_second"})
    return reply


def message(reply: pb.StatusReply, **changes) -> dict:
    return picture(reply, now=1e9, limits=LIMITS, **changes)


def test_both_bounds_of_what_was_repeated_are_there():
    reply = status()
    reply.data.add(name="train", trained=900, repeated=23_503, repeated_at_least=1_024)
    [data] = message(reply)["data"]
    assert (data["repeated_at_least"], data["repeated"]) == (1_024, 23_503)


def test_it_says_what_the_job_does():
    found = message(status())
    assert found["job"]["state"] == "training" and found["job"]["step"] == 1000
    assert found["job"]["left"] == 20 and found["job"]["by"] == "steps"
    assert found["ps"]["names"] == "ps-0:1" and found["ps"]["count"] == 2
    assert found["trainers"]["names"] == "chief-0 worker-0:1"
    assert found["trainers"]["state"] == "running", "a column of equal values is that value"
    assert len(found["trainers"]["step_seconds"]) == 3
    assert found["slots"]["owner"] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert len(found["slots"]["lookup"]) == 8
    assert found["limits"] == {"ps": [1, 4], "workers": [0, 16]}
    assert found["scaling"] is None and found["moving"] == []


def test_of_a_job_of_which_nothing_is_known_there_is_a_picture_too():
    found = message(pb.StatusReply(job="demo", state="starting", slots=8))
    assert found["job"]["left"] is None
    assert found["ps"]["count"] == 0 and found["ps"]["names"] == "" and found["ps"]["busy"] == []
    assert found["slots"]["count"] == 0
    assert found["backup"] is None and found["data"] == []
    json.dumps(found, allow_nan=False)


def test_before_gazer_has_a_value_the_heartbeat_speaks():
    reply = pb.StatusReply()
    beat = pb.Heartbeat(step_seconds=0.25, examples_per_second=512, rss_bytes=2_000_000)
    reply.roles.add(name="chief-0", role=pb.CHIEF, state="running", heartbeat=beat, cpu_percent=80)
    trainers = message(reply)["trainers"]
    assert (trainers["step_seconds"], trainers["examples_rate"]) == (0.25, 512)
    assert (trainers["cpu"], trainers["memory"]) == (0.8, 2000)


def test_of_a_shared_container_the_memory_of_the_process_counts():
    reply = status(1, 1)
    reply.roles[0].gazer["working_set_bytes"] = 7e6
    reply.roles[0].heartbeat.rss_bytes = 3_000_000
    assert message(reply)["ps"]["memory"] == 7000
    reply.roles[0].process.shared_limits = True
    assert message(reply)["ps"]["memory"] == 3000
    assert message(reply)["ps"]["shared"] == 1


def test_the_scaling_under_way_and_the_slots_that_move():
    running = Scaling(3, "scale-up", "ps", state="PREPARE", detail="first copy", from_count=1, to_count=2,
                      old_map=(0, 0, 0, 0), new_map=(0, 1, 0, 1), started=1e9)  # fmt: skip
    found = message(status(), running=running, queued=2)
    assert found["moving"] == [1, 3]
    assert (found["scaling"]["state"], found["scaling"]["detail"], found["queued"]) == ("PREPARE", "first copy", 2)
    assert message(status(), running=Scaling(1, "scale-up", "worker"))["moving"] == []


def test_a_job_without_ps_has_a_ring():
    assert message(status())["ring"] is None
    ring = pb.RingStatus(
        members=["chief-0", "worker-0"], seconds=2.0, coming=[pb.RingRole(name="worker-1", why="it starts")]
    )
    found = message(pb.StatusReply(ring=ring))
    assert found["ring"] == {
        "members": ["chief-0", "worker-0"], "count": 2, "seconds": 2, "waits": [], "coming": [["worker-1", "it starts"]],
        "leaving": [], "lost": [],
    }  # fmt: skip
    assert found["slots"]["count"] == 0


def test_data_is_given_an_end_by_its_rate():
    reply = status()
    reply.data.add(name="train", records=3000, trained=1000, epochs=2)
    reply.data.add(name="stream", trained=5)
    known, endless = message(reply, data_rates={"train": 100.0})["data"]
    assert (known["rate"], known["left"]) == (100, 20)
    assert endless["left"] is None and endless["rate"] == 51230, "until then a record is an example"


def test_backups_and_their_gaps():
    reply = status()
    reply.backup.CopyFrom(pb.BackupStatus(peer=True, unprotected_slots=[1, 2], oldest_seconds=3.21987, disk_path="/d"))
    found = message(reply)["backup"]
    assert (found["unprotected"], found["age"], found["disk"], found["cut"]) == ([1, 2], 3.22, "/d", 0)


def test_a_thousand_roles_and_512_slots_are_a_small_message():
    text = json.dumps(message(status(64, 935, 512)), separators=(",", ":"))
    assert len(text) < 100_000
    assert len(json.dumps(message(status()), separators=(",", ":"))) < 4_000


def test_more_roles_than_that_are_counted():
    reply = pb.StatusReply()
    for index in range(ROLES_MAX + 10):
        reply.roles.add(name=f"worker-{index}", role=pb.WORKER, state="running", heartbeat=pb.Heartbeat(step=index + 1))
    trainers = message(reply)["trainers"]
    assert trainers["count"] == ROLES_MAX + 10 and len(trainers["step"]) == ROLES_MAX
    assert trainers["names"] == f"worker-0:{ROLES_MAX - 1}"


def test_names_in_a_row_are_a_range():
    assert (
        ranges(["chief-0", "worker-0", "worker-1", "worker-3", "worker-10"]) == "chief-0 worker-0:1 worker-3 worker-10"
    )
    assert ranges([]) == ""


def test_numbers_are_short_and_always_numbers():
    assert [number(value) for value in (0.123456, 123456.0, 3.0, math.nan, math.inf)] == [0.1235, 123500, 3, 0, 0]
    assert isinstance(number(2.0), int)


def test_without_a_rate_or_an_end_nothing_is_left_to_say():
    assert left_seconds(1, 0, 5) is None and left_seconds(1, 10, 0) is None
    assert left_seconds(20, 10, 5) == 0


def test_notices_are_in_the_message_with_what_to_do():
    reply = status()
    assert message(reply)["notices"] == []
    reply.notices.add(notice=pb.Notice(code="x", text="nothing is on a PS", remedy="use a setter"), roles=["chief-0"])
    assert message(reply)["notices"] == [
        {"text": "nothing is on a PS", "remedy": "use a setter", "mended": False, "roles": ["chief-0"]}
    ]


def test_what_an_arbiter_allows_is_there_with_its_reason_and_so_is_who_asked_for_a_scaling():
    reply = status()
    reply.allowance = "the arbiter allows 1 worker at present (a serving pod waits)"
    assert [(one["roles"], one["text"], one["mended"]) for one in message(reply)["notices"]] == [
        (["arbiter"], reply.allowance, True)
    ]
    taken = Scaling(1, "scale-down", "worker", asked_reason="a serving pod waits", requested_by="arbiter")
    assert message(status(), running=taken)["scaling"]["asked"] == "arbiter: a serving pod waits"
