"""How an elastic job ends, as seen from outside. While it runs, its AIMaster makes, replaces and removes its pods, and alone
knows which loss matters.

The job has succeeded when its chief's pod has, or when the AIMaster has ended well. It has failed when the AIMaster says so:
it ended with an exit code of its own (below 128) and a last word, the termination message. An AIMaster that was killed or
lost says nothing, and is made again.
"""

from __future__ import annotations

from datetime import datetime

from tfjob.model import names
from tfjob.model.conditions import FAILED, SUCCEEDED, success_message
from tfjob.model.kinds import Manifest
from tfjob.model.times import seconds_since
from tfjob.reconciling.observed import View, container_statuses, deleting, left_over, phase

FINISH_SECONDS = 120.0
"""How long, once the chief has succeeded, the AIMaster may take to let PS and workers go and to write the summary."""


def ending(view: View, start: str) -> tuple[str, str] | None:
    """(Succeeded or Failed, the message); None: it goes on."""
    job, pod = view.job, view.aimaster
    if pod is not None and deleting(pod):  # stopped from outside: how it ends says nothing of the job
        pod = None
    type_, index = names.replica_of(job, "chief-0")
    chief = [pod for at, pod in view.replicas(job.specs[type_]) if at == index and not left_over(pod, start)]
    if any(phase(one) == "Succeeded" for one in chief) or (pod is not None and phase(pod) == "Succeeded"):
        return SUCCEEDED, success_message(job)
    word = last_word(pod) if pod is not None else None
    return (FAILED, f"TFJob {job.namespace}/{job.name} has failed: {word}") if word else None


def last_word(pod: Manifest) -> str | None:
    """Why the AIMaster has failed the job; None: it has not, or it was killed before it could say."""
    for status in container_statuses(pod):
        for key in ("state", "lastState"):
            ended = (status.get(key) or {}).get("terminated") or {}
            code, message = int(ended.get("exitCode") or 0), str(ended.get("message") or "").strip()
            if 0 < code < 128 and (message or phase(pod) == "Failed"):
                return message or f"the AIMaster exited with code {code}; see its log"
    return None


def aimaster_lost(view: View) -> bool:
    """Whether its pod has failed without a word (evicted, killed, its node lost): it is deleted and made again."""
    pod = view.aimaster
    return pod is not None and phase(pod) == "Failed" and not deleting(pod) and last_word(pod) is None


def still_finishing(view: View, now: datetime) -> float:
    """Seconds for which the AIMaster of a job that has succeeded is left alone; 0: clean up."""
    pod = view.aimaster
    if not view.elastic or pod is None or phase(pod) not in ("Running", "Pending"):
        return 0.0
    since = seconds_since(view.job.status.get("completionTime"), now)
    return max(0.0, FINISH_SECONDS - (since or 0.0))
