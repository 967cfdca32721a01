"""What a script's devices mean: this process, a slot, or somebody else."""

from __future__ import annotations

import pytest

from deeprec_ext.errors import RefusedError
from deeprec_ext.layout import Given, Names, names_of, user_tf_config

SLOTS = 3


def config(role: str, index: int, layout: str = "chief"):
    return user_tf_config(role, index, SLOTS, layout)


def folded(role: str, index: int) -> Given:
    """The chief becomes the first of the workers."""
    cluster = config(role, index)["cluster"]
    workers = cluster["chief"] + cluster["worker"]
    numbered = {"ps": dict(enumerate(cluster["ps"])), "worker": dict(enumerate(workers))}
    return Given(numbered, "worker", index + (role == "worker"))


def names(role: str, index: int, given: Given | None = None, layout: str = "chief") -> Names:
    return names_of(config(role, index, layout), role, index, given)


@pytest.mark.parametrize("layout", ["chief", "workers", "master"])
@pytest.mark.parametrize(("role", "index"), [("chief", 0), ("worker", 0), ("worker", 4)])
def test_its_name_in_tf_config_and_a_job_without_a_task_are_this_process(role, index, layout):
    task = config(role, index, layout)["task"]
    one = names(role, index, layout=layout)
    own = f"/job:{role}/task:{index}"
    assert one.device(f"/job:{task['type']}/task:{task['index']}") == own
    assert one.device(f"/job:{task['type']}/replica:0/task:{task['index']}/device:CPU:1") == own + "/device:CPU:1"
    assert one.device("/job:worker") == own
    assert one.device("/job:worker/device:GPU:0") == own + "/device:GPU:0"
    assert one.device("/device:CPU:0") == "/device:CPU:0"
    assert one.device("/job:ps/task:2/device:CPU:0") == "/job:ps/task:2/device:CPU:0"


def test_a_chief_that_was_folded_into_the_workers_is_worker_0_and_the_others_count_on():
    chief = names("chief", 0, folded("chief", 0))
    assert chief.device("/job:worker/task:0/device:CPU:0") == "/job:chief/task:0/device:CPU:0"
    assert chief.device("/job:chief/task:0") == "/job:chief/task:0"
    worker = names("worker", 0, folded("worker", 0))
    assert worker.device("/job:worker/task:1") == "/job:worker/task:0"


@pytest.mark.parametrize(
    ("given", "device"),
    [
        (folded("worker", 0), "/job:worker/task:0"),  # the chief, although TF_CONFIG calls this process so
        (folded("worker", 0), "/job:worker/task:2"),
        (folded("worker", 0), "/job:chief/task:0"),
        (None, "/job:worker/task:1"),
        (None, "/job:chief"),
        (None, "/job:master/task:0"),
        (None, "/job:nobody"),
    ],
)
def test_another_trainer_is_refused_by_name(given, device):
    with pytest.raises(RefusedError, match="trainers come and go") as refused:
        names("worker", 0, given).device(device)
    assert device in str(refused.value) and "Place it on /job:worker" in str(refused.value)


def test_ps_are_slots_in_whatever_order_and_by_whatever_name_the_script_counts_them():
    cluster = {"param": {0: "slot-2:2222", 1: "slot-0:2222"}, "worker": {0: "chief-0:2222"}}
    one = names("chief", 0, Given(cluster, "worker", 0))
    assert one.device("/job:param/task:0/device:CPU:0") == "/job:ps/task:2/device:CPU:0"
    assert one.device("/job:param/task:1") == "/job:ps/task:0"
    assert one.ps == 2


@pytest.mark.parametrize(("role", "index", "job", "task"), [
    ("chief", 0, "worker", 1), ("worker", 0, "worker", 0), ("worker", 1, "worker", 1), ("chief", 0, "ps", 0),
])  # fmt: skip
def test_a_script_that_takes_itself_for_another_is_refused(role, index, job, task):
    foreign = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1", 2: "e:1"}}
    with pytest.raises(RefusedError, match="task_index=\\{task_index\\}"):
        names(role, index, Given(foreign, job, task), "workers")
    with pytest.raises(RefusedError):
        names(role, index, Given(folded("worker", 3).cluster, job, task))


@pytest.mark.parametrize(("role", "index"), [("chief", 0), ("worker", 0)])
def test_a_script_whose_flags_nobody_has_given_hears_of_the_flags_in_each_process(role, index):
    """The chief too: it was told of a device `/job:/task:0`, and that was why the job had failed."""
    hard_coded = {"ps": {0: "localhost:2222"}, "worker": {0: "localhost:2223", 1: "localhost:2224"}}
    with pytest.raises(RefusedError, match=r"--job_name=\{job_name\} --task_index=\{task_index\}") as refused:
        names(role, index, Given(hard_coded, "", 0))
    assert "'' 0, and its own cluster has no job of that name: take job name and task from TF_CONFIG" in str(
        refused.value
    )


def test_with_a_cluster_of_its_own_the_numbers_decide():
    foreign = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1", 2: "e:1"}}
    assert names("chief", 0, Given(foreign, "worker", 0)).device("/job:worker/task:0") == "/job:chief/task:0"
    assert names("worker", 1, Given(foreign, "worker", 2)).device("/job:worker/task:2") == "/job:worker/task:1"
    with_chief = {**foreign, "chief": {0: "x:1"}}
    assert names("worker", 1, Given(with_chief, "worker", 1)).device("/job:worker/task:1") == "/job:worker/task:1"
    with pytest.raises(RefusedError):
        names("chief", 0, Given(with_chief, "worker", 0))
