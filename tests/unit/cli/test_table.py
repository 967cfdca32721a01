from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from deeprec_ext.cli.ending import final_line, print_body, scaling_row
from deeprec_ext.cli.roles import slots_text
from deeprec_ext.cli.table import describe_scaling, plain_line, render, ring_lines
from deeprec_ext.launch.events import ScriptedEvent
from deeprec_ext.launch.job import Scene
from deeprec_ext.launch.script import Progress
from deeprec_ext.proto import deeprec_ext_pb2 as pb2


def text_of(renderable) -> str:
    stream = io.StringIO()
    Console(file=stream, width=140, color_system=None).print(renderable)
    return stream.getvalue()


def status(**changes) -> pb2.StatusReply:
    reply = pb2.StatusReply(
        job="demo", state="scaling", epoch=3, step=1200, last_step=5000, steps_per_second=100, examples_per_second=12800,
        slots=8, slot_map=[0, 0, 0, 0, 1, 1, 1, 1], **changes,
    )  # fmt: skip
    beat = pb2.Heartbeat(
        step=1200, steps_per_second=50.5, examples_per_second=6400, rss_bytes=500_000_000, training=True
    )
    reply.roles.add(name="chief-0", role=pb2.CHIEF, state="running", pid=12, heartbeat=beat, cpu_percent=87)
    reply.roles.add(name="ps-10", role=pb2.PS, state="starting", pid=14)
    reply.roles.add(
        name="ps-2", role=pb2.PS, state="running", pid=13, slots=[0, 1, 2, 5], heartbeat=pb2.Heartbeat(rss_bytes=1)
    )
    return reply


RUNNING = pb2.ScalingStatus(
    id=1, kind="scale-up", role="ps", from_count=2, to_count=4, state="PREPARE", detail="first copy 12 MB"
)


def scene(reply: pb2.StatusReply | None, **changes) -> Scene:
    return Scene("demo", Path("/runs/demo"), 65.0, reply, **changes)


def test_the_table_shows_job_scaling_progress_and_roles_in_order():
    text = text_of(render(scene(status(scalings=[RUNNING])), ["14:00:00 registered ps-10"]))
    assert "demo  scaling  view 3  2 PS, 8 slots  1:05" in text
    assert "scale-up ps 2 → 4: PREPARE first copy 12 MB" in text
    assert "step 1,200 / 5,000" in text
    assert "38.0 s left" in text
    assert "0-2,5" in text
    assert text.index("ps-2") < text.index("ps-10") < text.index("chief-0")
    chief = next(line for line in text.splitlines() if "chief-0" in line)
    assert chief.split() == ["chief-0", "running", "12", "1,200", "50.5", "6,400", "500", "MB", "87"]
    assert text.rstrip().endswith("14:00:00 registered ps-10")


def in_step(**ring) -> pb2.StatusReply:
    told = {name: [pb2.RingRole(name=who, why=why)] for name, (who, why) in ring.items()}
    reply = pb2.StatusReply(job="demo", state="training", epoch=7, step=12, steps_per_second=4)
    reply.ring.CopyFrom(pb2.RingStatus(members=["chief-0", "worker-0", "worker-1"], **told))
    for name in reply.ring.members:
        reply.roles.add(name=name, role=pb2.WORKER, state="running", pid=12, heartbeat=pb2.Heartbeat(step=12))
    return reply


def test_a_learning_rate_that_is_not_the_script_s_has_a_line():
    assert "learning rate × 0.5 (inverse, 2 trainers)" in text_of(
        render(scene(status(learning_rate="× 0.5 (inverse, 2 trainers)")))
    )
    assert "learning rate" not in text_of(render(scene(status())))


def test_what_an_arbiter_allows_and_has_taken_is_told_with_its_reason():
    told = "the arbiter allows 1 PS, 1 worker at present (a serving pod waits)"
    assert told in text_of(render(scene(status(allowance=told)))).replace("\n", " ")
    assert "arbiter" not in text_of(render(scene(status())))
    one = pb2.ScalingStatus(
        kind="scale-down", role="worker", from_count=3, to_count=1, outcome="committed", reason="a serving pod waits",
        requested_by="arbiter",
    )  # fmt: skip
    assert describe_scaling(one) == "scale-down worker 3 → 1: committed, for the arbiter: a serving pod waits"
    entry = {
        "kind": "scale-down", "role": "worker", "from": 3, "to": 1, "outcome": "committed", "reason": "a serving pod waits",
        "requested_by": "arbiter",
    }  # fmt: skip
    stream = io.StringIO()
    print_body({"scaling": [entry]}, Console(file=stream, width=140, color_system=None))
    assert "scale-down worker 3 → 1: committed: arbiter: a serving pod waits" in stream.getvalue()


def test_a_job_without_ps_has_a_ring_and_neither_slots_nor_their_column():
    reply = in_step(waits=("worker-1", "silent for 2.0 s"), coming=("worker-2", "it starts"),
                    leaving=("worker-3", "it ends"), lost=("worker-2", "hung, 9.0 s ago; not back yet"))  # fmt: skip
    text = text_of(render(scene(reply), slots=True))
    assert "view 7  in step" in text and "ring  chief-0 → worker-0 → worker-1" in text and "slot" not in text
    for line in ("waits for worker-1: silent for 2.0 s", "comes worker-2: it starts", "leaves worker-3: it ends",
                 "lost worker-2: hung, 9.0 s ago; not back yet"):  # fmt: skip
        assert line in text
    text = text_of(render(scene(in_step(lost=("worker-0", "hung, 9.0 s ago; back after 3.0 s")))))
    assert "lost" not in text, "it is back"
    reply = in_step()
    reply.ring.members.extend(f"worker-{number}" for number in range(2, 99))
    assert "worker-4 → worker-5 → 92 more → worker-98" in text_of(ring_of(reply))


def ring_of(reply: pb2.StatusReply) -> str:
    return "\n".join(line for line, _ in ring_lines(reply))


def test_before_the_first_answer_there_is_a_picture_too():
    pods = (pb2.PodStatus(name="aimaster", state="running", pid=7),)
    text = text_of(render(scene(None, pods=pods)))
    assert "starting" in text
    assert "waiting for the AIMaster" in text
    assert "aimaster" in text


def test_the_launcher_knows_better_which_process_runs():
    pods = (
        pb2.PodStatus(name="chief-0", state="exited", restarting=True, pid=12, restarts=2),
        pb2.PodStatus(name="ps-2", state="exited", deleted=True, pid=13),
    )
    text = text_of(render(scene(status(), pods=pods)))
    assert "restarting" in text
    assert "ps-2" not in text


def test_scripted_events_are_counted():
    script = (
        Progress(ScriptedEvent("rebalance", at_step=1), fired=True, outcome="committed"),
        Progress(ScriptedEvent("kill", "ps-1", at_step=600), fired=True),
    )
    assert "events 1/2 done; now: kill ps-1 at step 600" in text_of(render(scene(status(), script=script)))


def test_the_plain_line_says_the_same():
    line = plain_line(scene(status(scalings=[RUNNING])))
    assert line == (
        "[1:05] scaling, step 1,200/5,000, 100.0 steps/s, view 3, 2 PS, 1 trainer, scale-up ps 2 → 4: PREPARE first copy 12 MB"
    )


def test_each_dataset_has_a_line_of_progress():
    data = [
        pb2.DataStatus(name="train", records=2000, trained=990, leased=64, epoch=1, epochs=2, repeated=12, skipped=3),
        pb2.DataStatus(name="stream", trained=7),
        pb2.DataStatus(name="again", trained=900, repeated=23_503, repeated_at_least=1_024),
        pb2.DataStatus(name="sure", trained=900, repeated=1_024, repeated_at_least=1_024),
    ]
    text = text_of(render(scene(status(data=data))))
    assert (
        "data train: 990 of 2,000 records trained (49 %), epoch 2 of 2, 64 leased, up to 12 repeated, 3 skipped" in text
    )
    assert "data stream: 7 records trained, epoch 1\n" in text.replace(" \n", "\n")
    assert "data again: 900 records trained, epoch 1, 1,024 to 23,503 repeated\n" in text.replace(" \n", "\n")
    assert "data sure: 900 records trained, epoch 1, 1,024 repeated\n" in text.replace(" \n", "\n")
    assert "data train 990/2,000, data stream 7" in plain_line(scene(status(data=data)))


def test_of_many_datasets_those_are_shown_that_are_being_trained():
    data = [pb2.DataStatus(name=f"fit {one}", records=10, trained=10) for one in range(1, 8)]
    ended = text_of(render(scene(status(data=data))))
    assert "data fit 3:" not in ended and "data fit 7: 10 of 10" in ended and "data: 3 more, all trained" in ended
    data.append(pb2.DataStatus(name="fit 8", records=10, trained=3))
    data.insert(2, pb2.DataStatus(name="without end", trained=3))
    text = text_of(render(scene(status(data=data))))
    assert text.index("data without end") < text.index("data fit 8: 3 of 10") < text.index("data: 7 more, all trained")
    assert "data fit 7" not in text
    assert "data without end 3, data fit 8 3/10" in plain_line(scene(status(data=data)))


def test_an_ended_scaling_tells_its_outcome():
    one = pb2.ScalingStatus(
        kind="scale-up", role="ps", from_count=1, to_count=2, outcome="rolled_back", reason="ps-1 never came up"
    )
    assert describe_scaling(one) == "scale-up ps 1 → 2: rolled_back (ps-1 never came up)"
    one = pb2.ScalingStatus(
        kind="rebalance", role="ps", from_count=2, to_count=2, outcome="committed", pause_seconds=[0.02, 0.05]
    )
    assert describe_scaling(one) == "rebalance ps: committed, pause 50 ms"
    one = pb2.ScalingStatus(kind="scale-up", role="ps", from_count=2, to_count=3, workers_from=1, state="PREPARE")
    assert describe_scaling(one) == "scale-up ps 2 → 3, workers 1 → 0: PREPARE"


def test_without_a_speed_there_is_no_time_left():
    for known in ({"last_step": 10}, {"steps_per_second": 1}):
        assert " left" not in text_of(render(scene(pb2.StatusReply(step=1, **known))))
    assert slots_text([]) == ""


def test_the_final_summary_is_readable():
    row = scaling_row(
        {"kind": "scale-up", "role": "ps", "from": 2, "to": 4, "outcome": "committed", "bytes_moved": 12_000_000,
         "bytes_resent": 0, "slots_moved": 4, "pause_seconds": {"p50": 0.05, "max": 0.06}, "seconds": 2.0}
    )  # fmt: skip
    assert row == ["scale-up ps 2 → 4", "committed", "50 ms", "60 ms", "12 MB", "0 B", "4", "2.0 s"]
    both = {"kind": "scale-down", "role": "ps", "from": 2, "to": 1, "workers": {"from": 0, "to": 3}}
    assert scaling_row(both)[0] == "scale-down ps 2 → 1, workers 0 → 3"
    stream = io.StringIO()
    failed = {
        "kind": "scale-up",
        "role": "ps",
        "from": 1,
        "to": 2,
        "outcome": "rolled_back",
        "reason": "ps-1 died " * 30,
    }
    print_body({"scaling": [both, failed]}, Console(file=stream, width=60, color_system=None, soft_wrap=True))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines[0].split() == ["scaling", "outcome", "pause", "max"]
    assert lines[1].startswith("scale-down ps 2 → 1, workers 0 → 3 unfinished") and max(map(len, lines[:3])) <= 60
    assert lines[3].startswith("scale-up ps 1 → 2: rolled_back: ps-1 died ps-1") and len(lines) == 4
    line = final_line({"status": "succeeded", "steps": 1000, "seconds": 10.0}, Path("/runs/demo"))
    assert line == "succeeded; 1,000 steps in 10.0 s; all of it is in /runs/demo"


def test_the_last_line_of_a_stopped_job_says_where_it_would_go_on():
    stopped = {"status": "stopped", "reason": "Ctrl-C", "steps": 1000, "seconds": 10.0, "resume": {"checkpoint": None}}
    line = final_line(stopped, Path("/runs/demo"))
    begins = (
        "--resume begins at step 0: nothing that was trained is in a checkpoint (with `--backup peer,disk=DIR` it would"
    )
    assert line.startswith(f"stopped: Ctrl-C; {begins} be in a backup); 1,000 steps in 10.0 s;")
    line = final_line(
        {**stopped, "status": "interrupted", "resume": {"checkpoint": {"step": 90, "time": None}}}, Path("/d")
    )
    assert "; --resume begins at step 90, of the checkpoint; " in line
    again = {"step": 90, "source": "checkpoint", "steps_lost": 10}
    line = final_line({**stopped, "status": "succeeded", "reason": "", "resumed": again}, Path("/d"))
    assert line.startswith("succeeded; 1,000 steps in 10.0 s (resumed at step 90 from the checkpoint, 10 steps lost); ")


def loaded() -> pb2.StatusReply:
    """Two PS of which the second is busier, three trainers of which worker-1 is slow, and a hot slot."""
    reply = pb2.StatusReply(job="demo", state="training", slots=4, slot_map=[0, 0, 1, 1])
    for index, busy, memory in ((0, 0.2, 900e6), (1, 0.7, 100e6)):
        beat = pb2.Heartbeat(rss_bytes=int(memory))
        reply.roles.add(name=f"ps-{index}", role=pb2.PS, state="running", heartbeat=beat, gazer={"busy_share": busy},
                        slots=[2 * index, 2 * index + 1])  # fmt: skip
    for name, seconds in (("chief-0", 0.05), ("worker-0", 0.04), ("worker-1", 0.5)):
        role = pb2.CHIEF if name == "chief-0" else pb2.WORKER
        reply.roles.add(
            name=name, role=role, state="running", heartbeat=pb2.Heartbeat(step_seconds=seconds, rss_bytes=300)
        )
    for slot, share in enumerate((0.0, 0.05, 0.15, 0.0)):
        gazer = {"lookup_share": share, "update_share": share, "lookup_rows_per_second": 1000 * share}
        reply.slot_load.add(slot=slot, task=slot // 2, bytes=1000 * (4 - slot), gazer=gazer if share else {})
    return reply


def first_words(text: str, *beginnings: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.strip().startswith(beginnings)]


def test_roles_by_load_are_the_busiest_ps_then_the_slowest_trainers():
    text = text_of(render(scene(loaded()), sort="load"))
    assert first_words(text, "ps-", "chief", "worker") == ["ps-1", "ps-0", "worker-1", "chief-0", "worker-0"]
    assert "70 % busy" in text and "500 ms" in text


def test_a_ps_at_which_several_ops_run_at_once_is_not_busy_for_more_than_all_of_the_time():
    reply = loaded()
    next(role for role in reply.roles if role.name == "ps-1").gazer["busy_share"] = 3.33
    text = text_of(render(scene(reply)))
    assert "3.3 ops at once" in text and "333" not in text


def test_roles_by_memory_are_the_largest_first():
    text = text_of(render(scene(loaded()), sort="memory"))
    assert first_words(text, "ps-", "chief", "worker")[:2] == ["ps-0", "ps-1"]


def test_slots_are_shown_by_load_with_their_share():
    text = text_of(render(scene(loaded()), sort="load", slots=True))
    rows = [line.split() for line in text.splitlines() if "ps-" in line and line.strip()[0].isdigit()]
    assert [row[:2] for row in rows] == [["2", "ps-1"], ["1", "ps-0"], ["0", "ps-0"], ["3", "ps-1"]]
    assert rows[0][2:] == ["████████████", "75", "%", "15", "%", "15", "%", "150", "2.0", "kB"]
    by_bytes = text_of(render(scene(loaded()), sort="memory", slots=True))
    assert [line.split()[0] for line in by_bytes.splitlines() if "kB" in line] == ["0", "1", "2", "3"]


def test_a_limit_of_ones_own_is_shown_and_a_shared_one_is_not():
    reply = loaded()
    reply.roles[0].process.memory_limit_bytes = 1_000_000_000
    assert "900 MB of 1.0 GB" in text_of(render(scene(reply)))
    reply.roles[0].process.shared_limits = True
    assert "of 1.0 GB" not in text_of(render(scene(reply)))


def large(roles: int, slots: int) -> pb2.StatusReply:
    reply = pb2.StatusReply(job="demo", state="training", slots=slots, slot_map=[0] * slots)
    for index in range(roles):
        ps = index < roles // 10
        reply.roles.add(name=f"{'ps' if ps else 'worker'}-{index}", role=pb2.PS if ps else pb2.WORKER, state="running")
    for slot in range(slots):
        reply.slot_load.add(slot=slot, bytes=10)
    return reply


def test_a_large_job_fits_into_the_terminal():
    events = [f"event {number}" for number in range(6)]
    text = text_of(render(scene(large(1000, 512)), events, sort="load", slots=True, lines=40))
    assert len(text.rstrip().splitlines()) <= 40
    assert "more roles" in text and "more slots" in text
    assert "ps-0" in text and "worker-100" in text, "each kind keeps its part"
    assert "event 5" in text and "event 2" not in text


def test_everything_is_shown_where_nothing_limits_it():
    text = text_of(render(scene(large(300, 50)), sort="load", slots=True))
    assert "worker-299" in text and "more" not in text


def test_it_fits_into_80_columns():
    stream = io.StringIO()
    Console(file=stream, width=80, color_system=None).print(render(scene(loaded()), sort="load", slots=True))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.endswith("…") for line in lines)


def test_the_address_of_the_page_is_shown_whole():
    page = "http://127.0.0.1:8080/ (reads only; to scale from it, open file:///" + "x" * 60
    assert f"dashboard {page}\n" in text_of(render(scene(loaded(), dashboard=page))).replace(" \n", "\n")


def test_a_notice_stands_in_the_table_and_in_the_summary_with_what_to_do():
    reply = status()
    notice = pb2.Notice(code="no-variable-on-ps", text="nothing is on a PS", remedy="use a setter")
    reply.notices.add(notice=notice, roles=[f"worker-{number}" for number in range(5)])
    line = "notice (worker-0, worker-1, worker-2 and 2 more): nothing is on a PS: use a setter"
    assert line in text_of(render(scene(reply)))
    assert "notice no-variable-on-ps" in plain_line(scene(reply))
    stream = io.StringIO()
    summary = {"notices": [{"text": notice.text, "remedy": notice.remedy, "roles": list(reply.notices[0].roles)}]}
    print_body(summary, Console(file=stream, width=140, color_system=None))
    assert line in stream.getvalue()


def test_metrics_of_a_validation_have_its_names_in_the_summary():
    stream = io.StringIO()
    summary = {"metrics": {"loss": 0.4, "auc": 0.91, "val_auc": 0.91, "val_loss": 0.3}}
    print_body(summary, Console(file=stream, width=140, color_system=None))
    assert stream.getvalue() == "metrics: loss 0.4, val_auc 0.91, val_loss 0.3\n"
