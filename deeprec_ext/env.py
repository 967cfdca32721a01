"""The environment of a process of the job: one function per variable. Nothing else reads `DEEPREC_EXT_*`.

The launcher (or the operator) sets them with `process_environment`; the training side reads them. A process without
`DEEPREC_EXT_AIMASTER` is stock training.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

PREFIX = "DEEPREC_EXT_"
SPECIFICATION = "SPECIFICATION"
HISTORY_DATABASE = "HISTORY_DATABASE"
SERVER_DEFAULTS = {"TF_ENABLE_ONEDNN_OPTS": "0"}
"""Of a PS, unless its environment says otherwise. With oneDNN, TensorFlow takes memory from a pool that gives nothing back:
after a checkpoint, which copies every table, a PS had one and a half times what it needs. Nothing that runs there is faster
with it."""


def _get(name: str, default: str = "") -> str:
    return os.environ.get(PREFIX + name, default)


def history_database() -> str:
    """URL of the history service's database; it may have a password in it, which is nobody's to see among the arguments."""
    return _get(HISTORY_DATABASE)


def aimaster_address() -> str | None:
    """host:port of the job's AIMaster, None outside an elastic job."""
    return _get("AIMASTER") or None


def job() -> str:
    """Name of the job; also the name in the AIMaster's certificate, `aimaster.<job>`."""
    return _get("JOB")


def role() -> str:
    """`ps`, `chief`, `worker` or `evaluator`; empty in a process that is no role of a job."""
    return _role()[0]


def index() -> int:
    """Index of the role: 2 for `ps-2`."""
    return _role()[1]


def _role() -> tuple[str, int]:
    """Where all replicas of a TFJob's type have one template, that cannot say which one it is: the pod's label does, by which
    worker 0 is the chief of a job that has no other. Raises RuntimeError where it has no such label."""
    role, replica = _get("ROLE"), os.environ.get(f"{PREFIX}REPLICA_INDEX")
    if replica is None:
        return role, int(_get("INDEX", "0"))
    if not replica.isdigit():  # 0 for all of them would be worse
        raise RuntimeError(
            f"{PREFIX}REPLICA_INDEX is {replica!r}: the pod has no label training.kubeflow.org/replica-index, which Kubeflow's "
            "training operator 1.9 gives it"
        )
    if role == "worker" and chief_role() == "worker":
        return ("chief", 0) if int(replica) == 0 else ("worker", int(replica) - 1)
    return role, int(replica)


def slots() -> int:
    """S, the number of slots of the job: the PS count that user code sees."""
    return int(_get("SLOTS", "0"))


def sums() -> bool:
    """Whether this is a job without PS, whose chief and workers sum what they have, step by step."""
    return _get("SLOTS") == "0"


def workers() -> int:
    """Workers beside the chief with which the job was to begin; 0: none, or nobody has said so."""
    return int(_get("WORKERS", "0"))


def chief_role() -> str:
    """How the job's pods call its chief: `chief`, `master`, or `worker` where worker 0 stands for it."""
    return _get("CHIEF", "chief")


def layout() -> str:
    """How TF_CONFIG calls the processes, one of `layout.LAYOUTS`; empty: not said, the script's text shall decide."""
    return _layout or _get("LAYOUT")


_layout = ""


def set_layout(layout: str) -> None:
    """For whatever asks later in this process. A process that it starts may run another script, which has its own text."""
    global _layout
    _layout = layout


def has_evaluator() -> bool:
    """Whether the job has an evaluator of its own."""
    return _get("EVALUATOR") == "1"


def address() -> str | None:
    """host:port where this process serves TensorFlow and others reach it, in a pod; None: a free port of the loopback.

    A manifest puts the pod's address before the port as it is; one of IPv6 gets its brackets here.
    """
    host, colon, port = _get("ADDRESS").rpartition(":")
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}{colon}{port}" or None


def certificates() -> str | None:
    """Directory with `ca.pem`, `<certificate>.pem`, `<certificate>-key.pem` (`security.credentials`); None: no TLS (tests)."""
    return _get("CERTS") or None


def specification() -> str:
    """Of an AIMaster: `options.specification`; empty: it is told by a file."""
    return _get(SPECIFICATION)


def workdir() -> str | None:
    """The run directory; scripts may keep their model below it."""
    return _get("WORKDIR") or None


def owner_pid() -> int | None:
    """The process that became the role; a child of it that inherits the environment is stock TensorFlow."""
    value = _get("OWNER")
    return int(value) if value else None


def claim_ownership() -> None:
    os.environ[PREFIX + "OWNER"] = str(os.getpid())


def becomes_server() -> bool:
    """Whether this process runs the user's command but is a PS: it never runs the user's script (once: `claim_server`)."""
    return is_elastic_process() and role() == "ps" and not _get("SERVING")


def claim_server() -> None:
    os.environ[PREFIX + "SERVING"] = "1"


def is_elastic_process() -> bool:
    """Whether this very process is a role of an elastic job."""
    owner = owner_pid()
    return bool(aimaster_address()) and bool(role()) and owner in (None, os.getpid())


def is_below_process() -> bool:
    """Whether a role of an elastic job, which this process is not, has started it after it had joined."""
    return bool(aimaster_address()) and bool(role()) and not is_elastic_process()


def process_environment(
    *, aimaster: str, job: str, role: str, index: int, slots: int, certificates: str | None, workdir: str,
    evaluator: bool = False, chief: str = "chief", address: str = "", layout: str = "", workers: int = 0,
) -> Mapping[str, str]:  # fmt: skip
    """What the launcher, or the operator, adds to the environment of a role."""
    values = {
        "AIMASTER": aimaster, "JOB": job, "ROLE": role, "INDEX": str(index), "SLOTS": str(slots),
        "CERTS": certificates or "", "WORKDIR": workdir, "EVALUATOR": "1" if evaluator else "", "CHIEF": chief,
        "ADDRESS": address, "LAYOUT": layout, "WORKERS": str(workers or ""),
    }  # fmt: skip
    return {PREFIX + name: value for name, value in values.items() if value}
