"""`torch.distributed` of a script: the default group is the job, as it is now; what cannot be followed is refused by name."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from deeprec_ext.elastic.member import joined
from deeprec_ext.torch.beginning import ALL_REDUCE, BARRIER, BROADCAST
from deeprec_ext.torch.replica import REPLICA

_OPERATORS = ("MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR")

REFUSED = (
    "new_group", "new_subgroups", "split_group", "init_device_mesh",
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_coalesced", "gather", "gather_object",
    "scatter", "scatter_object_list", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single",
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list",
    "all_reduce_coalesced", "broadcast_object_list",
)  # fmt: skip
"""Functions of `torch.distributed`, where a release has them."""

NO_OPERATION = (
    "torch.distributed.{} cannot be followed where workers come and go: of a job's own sums there are all_reduce (SUM, AVG), "
    "reduce, broadcast and barrier"
)


@dataclass(frozen=True)
class Membership:
    """Of this process, now.

    Attributes:
      rank: 0 is the chief; a worker keeps its own, so ranks may have gaps. size: members of the present ring. step: sums that
        are behind this process, -1 before it has what the others have.
    """

    rank: int
    size: int
    step: int


def membership() -> Membership:
    """Raises RuntimeError before `init_process_group`."""
    return Membership(REPLICA.rank, REPLICA.size, REPLICA.here.step)


def init_process_group(
    backend: Any = None, init_method: Any = None, timeout: Any = None, world_size: int = -1, rank: int = -1, store: Any = None,
    group_name: str = "", pg_options: Any = None, **more: Any,
) -> None:  # fmt: skip
    """This process takes part in its job, whatever the arguments say. At the job's beginning it waits for the others that the
    job begins with, two minutes at the most."""
    REPLICA.join()


def destroy_process_group(group: Any = None) -> None:
    REPLICA.leave()


def is_initialized() -> bool:
    return REPLICA.member is not None


def get_rank(group: Any = None) -> int:
    _default(group)
    _ = REPLICA.here
    return REPLICA.rank


def get_world_size(group: Any = None) -> int:
    _default(group)
    _ = REPLICA.here
    return REPLICA.size


def get_backend(group: Any = None) -> str:
    _ = REPLICA.here
    return "gloo"


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    """Before the first step it is of the processes that begin together; who comes later waits for the first that trains."""
    _default(group)
    REPLICA.collective(np.zeros(1, np.float32), 1.0, BARRIER)
    return _done(async_op)


def monitored_barrier(
    group: Any = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    barrier(group)


def all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """SUM and AVG. Who has not trained with the others yet keeps what it has."""
    _default(group)
    _ = REPLICA.here
    _put(tensor, _reduced(tensor, op, "all_reduce"))
    return _done(async_op)


def reduce(
    tensor: Any, dst: int | None = None, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False, **more: Any
) -> Any:  # fmt: skip
    _default(group)
    found = _reduced(tensor, op, "reduce")
    if REPLICA.rank == dst:
        _put(tensor, found)
    return _done(async_op)


def broadcast(tensor: Any, src: int | None = None, group: Any = None, async_op: bool = False, **more: Any) -> Any:
    """Of rank `src`; where it is not here, of the first that is. Who comes later has what was broadcast before the first step;
    in epochs that are over it keeps what it has."""
    _default(group)
    member = REPLICA.here
    held = tensor.detach().cpu().contiguous()
    exact = held.dtype in (torch.float32, torch.float64)
    values = held.reshape(-1) if exact else _bytes(held)
    summed = REPLICA.collective(values.numpy(), float(REPLICA.rank == src), BROADCAST)
    if summed is not None and not summed.weight:
        summed = REPLICA.collective(values.numpy(), float(REPLICA.place[1] == 0), BROADCAST)
    if summed is None and not isinstance(tensor, torch.nn.Parameter):
        member.notice(
            "broadcast-alone", "a torch.distributed.broadcast that the others have had before gives this process its own",
            "take what has to be alike from the command line, a file or a fixed seed; what is broadcast before the first step, "
            "up to 16 MiB, is handed on, and weights need no broadcast",
        )  # fmt: skip
    if summed is not None and summed.weight:
        came = torch.from_numpy(np.ascontiguousarray(summed.arrays[0]))
        if not exact:
            came = came.to(torch.uint8).view(held.dtype)
        with torch.no_grad():
            tensor.copy_(came.reshape(held.shape))
    return _done(async_op)


def _bytes(held: Any) -> Any:
    """Each as a float32, which has all of them exactly."""
    return held.reshape(-1).view(torch.uint8).to(torch.float32)


def _reduced(tensor: Any, op: Any, name: str) -> Any:
    """None: it is as it was."""
    if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        said = next((one for one in _OPERATORS if op == getattr(dist.ReduceOp, one)), str(op))
        joined.give_up(NO_OPERATION.format(f"{name} with ReduceOp.{said}"))
    if not REPLICA.snapshot.models:
        joined.give_up(
            f"torch.distributed.{name} before a model is in DistributedDataParallel: gradients that a script sums by itself "
            "cannot be followed where workers come and go; wrap the model in DistributedDataParallel"
        )
    held = tensor.detach().cpu()
    kind = torch.float32 if held.dtype in (torch.float16, torch.bfloat16) else torch.float64
    summed = REPLICA.collective(held.to(kind).reshape(-1).contiguous().numpy(), 1.0, ALL_REDUCE)
    if summed is None:
        return None
    mean = torch.from_numpy(np.ascontiguousarray(summed.arrays[0]))
    found = mean if op != dist.ReduceOp.SUM else mean * summed.weight
    return (found if tensor.is_floating_point() else found.round()).reshape(tensor.shape)


def _put(tensor: Any, found: Any) -> None:
    if found is not None:
        with torch.no_grad():
            tensor.copy_(found)


class _Done:
    """Of an operation that was asked for with `async_op`."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


def _done(async_op: bool) -> Any:
    return _Done() if async_op else None


def _default(group: Any) -> None:
    if group is not None and group is not getattr(dist.group, "WORLD", None):
        joined.give_up(NO_OPERATION.format("ProcessGroup (a group of some of the processes)"))


def refusal(name: str) -> Callable[..., NoReturn]:
    def refused(*args: Any, **words: Any) -> NoReturn:
        joined.give_up(NO_OPERATION.format(name))

    return refused


STANDINS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        init_process_group, destroy_process_group, is_initialized, get_rank, get_world_size, get_backend, barrier,
        monitored_barrier, all_reduce, reduce, broadcast,
    )
}  # fmt: skip
"""By their names in `torch.distributed`."""
