"""Drop-in for scripts that were written for Horovod: `import deeprec_ext.horovod as hvd`, for all its flavours of TensorFlow.

In a job of `deeprec-ext run --strategy allreduce -- python train.py` its processes are Horovod's ranks, which come, go and die
as those of a job do; without a job there is one. `world`: calls of all together, on `rings`, with `words` of all, and what
those `before` the first step gave; `reducing`: operations; `distributed`: optimizers and tapes; `monitored`: of sessions;
`committed`, `resets`: `hvd.elastic`. `tensorflow`, `tensorflow.keras` and `keras` are names for the same. What is not followed
is refused by name.
"""

from __future__ import annotations

from typing import Any, NoReturn

from deeprec_ext.errors import RefusedError
from deeprec_ext.horovod import callbacks as callbacks
from deeprec_ext.horovod import resets as elastic
from deeprec_ext.horovod.distributed import (
    DistributedGradientTape,
    DistributedOptimizer,
    PartialDistributedGradientTape,
    load_model,
)  # fmt: skip
from deeprec_ext.horovod.monitored import BroadcastGlobalVariablesHook
from deeprec_ext.horovod.reducing import (
    Adasum,
    Average,
    Compression,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_object,
    allreduce,
    broadcast,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    global_process_set,
    grouped_allreduce,
)  # fmt: skip
from deeprec_ext.horovod.world import WORLD, HorovodInternalError, HostsUpdatedInterrupt


def init(*args: Any, **kwargs: Any) -> None:
    """Into the job; at its beginning waits for all processes that it begins with."""
    if args or any(value is not None for value in kwargs.values()):
        raise RefusedError("hvd.init is given a communicator or process sets, which are not followed: leave them out")
    WORLD.init()


def shutdown() -> None:
    """The others go on without this process."""
    WORLD.shutdown()


def is_initialized() -> bool:
    return WORLD.initialised


def size() -> int:
    """Processes of the present ring; before the first call, those that there will be."""
    return len(WORLD.addresses)


def rank() -> int:
    """This process's place among them."""
    return WORLD.rank


def local_size() -> int:
    """Processes on this machine."""
    return len(_local())


def local_rank() -> int:
    return _local().index(WORLD.rank)


def cross_size() -> int:
    """Machines."""
    return len(set(WORLD.hosts))


def cross_rank() -> int:
    return list(dict.fromkeys(WORLD.hosts)).index(WORLD.hosts[WORLD.rank])


def _local() -> list[int]:
    hosts = WORLD.hosts
    return [at for at, host in enumerate(hosts) if host == hosts[WORLD.rank]]


def is_homogeneous() -> bool:
    """Whether each machine has as many processes."""
    hosts = WORLD.hosts
    return len({hosts.count(one) for one in hosts}) == 1


def _built(name: str, value: Any) -> Any:
    def built(*args: Any, **kwargs: Any) -> Any:
        return value

    built.__name__, built.__doc__ = (
        name,
        "Of Horovod's transports there is none; what crosses does so by DeepRec Extension's ring.",
    )
    return built


mpi_threads_supported = _built("mpi_threads_supported", False)
mpi_enabled, mpi_built = _built("mpi_enabled", False), _built("mpi_built", False)
gloo_enabled, gloo_built = _built("gloo_enabled", False), _built("gloo_built", False)
nccl_built, ddl_built, ccl_built = _built("nccl_built", 0), _built("ddl_built", False), _built("ccl_built", False)
cuda_built, rocm_built = _built("cuda_built", False), _built("rocm_built", False)

_REFUSED = {
    "alltoall": "gather with hvd.allgather and take what is this rank's",
    "reducescatter": "use hvd.allreduce and take this rank's part",
    "grouped_reducescatter": "use hvd.grouped_allreduce and take this rank's part",
    "grouped_allgather": "call hvd.allgather for each",
    "join": "leave it out: nobody waits for a process that has ended",
    "add_process_set": "calls are of all processes",
    "remove_process_set": "calls are of all processes",
    "ProcessSet": "calls are of all processes",
    "SyncBatchNormalization": "use Keras's own BatchNormalization, whose statistics are each process's",
    "start_timeline": "deeprec-ext report RUNDIR says where time goes",
    "stop_timeline": "deeprec-ext report RUNDIR says where time goes",
    "run": "start the script by deeprec-ext run --strategy allreduce --workers N -- python train.py",
    "size_op": "use hvd.size() outside of tf.function",
    "rank_op": "use hvd.rank() outside of tf.function",
    "local_size_op": "use hvd.local_size() outside of tf.function",
    "local_rank_op": "use hvd.local_rank() outside of tf.function",
}


def _refused(name: str, remedy: str) -> Any:
    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise RefusedError(f"hvd.{name} is not followed: {remedy}")

    return refused


def __getattr__(name: str) -> Any:
    if name in _REFUSED:
        return _refused(name, _REFUSED[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Adasum", "Average", "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape", "DistributedOptimizer",
    "HorovodInternalError", "HostsUpdatedInterrupt", "Max", "Min", "PartialDistributedGradientTape", "Product", "Sum",
    "allgather", "allgather_object", "allreduce", "broadcast", "broadcast_", "broadcast_global_variables", "broadcast_object",
    "broadcast_object_fn", "broadcast_variables", "callbacks", "ccl_built", "cross_rank", "cross_size", "cuda_built",
    "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled", "grouped_allreduce", "init", "is_homogeneous",
    "is_initialized", "load_model", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built", "rank", "rocm_built", "shutdown", "size",
]  # fmt: skip
