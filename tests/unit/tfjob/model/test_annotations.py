"""What makes a TFJob elastic, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.tfjob.world import ELASTIC, manifest
from tfjob.model.annotations import Elastic, known, parse
from tfjob.model.spec import InvalidError, TFJob

PREFIX = "aimaster.deeprec.io/"
CHIEF = {"Chief": 1, "PS": 2, "Worker": 3, "Evaluator": 1}
PLAIN = {"PS": 2, "Worker": 3}
IN_STEP = {"strategy": "allreduce"}


def _job(replicas: dict[str, int] | None = None, spec: Any = None, /, **options: str) -> TFJob:
    given = {PREFIX + key.replace("_", "-"): value for key, value in options.items()}
    return TFJob.parse(
        manifest(PLAIN if replicas is None else replicas, annotations={**ELASTIC, **given}, **(spec or {}))
    )


def _parse(job: TFJob) -> Elastic:
    found, warnings = parse(job)
    assert found is not None and warnings == ()
    return found


@pytest.mark.parametrize(
    "annotations", [{}, {PREFIX + "enabled": "false"}, {PREFIX + "max-ps": "3"}, {"other/key": "1"}]
)
def test_a_job_that_is_not_enabled_is_an_ordinary_one(annotations: dict[str, str]) -> None:
    assert parse(TFJob.parse(manifest(annotations=annotations))) == (None, ())


def test_defaults_are_those_of_the_command() -> None:
    found = _parse(_job(CHIEF))
    assert (found.ps, found.workers, found.evaluator) == (2, 3, True)
    assert (found.min_ps, found.max_ps, found.min_workers, found.max_workers, found.slots) == (1, 4, 0, 4, 8)
    assert found.settings == () and not found.autoscale and not found.hold
    assert (found.package, found.state_volume) == ("inject", "")


def test_without_a_chief_worker_0_is_the_chief_and_the_aimaster_counts_the_workers_beside_it() -> None:
    found = _parse(_job(PLAIN))
    assert (found.workers, found.min_workers, found.max_workers) == (2, 0, 4)
    found = _parse(_job(PLAIN, min_workers="2", max_workers="5"))
    assert (found.min_workers, found.max_workers) == (1, 4)


def test_everything_that_can_be_said_is_read() -> None:
    said = {
        "min_ps": "2", "max_ps": "6", "min_workers": "1", "max_workers": "8", "slots": "24", "autoscale": "true",
        "objective": "deadline", "deadline": "2h", "hold": "true", "strict": "true", "layout": "workers",
        "backup": "peer,disk=/backups/mnist", "package": "image",
        "state_volume": "mnist-state", "max_ps_cpu": "500m", "max_worker_cpu": "2", "max_ps_memory": "2Gi",
        "max_worker_memory": "1GB", "total_cpu": "16", "total_memory": "64Gi", "reachable_from": "monitoring",
        "bad_records": "skip", "history": "true", "strategy": "ps", "step_batch": "each", "rate_scaling": "inverse_root",
        "rate_base": "4", "rate_warmup_steps": "50", "sum_compression": "fp16", "worker_batch_max": "64",
        "weight": "2.5", "queue": "team-a",
        "supervise": "strict", "max_wait": "30m", "spot": "cloud.example/spot=yes", "spot_wait": "2m", "price_label": "x/price",
    }  # fmt: skip
    assert {key.replace("_", "-") for key in said} | {"enabled"} == set(known())
    assert _parse(_job(CHIEF, **said)) == Elastic(
        ps=2, workers=3, evaluator=True, slots=24, min_ps=2, max_ps=6, min_workers=1, max_workers=8, hold=True,
        layout="workers",
        settings=(("autoscale", "true"), ("objective", "deadline"), ("deadline_seconds", "7200"),
                  ("strict", "true"), ("bad_records", "skip"), ("step_batch", "each"), ("rate_scaling", "inverse_root"),
                  ("rate_base", "4"), ("rate_warmup_steps", "50"), ("sum_compression", "fp16"), ("worker_batch_max", "64"),
                  ("supervise", "strict"), ("max_wait_seconds", "1800"), ("price_label", "x/price"),
                  ("spot_wait_seconds", "120"),
                  ("peer_backup", "on"), ("disk_backup", "/backups/mnist")),
        package="image", state_volume="mnist-state", max_ps_cpu=0.5, max_worker_cpu=2.0, max_ps_memory_bytes=2 << 30,
        max_worker_memory_bytes=10**9, total_cpu=16.0, total_memory_bytes=64 << 30, reachable_from=("monitoring",),
        history=True, weight=2.5, queue="team-a", spot=("cloud.example/spot", "yes"),
    )  # fmt: skip


@pytest.mark.parametrize("text", ["spot", "=true", "a b=c", "x/y/z=true", "spot=a b"])
def test_what_is_no_label_of_spot_nodes_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match=r"spot\].*write the label of spot nodes"):
        _parse(_job(CHIEF, spot=text))


@pytest.mark.parametrize(("replicas", "workers", "least"), [
    ({"Chief": 1, "Worker": 2}, 2, {"Chief": 1}), ({"Master": 1, "Worker": 2}, 2, {"Master": 1}),
    ({"Chief": 1}, 0, {"Chief": 1}), ({"Worker": 3}, 2, {"Worker": 1}), ({"Worker": 1}, 0, {"Worker": 1}),
])  # fmt: skip
def test_a_job_without_ps_has_its_chief_and_workers_and_no_slots(
    replicas: dict[str, int], workers: int, least: dict[str, int]
) -> None:
    job = _job(replicas, strategy="allreduce")
    found = _parse(job)
    assert (found.ps, found.slots, found.min_ps, found.max_ps) == (0, 0, 0, 0)
    assert (found.workers, found.min_workers, found.max_workers) == (workers, 0, 4 if "Worker" in replicas else 0)
    assert found.least(job) == least
    scaled = _job(replicas, strategy="allreduce", started_with=json.dumps(replicas), scaled_to=json.dumps(replicas))
    assert _parse(scaled) == found


@pytest.mark.parametrize(("strategy", "scaling"), [("ps", "linear"), ("ps", "root"), ("allreduce", "inverse")])
def test_a_learning_rate_that_follows_the_other_way_is_refused(strategy: str, scaling: str) -> None:
    job = _job({"Worker": 2} if strategy == "allreduce" else CHIEF, strategy=strategy, rate_scaling=scaling)
    with pytest.raises(InvalidError, match=rf"rate-scaling\].*'{scaling}'; is of jobs with"):
        _parse(job)


def test_a_job_without_ps_is_autoscaled_within_the_limits_of_its_workers() -> None:
    found = _parse(_job(
        {"Worker": 3}, strategy="allreduce", autoscale="true", deadline="2h", min_workers="2", max_workers="8",
        max_worker_cpu="4", total_memory="64Gi",
    ))  # fmt: skip
    assert found.autoscale and dict(found.settings)["objective"] == "deadline"
    assert (found.workers, found.min_workers, found.max_workers) == (2, 1, 7), "worker 0 is the chief"
    assert (found.max_worker_cpu, found.total_memory_bytes, found.slots) == (4.0, 64 << 30, 0)


def test_a_layout_has_each_of_its_names() -> None:
    assert _parse(_job(layout="worker0")).layout == "workers"


def test_a_job_without_workers_stays_without_them() -> None:
    found = _parse(_job({"Chief": 1, "PS": 1}))
    assert (found.workers, found.min_workers, found.max_workers) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("off", {"peer_backup": "off", "disk_backup": "off"}),
        ("peer", {"peer_backup": "on", "disk_backup": "off"}),
        ("disk=/d", {"peer_backup": "off", "disk_backup": "/d"}),
        ("peer,disk=s3://bucket/d", {"peer_backup": "on", "disk_backup": "s3://bucket/d"}),
    ],
)
def test_backup_says_the_same_as_the_flag(text: str, settings: dict[str, str]) -> None:
    assert dict(_parse(_job(backup=text)).settings) == settings


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"slots": "3"}, (3, 3)),  # max-ps is what the slots allow
        ({"max_ps": "10"}, (10, 20)),  # two slots a PS
        ({"slots": "100"}, (4, 100)),
    ],
)
def test_slots_and_max_ps_follow_each_other(options: dict[str, str], limits: tuple[int, int]) -> None:
    found = _parse(_job(**options))
    assert (found.max_ps, found.slots) == limits


# ---------------------------------------------------------------------------------------------------- contradictions

REFUSED: list[tuple[str, Any, Any, dict[str, str], str, str]] = [
    ("enabled is true or false", None, {}, {"enabled": "yes"}, "enabled", '"true" or "false"'),
    ("hold is true or false", None, {}, {"hold": "1"}, "hold", '"true" or "false"'),
    ("min-ps a number", None, {}, {"min_ps": "two"}, "min-ps", "from 1 to"),
    ("min-ps not 0", None, {}, {"min_ps": "0"}, "min-ps", "from 1 to"),
    ("min-workers not 0 where worker 0 is the chief", None, {}, {"min_workers": "0"}, "min-workers", "from 1 to"),
    ("min not above max", None, {}, {"min_ps": "3", "max_ps": "2"}, "min-ps", "more than max-ps 2"),
    ("min-workers not above max", None, {}, {"min_workers": "9", "max_workers": "4"}, "min-workers", "more than max"),
    ("slots for every PS", None, {}, {"slots": "3", "max_ps": "4"}, "slots", "at least one slot"),
    ("a known objective", None, {}, {"autoscale": "true", "objective": "best"}, "objective", "fastest, cheapest"),
    ("an objective needs autoscale", None, {}, {"objective": "fastest"}, "objective", "add autoscale"),
    ("a deadline needs autoscale", None, {}, {"deadline": "2h"}, "deadline", "add autoscale"),
    ("objective deadline needs a deadline", None, {}, {"autoscale": "true", "objective": "deadline"}, "objective", "needs"),
    ("a deadline contradicts another objective", None, {}, {"autoscale": "true", "objective": "fastest", "deadline": "2h"},
     "deadline", "contradicts"),
    ("a deadline with a unit", None, {}, {"autoscale": "true", "deadline": "90"}, "deadline", "30m or 2h"),
    ("a known backup", None, {}, {"backup": "tape"}, "backup", "peer,disk=DIR"),
    ("a backup where every pod sees it", None, {}, {"backup": "disk=here"}, "backup", "absolute"),
    ("a known layout", None, {}, {"layout": "worker1"}, "layout", "auto, chief, workers, master or worker0"),
    ("a known fate of bad records", None, {}, {"bad_records": "Skip"}, "bad-records", "fail or skip"),
    ("a fate of bad records no longer than any", None, {}, {"bad_records": "s" * 5_000}, "bad-records", "1024 or less"),
    ("a known package", None, {}, {"package": "pip"}, "package", "inject or image"),
    ("the name of a claim", None, {}, {"state_volume": "My/Claim"}, "state-volume", "PersistentVolumeClaim"),
    ("a weight above nothing", None, {}, {"weight": "0"}, "weight", "more than 0"),
    ("a weight that is a number", None, {}, {"weight": "nan"}, "weight", "or less"),
    ("the name of a queue", None, {}, {"queue": "Team A"}, "queue", "name of a queue"),
    ("cores", None, {}, {"max_ps_cpu": "many"}, "max-ps-cpu", "number of cores"),
    ("bytes", None, {}, {"total_memory": "lots"}, "total-memory", "amount of bytes"),
    ("replicas of PS within the limits", {"PS": 5, "Worker": 1}, {}, {"max_ps": "4"},
     "spec.tfReplicaSpecs.PS.replicas", "between min-ps 1 and max-ps 4"),
    ("replicas of Worker within the limits", {"ps": 1, "worker": 1}, {}, {"min_workers": "2"},
     "spec.tfReplicaSpecs.worker.replicas", "between min-workers 2 and max-workers 5"),
    ("workers to make more of", {"Chief": 1, "PS": 1}, {}, {"max_workers": "3"}, "max-workers", "no Worker"),
    ("a PS", {"Worker": 2}, {}, {}, "spec.tfReplicaSpecs", "at least 1 PS"),
    ("a PS, or none by strategy", {"Worker": 2}, {}, {}, "spec.tfReplicaSpecs", f'{PREFIX}strategy: "allreduce"'),
    ("a known strategy", None, {}, {"strategy": "ring"}, "strategy", "ps or allreduce"),
    ("no PS by allreduce", {"ps": 2, "Worker": 2}, {}, IN_STEP, "strategy", "leave out spec.tfReplicaSpecs.ps"),
    ("nor 0 of them", {"PS": 0, "Worker": 2}, {}, IN_STEP, "strategy", "leave out spec.tfReplicaSpecs.PS"),
    ("no evaluator by allreduce", {"Worker": 2, "Evaluator": 1}, {}, IN_STEP, "strategy", "evaluate in the script"),
    *((f"no {key} by allreduce", {"Worker": 2}, {}, {**IN_STEP, key.replace("-", "_"): value}, key, "has no PS")
      for key, value in (("slots", "8"), ("min-ps", "1"), ("max-ps", "4"), ("max-ps-cpu", "2"), ("max-ps-memory", "1Gi"))),
    ("workers by allreduce too", {"Chief": 1}, {}, {**IN_STEP, "max_workers": "3"}, "max-workers", "no Worker"),
    ("a chief by allreduce too", {"Worker": 0}, {}, IN_STEP, "spec.tfReplicaSpecs", "at least 1 Worker"),
    ("not 0 PS", {"PS": 0, "Worker": 2}, {}, {}, "spec.tfReplicaSpecs.PS.replicas", "at least 1 PS"),
    ("a chief", {"PS": 1}, {}, {}, "spec.tfReplicaSpecs", "Chief, a Master, or at least 1 Worker"),
    ("one evaluator", {"PS": 1, "Worker": 1, "Evaluator": 2}, {}, {}, "spec.tfReplicaSpecs.Evaluator.replicas", "at most 1"),
    ("not AllWorkers", None, {"successPolicy": "AllWorkers"}, {}, "spec.successPolicy", "ends with its chief"),
    ("our own notes are as we write them", None, {}, {"scaled_to": "3"}, "scaled-to", "remove it"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("replicas", "spec", "options", "field", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_contradicts_itself_is_refused_by_the_name_of_the_field(
    replicas: dict[str, int] | None, spec: dict[str, Any], options: dict[str, str], field: str, says: str
) -> None:
    with pytest.raises(InvalidError) as caught:
        parse(_job(replicas, spec, **options))
    assert caught.value.field == (field if field.startswith("spec.") else f"metadata.annotations[{PREFIX}{field}]")
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("length", "options", "pod"),
    [(54, {}, None), (55, {}, "aimaster"), (54, {"max-workers": "11"}, "worker-10"), (54, {"max-workers": "10"}, None),
     (54, {"max-ps": "10000", "slots": "10000"}, None), (55, {"max-ps": "10000", "slots": "10000"}, "aimaster")],
)  # fmt: skip
def test_a_name_that_is_too_long_for_the_pods_to_come_is_refused(
    length: int, options: dict[str, str], pod: str | None
) -> None:
    given = {PREFIX + key: value for key, value in options.items()}
    written = manifest({"PS": 1, "Worker": 0, "Chief": 1}, annotations={**ELASTIC, **given})
    written["metadata"]["name"] = "m" * length
    if pod is None:
        assert parse(TFJob.parse(written))[0] is not None
    else:
        with pytest.raises(InvalidError, match=rf"^metadata\.name: is too long: the pod m+-{pod} would"):
            parse(TFJob.parse(written))


@pytest.mark.parametrize(
    ("key", "near"), [("max_ps", "max-ps"), ("maxps", "max-ps"), ("enable", "enabled"), ("statevolume", "state-volume")]
)
@pytest.mark.parametrize("enabled", [True, False])
def test_a_key_that_is_not_known_is_a_warning_that_names_the_nearest(key: str, near: str, enabled: bool) -> None:
    given = {PREFIX + key: "3", **(ELASTIC if enabled else {})}
    found, warnings = parse(TFJob.parse(manifest(annotations=given)))
    assert (found is not None) is enabled
    assert warnings == (f"annotation {PREFIX}{key} is not known and does nothing; is {near} meant?",)


def test_what_we_write_ourselves_is_known() -> None:
    _parse(_job(status="PS 2, workers 2", scaled_to='{"PS": 2}', started_with='{"PS": 2}', restarts="{}"))


# ---------------------------------------------------------------------------------------------------- a running job


def test_what_was_filled_in_at_the_start_stays_when_the_size_changes() -> None:
    first = _parse(_job({"PS": 6, "Worker": 9}))
    noted = {"started_with": json.dumps({"PS": 6, "Worker": 9}), "scaled_to": json.dumps({"PS": 2, "Worker": 3})}
    later = _parse(_job({"PS": 2, "Worker": 3}, **noted))
    assert (
        (first.max_ps, first.slots, first.max_workers) == (later.max_ps, later.slots, later.max_workers) == (6, 12, 8)
    )
    assert (later.ps, later.workers) == (2, 2)


def test_replicas_that_differ_from_what_the_aimaster_runs_are_a_request_and_no_contradiction() -> None:
    found = _parse(_job({"PS": 99, "Worker": 3}, scaled_to='{"PS": 2, "Worker": 3}', started_with='{"PS": 2}'))
    assert found.ps == 2


def test_a_job_that_was_started_elastic_stays_elastic() -> None:
    given = {PREFIX + "started-with": '{"PS": 2, "Worker": 3}', PREFIX + "enabled": "false"}
    found, _ = parse(TFJob.parse(manifest(PLAIN, annotations=given)))
    assert found is not None


HUGE = ("9" * 400, "1e999", "inf", "-inf", "nan", "-1", "99999999999", "9" * 5000, "\u0663", "1_000", "0x10")


@pytest.mark.parametrize("key", [
    "min-ps", "max-ps", "min-workers", "max-workers", "slots", "deadline", "max-ps-cpu", "max-worker-cpu", "total-cpu",
    "max-ps-memory", "max-worker-memory", "total-memory", "rate-warmup-steps", "worker-batch-max",
])  # fmt: skip
def test_amounts_have_upper_bounds_and_are_finite(key: str) -> None:
    """Said as what it is of: the field, what is there, and what may be."""
    unit = {"deadline": "d"}.get(key, "Gi" if "memory" in key else "")
    others = {"autoscale": "true", "objective": "deadline"} if key == "deadline" else {}
    for text in HUGE:
        written = manifest(annotations={**ELASTIC, **{PREFIX + name: value for name, value in others.items()},
                                        PREFIX + key: text + (unit if text.isdigit() else "")})  # fmt: skip
        with pytest.raises(InvalidError) as caught:
            parse(TFJob.parse(written))
        assert key in caught.value.field, text


def test_what_was_noted_has_bounds_too() -> None:
    for noted in ('{"PS": 1e400}', '{"PS": 99999999}', '{"PS": -1}', "[" * 100_000):
        written = manifest(annotations={**ELASTIC, PREFIX + "started-with": noted})
        with pytest.raises(InvalidError, match="is broken"):
            parse(TFJob.parse(written))


@pytest.mark.parametrize("text", ["Monitoring", "a b", "../x", "a" * 64])
def test_reachable_from_names_namespaces(text: str) -> None:
    with pytest.raises(InvalidError, match="names of namespaces"):
        parse(TFJob.parse(manifest(annotations={**ELASTIC, PREFIX + "reachable-from": text})))
