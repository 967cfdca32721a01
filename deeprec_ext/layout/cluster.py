"""The cluster that user code sees: S parameter servers, the chief by one of its names, and workers up to its own number.

Addresses are names only: sessions go to the process's own elastic server, and membership comes with the cluster view. But
they are unique, and by them it is known which process a script means (`names`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deeprec_ext.layout.choice import CHIEF, MASTER, WORKERS


def user_tf_config(role: str, index: int, slots: int, layout: str = CHIEF) -> dict[str, Any]:
    """TF_CONFIG of a role as the AIMaster counts: `chief` 0, `worker` 0 beside it, `evaluator` 0.

    An evaluator sees a chief in every layout: Estimator refuses to evaluate beside a master, or without a chief.
    """
    if role == "evaluator":
        layout = CHIEF
    cluster: dict[str, list[str]] = {"ps": [f"slot-{slot}:2222" for slot in range(slots)]}
    number = index + 1 if role == "worker" else 0
    if layout == WORKERS:
        cluster["worker"] = [f"worker-{one}:2222" for one in range(number + 1)]
        task = {"type": "worker", "index": number}
    else:
        cluster[MASTER if layout == MASTER else CHIEF] = ["chief-0:2222"]
        cluster["worker"] = [f"worker-{one}:2222" for one in range(max(number, 1))]
        task = {"type": MASTER if role == "chief" and layout == MASTER else role, "index": index}
    return {"cluster": cluster, "task": task, "environment": "cloud"}


def filled(words: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """Arguments of a command with what the process's TF_CONFIG says, for scripts that take their cluster from flags:

    `{job_name}`, `{task_index}`, `{ps_hosts}` and `{worker_hosts}`; other braces stay.
    """
    cluster, task = config["cluster"], config["task"]
    values = {
        "job_name": task["type"], "task_index": str(task["index"]),
        "ps_hosts": ",".join(cluster["ps"]), "worker_hosts": ",".join(cluster["worker"]),
    }  # fmt: skip
    found = []
    for word in words:
        for name, value in values.items():
            word = word.replace("{" + name + "}", value)
        found.append(word)
    return found
