"""What the devices of a script mean: this process, a slot, or somebody else.

A session's cluster has the PS and this one process (membership belongs to the session), so whatever means *this* process is
mapped to it: its name in the script's own `tf.train.Server(cluster, job_name=, task_index=)`, else in TF_CONFIG, and a job
of trainers without a task, which TensorFlow reads as the nearest of them (`replica_device_setter` uses `/job:worker`).
The addresses of TF_CONFIG tell which process a script's ClusterSpec means, in whatever order it has put them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deeprec_ext.errors import RefusedError

FLAGS_HINT = (
    "take job name and task from TF_CONFIG, or let each process have its own flags: "
    "deeprec-ext run … -- python train.py --job_name={job_name} --task_index={task_index} --ps_hosts={ps_hosts} "
    "--worker_hosts={worker_hosts}"
)
_JOB, _TASK = re.compile(r"/job:([^/]*)"), re.compile(r"/task:(\d+)")
_PLACE = re.compile(r"/(?:job|replica|task):[^/]*")
_CHIEFS = ("chief", "master")


@dataclass(frozen=True)
class Given:
    """What a script says of itself: its cluster (job → task → address), and its own job and task in it."""

    cluster: Mapping[str, Mapping[int, str]]
    job: str
    task: int

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Given:
        """Of a TF_CONFIG. Raises KeyError, TypeError or ValueError for something that is none."""
        cluster = {str(job): dict(enumerate(tasks)) for job, tasks in config["cluster"].items()}
        return cls(cluster, str(config["task"]["type"]), int(config["task"]["index"]))


@dataclass(frozen=True)
class Names:
    """Of one trainer.

    own: its device in the cluster of its sessions.
    called: (job, task) by which the script means it; the first is what it calls itself.
    jobs: names of jobs that, without a task, mean it.
    slots: (job, task) → slot, of PS that the script counts otherwise; ps_jobs: what it calls them beside `ps`.
    ps: how many PS the script's cluster has.
    """

    own: str
    called: tuple[tuple[str, int], ...]
    jobs: frozenset[str] = frozenset({"worker"})
    slots: Mapping[tuple[str, int], int] = field(default_factory=dict)
    ps_jobs: frozenset[str] = frozenset()
    ps: int = 0

    def device(self, device: str) -> str:
        """The same place as sessions know it. Raises RefusedError for a device of another trainer."""
        found = _JOB.search(device)
        if found is None:
            return device
        number = _TASK.search(device)
        job, task = found[1], int(number[1]) if number else None
        rest = _PLACE.sub("", device)
        if job == "ps" or job in self.ps_jobs:
            if task is None:
                return "/job:ps" + rest
            return f"/job:ps/task:{self.slots.get((job, task), task)}{rest}"
        if (job in self.jobs) if task is None else ((job, task) in self.called):
            return self.own + rest
        mine = "/job:{}/task:{}".format(*self.called[0])
        raise RefusedError(
            f"{device} is no place of this process, which the script calls {mine}: trainers come and go, and nothing of one "
            f"runs in another. Place it on /job:worker, without a task (whichever process runs it), on {mine}, or on a PS"
        )


def names_of(config: Mapping[str, Any], role: str, index: int, given: Given | None = None) -> Names:
    """How a script calls a trainer. Raises RefusedError where it says of itself that it is another process.

    Args:
      config: the TF_CONFIG that we gave it.
      role, index: as the AIMaster counts, `chief` 0 or `worker` 0 beside it.
      given: what it has made of that, its `tf.train.Server`; None: nothing.
    """
    ours = Given.of_config(config)
    mine = ours.cluster[ours.job][ours.task]
    said = given if given is not None else ours
    _check(said, ours, mine, role, index)
    others = [(ours.job, ours.task), *(((name, 0) for name in _CHIEFS) if role == "chief" else ())]
    called = [(said.job, said.task)]
    called += [(job, task) for job, task in others if said.cluster.get(job, {}).get(task, mine) == mine]
    known = {address: task for task, address in ours.cluster["ps"].items()}
    ps_jobs = {job for job, tasks in said.cluster.items() if any(address in known for address in tasks.values())}
    slots = {
        (job, task): known[address]
        for job in ps_jobs
        for task, address in said.cluster[job].items()
        if address in known
    }
    return Names(
        own=f"/job:{role}/task:{index}",
        called=tuple(dict.fromkeys(called)),
        jobs=frozenset({"worker", said.job, *(_CHIEFS if role == "chief" else ())}),
        slots=slots, ps_jobs=frozenset(ps_jobs - {"ps"}),
        ps=sum(len(tasks) for job, tasks in said.cluster.items() if job == "ps" or job in ps_jobs),
    )  # fmt: skip


def _check(said: Given, ours: Given, mine: str, role: str, index: int) -> None:
    known = {address: (job, task) for job, tasks in ours.cluster.items() for task, address in tasks.items()}
    name = f"the script calls {role} {index} of this job '{said.job}' {said.task}"
    address = said.cluster.get(said.job, {}).get(said.task)
    if address == mine:
        return
    if said.job == "ps" or (address is not None and address.startswith("slot-")):
        raise RefusedError(f"{name}, but it is a trainer; the job has its PS, and they run no script: {FLAGS_HINT}")
    if address in known:
        raise RefusedError(f"{name}, but that is '{known[address][0]}' {known[address][1]} in TF_CONFIG: {FLAGS_HINT}")
    if said.job not in said.cluster:  # a flag that nobody has given: its default is empty, in all processes alike
        raise RefusedError(f"{name}, and its own cluster has no job of that name: {FLAGS_HINT}")
    # A cluster of the script's own, as from flags: nothing but the numbers can tell whether all say the same.
    chiefs = [job for job in _CHIEFS if job in said.cluster]
    if role == "chief":
        right = said.task == 0 and (not chiefs or said.job in chiefs)
    else:
        right = said.job not in _CHIEFS and said.task == (index if chiefs else index + 1)
    if not right:
        expected = (
            (chiefs[0], 0) if chiefs and role == "chief" else ("worker", index + (role == "worker" and not chiefs))
        )
        raise RefusedError(f"{name}, but it is '{expected[0]}' {expected[1]} there: {FLAGS_HINT}")
