"""torch is imported in a worker of a job without PS: what a DDP script calls of it stands for the job from now on."""

from __future__ import annotations

import importlib
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from deeprec_ext import env
from deeprec_ext.elastic.member import joined
from deeprec_ext.tf_private.wrapping import seen, wrap

log = logging.getLogger("deeprec_ext")

WATCHED = {
    "torch.optim": ("Optimizer",),
    "torch.optim.lr_scheduler": (
        "LRScheduler",
        "_LRScheduler",
        "ReduceLROnPlateau",
        "SequentialLR",
        "ChainedScheduler",
    ),
    "torch.optim.swa_utils": ("AveragedModel",),
    "torch.cuda.amp": ("GradScaler",),
    "torch.amp": ("GradScaler",),
}
"""Classes whose state a newcomer is given, where a release has them."""

REFUSED = {
    "torch.distributed.fsdp": ("FullyShardedDataParallel", "fully_shard"),
    "torch.distributed.optim": ("ZeroRedundancyOptimizer",),
    "torch.distributed.rpc": ("init_rpc",),
    "torch.distributed.pipelining": ("pipeline",),
    "torch.distributed.tensor.parallel": ("parallelize_module",),
    "torch.distributed.algorithms.join": ("Join",),
    "torch.nn": ("SyncBatchNorm",),
}
"""What shards a model or needs process groups of its own: refused when it is used, by its name."""

NOT_FOLLOWED = (
    "{} cannot be followed where workers come and go: each of them has the whole model, in DistributedDataParallel, and sums "
    "its gradients with the others"
)


def torch_imported(torch: Any) -> None:
    if seen(torch):
        return
    _tell_environment()
    groups = importlib.import_module("deeprec_ext.torch.process_groups")
    wrapped = importlib.import_module("deeprec_ext.torch.wrapped")
    sampling = importlib.import_module("deeprec_ext.torch.sampling")
    replica = importlib.import_module("deeprec_ext.torch.replica")
    for place in ("torch.distributed", "torch.distributed.distributed_c10d"):
        module = importlib.import_module(place)
        for name, standin in groups.STANDINS.items():
            setattr(module, name, standin)
        for name in groups.REFUSED:
            if hasattr(module, name):
                setattr(module, name, groups.refusal(name))
    for place in ("torch.nn.parallel", "torch.nn.parallel.distributed"):
        importlib.import_module(place).DistributedDataParallel = wrapped.DistributedDataParallel  # type: ignore[attr-defined]
    for place in ("torch.utils.data", "torch.utils.data.distributed"):
        importlib.import_module(place).DistributedSampler = sampling.DistributedSampler  # type: ignore[attr-defined]
    wrap(torch.utils.data.DataLoader, "__iter__", sampling.iterated)
    wrap(torch, "save", _save)
    for place in ("torch.multiprocessing", "torch.multiprocessing.spawn"):
        module = importlib.import_module(place)
        if callable(getattr(module, "spawn", None)):
            module.spawn = spawn  # type: ignore[attr-defined]
    _let_step_nothing()
    for place, names in WATCHED.items():
        _watch(importlib.import_module(place), names, replica.REPLICA.snapshot.watch)
    _refuse(torch.nn, REFUSED["torch.nn"])


def launcher_imported(module: Any) -> None:
    """`torch.distributed.run`, which is `torchrun`."""
    wrap(module, "main", lambda original, *args, **words: joined.give_up(
        "torchrun starts processes itself, and here the job does: leave it out, deeprec-ext run --strategy allreduce "
        "--workers N -- python train.py"
    ))  # fmt: skip


def refused_imported(module: Any) -> None:
    """One of `REFUSED`."""
    _refuse(module, REFUSED[module.__name__])


def spawn(fn: Callable[..., Any], args: tuple[Any, ...] = (), nprocs: int = 1, join: bool = True, **words: Any) -> Any:
    """`torch.multiprocessing.spawn`: of its processes this is one, that of this worker's rank; others are the job's workers."""
    replica = importlib.import_module("deeprec_ext.torch.replica").REPLICA
    log.info("torch.multiprocessing.spawn: this process runs %s as rank %d", getattr(fn, "__name__", fn), replica.rank)
    fn(replica.rank, *args)
    return None if join else _Ran()


class _Ran:
    def join(self, timeout: Any = None) -> bool:
        return True


def _tell_environment() -> None:
    """As torchrun has it. In a pod a worker is alone on its machine."""
    rank = 0 if env.role() == "chief" else env.index() + 1
    size, here = env.workers() + 1, env.address() is not None
    told = {
        "RANK": rank, "WORLD_SIZE": max(size, rank + 1), "LOCAL_RANK": 0 if here else rank,
        "LOCAL_WORLD_SIZE": 1 if here else max(size, rank + 1), "GROUP_RANK": rank if here else 0,
    }  # fmt: skip
    os.environ.update({name: str(value) for name, value in told.items()})
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")  # nobody connects to it
    os.environ.setdefault("MASTER_PORT", "29500")


def _save(original: Callable[..., Any], *args: Any, **words: Any) -> Any:
    """Behind a pass that the others have had before, with later ones after it: a file that is there has been saved then, or
    later. One that is not may have been renamed, so the script finds it: with the model as the others have it by now."""
    replica = importlib.import_module("deeprec_ext.torch.replica").REPLICA
    file = args[1] if len(args) > 1 else words.get("f")
    if replica.is_behind and isinstance(file, (str, os.PathLike)) and os.path.exists(file):
        log.info("torch.save to %s is left out: the job is further, and this process comes after it", file)
        return None
    return original(*args, **words)


def _watch(module: Any, names: tuple[str, ...], told: Callable[[Any], None]) -> None:
    def made(original: Callable[..., Any], one: Any, *args: Any, **words: Any) -> None:
        original(one, *args, **words)
        told(one)

    for kind in {getattr(module, name) for name in names if hasattr(module, name)}:
        if "__init__" in kind.__dict__:
            wrap(kind, "__init__", made)


def _let_step_nothing() -> None:
    """A step in which nothing was summed leaves no gradients, at which GradScaler raises; and a job makes more steps than a
    DataLoader has batches, where its workers come and go, which OneCycleLR does not bear."""
    skipped: weakref.WeakSet[Any] = weakref.WeakSet()

    def step(original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **words: Any) -> Any:
        if all(one.grad is None for group in optimizer.param_groups for one in group["params"]):
            skipped.add(scaler)
            return None
        skipped.discard(scaler)
        return original(scaler, optimizer, *args, **words)

    def update(original: Callable[..., Any], scaler: Any, *args: Any, **words: Any) -> None:
        if scaler in skipped:
            skipped.discard(scaler)
        else:
            original(scaler, *args, **words)

    def unscale(original: Callable[..., Any], scaler: Any, optimizer: Any) -> None:
        if any(one.grad is not None for group in optimizer.param_groups for one in group["params"]):
            original(scaler, optimizer)

    def schedule(original: Callable[..., Any], one: Any, *args: Any, **words: Any) -> None:
        if one.last_epoch < one.total_steps:
            original(one, *args, **words)
        elif one not in skipped:
            skipped.add(one)
            log.info("OneCycleLR has made its %d steps: the learning rate stays as it is", one.total_steps)

    scaler = importlib.import_module("torch.cuda.amp").GradScaler
    scaler = next((one for one in scaler.__mro__ if one.__module__.startswith("torch.amp")), scaler)
    for name, around in (("step", step), ("update", update), ("unscale_", unscale)):
        wrap(scaler, name, around)
    wrap(importlib.import_module("torch.optim.lr_scheduler").OneCycleLR, "step", schedule)


def _refuse(module: Any, names: tuple[str, ...]) -> None:
    for name in names:
        one, refused = getattr(module, name, None), _refused(f"{module.__name__}.{name}")
        if isinstance(one, type):  # a script may ask `isinstance` of it
            for method in ("__init__", "convert_sync_batchnorm"):
                if hasattr(one, method):
                    setattr(one, method, refused)
        elif one is not None:
            setattr(module, name, refused)


def _refused(what: str) -> Callable[..., NoReturn]:
    def refused(*args: Any, **words: Any) -> NoReturn:
        joined.give_up(NOT_FOLLOWED.format(what))

    return refused
