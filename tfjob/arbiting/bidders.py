"""A TFJob as the arbiter sees it: what it says of itself, and with its pods, the `Job` that is decided about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from deeprec_ext.arbiter.observed import Allowance, Bid, Bounds, Count, Job, Placed, Pods, Resources
from tfjob.arbiting.amounts import NOTHING, added, requested
from tfjob.arbiting.scopes import Traits, traits_of
from tfjob.arbiting.seen import AIMASTER, ClassSeen, Key, PodSeen, Reach, reach_of, seconds
from tfjob.model import names
from tfjob.model.annotations import Elastic, parse, sizes
from tfjob.model.arbitrated import allowance_of, bid_of
from tfjob.model.conditions import RESTARTING, RUNNING, SUSPENDED, condition, is_finished
from tfjob.model.kinds import Manifest
from tfjob.model.spec import InvalidError, TFJob
from tfjob.pods import spot

CHIEF, PS, WORKER, OTHER = "chief", "ps", "worker", "other"
"""Roles as `Placed` has them."""

ROLES = (CHIEF, PS, WORKER, OTHER)

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
VOLCANO_ANNOTATION = "scheduling.volcano.sh/queue-name"
VOLCANO, VOLCANO_DEFAULT = "volcano", "default"
"""Its scheduler, and its queue of those that name none."""


@dataclass(frozen=True)
class Bidder:
    """What an elastic TFJob says that is to run."""

    key: Key
    job: TFJob
    options: Elastic
    written: Count
    requests: Mapping[str, Resources]  # by role, of the templates
    reaches: Mapping[str, Reach]  # by role
    traits: Mapping[str, Traits]  # by role
    classes: tuple[str, ...]  # that its templates name, the chief's first; where none does, its gang's
    queue: str  # that it names itself, or Kueue's or Volcano's
    strict: bool
    arrived: float
    deadline: float
    started: bool
    bid: Bid | None
    allowance: Allowance | None
    unread: tuple[str, ...]  # annotations of ours that cannot be read, and why
    kueue: str  # its LocalQueue; empty: none
    kueue_by_pods: bool  # Kueue admits its pods, not the job
    volcano: str  # its queue there; empty: none of Volcano's

    @property
    def name(self) -> str:
        return "/".join(self.key)


def bidder_of(manifest: Manifest, aimaster: Resources = NOTHING) -> Bidder | None:
    """None: it is no elastic job, or is not to run (ended, suspended, being deleted, another controller's, invalid).

    Args:
      aimaster: what the pod of each AIMaster requests.
    """
    try:
        job = TFJob.parse(manifest)
        options, _ = parse(job)
        written = _written(job, options)
    except InvalidError:  # `reconcile` says so
        return None
    stands = manifest["metadata"].get("deletionTimestamp") or is_finished(job.status) or job.run_policy.suspend
    if options is None or stands or not job.ours:
        return None
    key = job.namespace, job.name
    bid, bad_bid = bid_of(job.annotations)
    allowance, bad_allowance = allowance_of(job.annotations, "/".join(key))
    unread = {names.WORTH_ANNOTATION: bad_bid, names.ALLOWANCE_ANNOTATION: bad_allowance}
    specs, (local_queue, by_pods) = _specs(job), _kueue(job)
    reaches = {role: _reach(spec, options) for role, spec in specs.items()}
    traits = {role: traits_of(spec) for role, spec in specs.items()}
    return Bidder(
        key, job, options, written, _requests(job, aimaster), reaches, traits, _classes(job),
        _queue(job, options), ("supervise", "strict") in options.settings,
        _arrived(manifest, job, allowance), _deadline(manifest, job, options), _has_run(job), bid, allowance,
        tuple(f"{name}: {why}" for name, why in unread.items() if why), local_queue, by_pods, _volcano(job),
    )  # fmt: skip


def is_suspended(manifest: Manifest) -> bool:
    """By its user, or by Kueue; of a job that need not be valid."""
    spec = manifest.get("spec")
    policy = spec.get("runPolicy") if isinstance(spec, dict) else None
    return isinstance(policy, dict) and policy.get("suspend") is True


def _written(job: TFJob, options: Elastic | None) -> Count:
    """As the user wrote it. Raises InvalidError."""
    found = sizes(job, names.STARTED_WITH_ANNOTATION)
    beside = 0 if job.chief else 1
    most = options.max_ps if options else 0
    return Count(min(found.get(names.PS, 0), most), max(0, found.get(names.WORKER, beside) - beside))


def _requests(job: TFJob, aimaster: Resources) -> dict[str, Resources]:
    of_types = {type_: requested(spec.template["spec"]) for type_, spec in job.specs.items()}
    evaluators = [of_types[names.EVALUATOR]] * job.replicas(names.EVALUATOR) if names.EVALUATOR in of_types else []
    return {
        CHIEF: of_types[job.chief or names.WORKER], PS: of_types.get(names.PS, NOTHING),
        WORKER: of_types.get(names.WORKER, NOTHING), OTHER: added([aimaster, *evaluators]),
    }  # fmt: skip


def _reach(spec: Manifest, options: Elastic) -> Reach:
    """Without its wish for spot nodes, which is dropped where there are none; what tolerates their taint stays."""
    if options.spot is None:
        return reach_of(spec)
    anywhere = spot.without({"spec": spec}, *options.spot)["spec"]
    return reach_of({**anywhere, "tolerations": spec.get("tolerations")})


def _classes(job: TFJob) -> tuple[str, ...]:
    specs = sorted(job.specs.values(), key=lambda spec: spec.type != (job.chief or names.WORKER))
    found = [str(spec.template["spec"].get("priorityClassName") or "") for spec in specs]
    return tuple(dict.fromkeys(name for name in found if name)) or _of_policy(job)


def _of_policy(job: TFJob) -> tuple[str, ...]:
    """`schedulingPolicy.priorityClass`."""
    return tuple(filter(None, [job.run_policy.scheduling.priority_class]))


def _specs(job: TFJob) -> dict[str, Manifest]:
    """By role, that of its pods; of a role that it does not have, its chief's. The AIMaster's own pod goes anywhere."""
    chief = job.specs[job.chief or names.WORKER].template["spec"]
    types = {PS: names.PS, WORKER: names.WORKER}
    found = {role: job.specs[type_].template["spec"] if type_ in job.specs else chief for role, type_ in types.items()}
    evaluator = job.specs.get(names.EVALUATOR)
    other = evaluator.template["spec"] if evaluator else _aimaster(chief)
    return {CHIEF: chief, **found, OTHER: other}


def _aimaster(chief: Manifest) -> Manifest:
    requests = {"resources": {"requests": {"cpu": "1"}}}  # some
    return {"priorityClassName": chief.get("priorityClassName"), "containers": [requests]}


def _kueue(job: TFJob) -> tuple[str, bool]:
    """(LocalQueue, whether only its pods name it)."""
    if KUEUE_LABEL in job.labels:
        return str(job.labels[KUEUE_LABEL] or ""), False
    return _on_chief(job, "labels", KUEUE_LABEL), True


def _volcano(job: TFJob) -> str:
    """As it is written: where the operator itself makes PodGroups, the group knows better."""
    if job.specs[job.chief or names.WORKER].template["spec"].get("schedulerName") != VOLCANO:
        return ""
    return volcano_queue(job)


def volcano_queue(job: TFJob) -> str:
    """That its pods are in, if Volcano schedules them."""
    return job.run_policy.scheduling.queue or _on_chief(job, "annotations", VOLCANO_ANNOTATION) or VOLCANO_DEFAULT


def _on_chief(job: TFJob, kind: str, name: str) -> str:
    metadata = job.specs[job.chief or names.WORKER].template.get("metadata") or {}
    return str((metadata.get(kind) or {}).get(name) or "")


def _queue(job: TFJob, options: Elastic) -> str:
    return options.queue or _kueue(job)[0] or job.run_policy.scheduling.queue


def _arrived(manifest: Manifest, job: TFJob, allowance: Allowance | None) -> float:
    """Since when it is there, was resumed, or has been stopped by us."""
    resumed = (condition(job.status, SUSPENDED) or {}).get("lastTransitionTime")
    stopped = allowance.since if allowance is not None and not allowance.runs and _has_run(job) else 0.0
    return max(seconds(manifest["metadata"].get("creationTimestamp")), seconds(resumed), stopped)


def _deadline(manifest: Manifest, job: TFJob, options: Elastic) -> float:
    """Counted from its beginning, or from when it was made, as long as it has not begun; 0: it has none."""
    settings = dict(options.settings)
    lasts = float(settings.get("deadline_seconds", 0.0)) if settings.get("objective") == "deadline" else 0.0
    begun = seconds(job.status.get("startTime")) or seconds(manifest["metadata"].get("creationTimestamp"))
    return begun + lasts if lasts > 0 and begun else 0.0


def _has_run(job: TFJob) -> bool:
    return any(condition(job.status, type_) is not None for type_ in (RUNNING, RESTARTING))


# ---------------------------------------------------------------------------------------------------- with its pods


class Classes:
    """Priorities by name."""

    def __init__(self, classes: Iterable[ClassSeen], known: bool = True) -> None:
        """`known`: False where nobody may read them: then nothing is missing."""
        every = list(classes)
        self._values = {one.name: one.value for one in every}
        defaults = [one for one in every if one.default]
        self._default = max((one.value for one in defaults), default=0)
        self.default = max(defaults, key=lambda one: one.value).name if defaults else ""
        """That pods have which name none."""

        self._known = known

    def priority(self, bidder: Bidder, pods: Iterable[PodSeen]) -> int:
        """Of its chief's class, else of one that another role names; where that is not known, as its pods have it."""
        for name in bidder.classes:
            if name in self._values:
                return self._values[name]
        return max((pod.priority for pod in pods), default=self._default) if bidder.classes else self._default

    def missing(self, bidder: Bidder) -> tuple[str, ...]:
        return tuple(name for name in bidder.classes if name not in self._values) if self._known else ()

    def names(self) -> list[str]:
        return sorted(self._values, key=lambda name: -self._values[name])


class View(NamedTuple):
    """A pod of a job, and which role it has."""

    role: str
    pod: PodSeen


def views(bidder: Bidder, pods: Iterable[PodSeen]) -> list[View]:
    """Of those that it owns, of each type by index."""
    found = [pod for pod in pods if pod.owner == bidder.job.uid]
    return [View(_role(bidder, pod), pod) for pod in sorted(found, key=lambda pod: (pod.type, pod.number, pod.name))]


def _role(bidder: Bidder, pod: PodSeen) -> str:
    if pod.type == "ps":
        return PS
    if pod.type in ("chief", "master"):
        return CHIEF
    if pod.type == "worker":
        return CHIEF if pod.number == 0 and not bidder.job.chief else WORKER
    return OTHER


def sizes_of_pods(bidder: Bidder, found: Iterable[View]) -> Pods:
    """As the pods request that are there (the autoscaler may have made them larger than written), else as the templates do."""
    sizes = dict(bidder.requests)
    for role in (CHIEF, PS, WORKER):
        of_role = {
            id(view.pod.resources): view.pod.resources for view in found if view.role == role
        }  # one object for each size
        if of_role:
            sizes[role] = max(of_role.values(), key=lambda one: (one.cpu, one.memory_bytes, str(one.others)))
    return Pods(sizes[CHIEF], sizes[PS], sizes[WORKER], sizes[OTHER])


def job_of(
    bidder: Bidder, pods: Iterable[PodSeen], classes: Classes, queue: str, now: float, bounds: Bounds | None = None
) -> Job:
    """The `Job` that is decided about. `queue`: whose quota counts for it."""
    found = views(bidder, pods)
    options = bidder.options
    return Job(
        name=bidder.name, priority=classes.priority(bidder, (view.pod for view in found)), weight=options.weight,
        least=_least(options, found), most=Count(options.max_ps, options.max_workers),
        pods=sizes_of_pods(bidder, found),
        placed=tuple(Placed(view.role, view.pod.node) for view in found if view.pod.node),
        queue=queue, arrived=bidder.arrived, started=bidder.started, strict=bidder.strict, written=bidder.written,
        allowance=bidder.allowance, bid=bidder.bid, silent_seconds=_silence(bidder, found, now), deadline=bidder.deadline,
        bounds=bounds,
    )  # fmt: skip


def _least(options: Elastic, found: Iterable[View]) -> Count:
    """As written, but no less than the AIMaster that there is was started with: it would not go below that."""
    for view in found:
        if view.pod.least is not None:
            kept = view.pod.least
            return Count(
                max(options.min_ps, min(kept.ps, options.max_ps)),
                max(options.min_workers, min(kept.workers, options.max_workers)),
            )
    return Count(options.min_ps, options.min_workers)


def _silence(bidder: Bidder, found: Iterable[View], now: float) -> float:
    """Bids come when something has changed, so that none comes means nothing; the readiness of the AIMaster's pod does."""
    for view in found:
        if view.pod.type == AIMASTER:
            return 0.0 if view.pod.ready or not view.pod.ready_since else max(0.0, now - view.pod.ready_since)
    return max(0.0, now - bidder.bid.time) if bidder.bid is not None else 0.0
