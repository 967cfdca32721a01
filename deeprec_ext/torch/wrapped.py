"""`DistributedDataParallel`: after a backward pass each gradient is the mean of what all members have found, by records.

The sum is the job's own ring over the host's memory (`allreduce`), so that it survives the death of a member; of a model on a
GPU gradients are copied to pinned memory and back. Parameters that no member has used keep no gradient. Buffers that are
numbers with a fraction (statistics of a normalisation) are averaged in the same sum, where PyTorch takes those of rank 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from deeprec_ext.allreduce.ring import Array
from deeprec_ext.elastic.member import joined
from deeprec_ext.torch.replica import REPLICA


class DistributedDataParallel(torch.nn.Module):  # type: ignore[misc]
    """As PyTorch's. `device_ids` of one device moves inputs there; all other arguments after it that are about speed are taken
    and not used. `find_unused_parameters` need not be said."""

    def __init__(
        self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, broadcast_buffers: bool = True,
        process_group: Any = None, bucket_cap_mb: Any = None, find_unused_parameters: bool = False, **about_speed: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        _ = REPLICA.here
        if device_ids is not None and len(device_ids) > 1:
            joined.give_up(
                "DistributedDataParallel with several device_ids: a worker has one device; start more workers"
            )
        self._trained = [one for one in module.parameters() if one.requires_grad]
        if not self._trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
            )
        self.module = module
        self.device_ids, self.output_device, self.dim = device_ids, output_device, dim
        self.broadcast_buffers = broadcast_buffers
        self.require_backward_grad_sync = True
        self.find_unused_parameters = find_unused_parameters
        self._sums = self._queued = False
        on_device = self._trained[0].is_cuda
        self._device = self._trained[0].device if device_ids and on_device else None
        self._kind = torch.float64 if any(one.dtype == torch.float64 for one in self._trained) else torch.float32
        self._accumulators = [one.expand_as(one).grad_fn.next_functions[0][0] for one in self._trained]
        for one in self._accumulators:
            one.register_hook(self._accumulated)
        REPLICA.snapshot.holds(self)

    def forward(self, *inputs: Any, **words: Any) -> Any:
        self._queued = False  # a backward pass may have failed
        self._sums = self.require_backward_grad_sync
        if self._device is not None:
            inputs, words = _moved(inputs, self._device), _moved(words, self._device)
        return self.module(*inputs, **words)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, **words: Any) -> Iterator[None]:
        """Nothing is to be done for it: whoever has no records takes part in the sums of the others."""
        yield

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        joined.give_up(
            "register_comm_hook: gradients are summed in the job's own ring, without a process group that a hook could use; "
            "leave it out"
        )

    def __getstate__(self) -> dict[str, Any]:
        joined.give_up("a DistributedDataParallel model is pickled or copied whole: save model.module.state_dict()")

    # ------------------------------------------------------------------------------------------------ sums

    @property
    def exact(self) -> int:
        """Of `_arrays`, so many of the last ones are no gradients."""
        return len(self._statistics()) + 1

    def _accumulated(self, *_: Any) -> None:
        """Of one parameter, within a backward pass."""
        if not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._ended)

    def _ended(self) -> None:
        """The backward pass has."""
        self._queued = False
        if not self._sums:
            REPLICA.accumulates = True
            return
        with torch.no_grad():
            self._take(REPLICA.reduce(self._arrays(), self.exact))

    def _arrays(self) -> list[Array]:
        given = [self._host(one.grad, one) for one in self._trained]
        used = np.array([one.grad is not None for one in self._trained], given[0].dtype)
        return [*given, *(self._host(one, one) for one in self._statistics()), used]

    def _take(self, means: list[Array] | None) -> None:
        if means is None:
            for one in self._trained:
                one.grad = None
            return
        statistics, used = self._statistics(), means[-1]
        for one, mean, is_used in zip(self._trained, means, used):
            if not is_used:
                one.grad = None
                continue
            if one.grad is None:
                one.grad = torch.empty_like(one)
            one.grad.copy_(torch.from_numpy(mean))
        for one, mean in zip(statistics, means[len(self._trained) :]):
            one.copy_(torch.from_numpy(mean))

    def _statistics(self) -> list[Any]:
        return [one for one in self.module.buffers() if one.is_floating_point()] if self.broadcast_buffers else []

    def _host(self, given: Any, like: Any) -> Array:
        """As an array; zeros where there is none."""
        if given is None:
            zeros: Array = np.zeros(tuple(like.shape), np.float64 if self._kind == torch.float64 else np.float32)
            return zeros
        if given.is_sparse:
            joined.give_up("an embedding with sparse=True: its gradients are sparse; leave sparse=True out")
        found = given.detach()
        if found.is_cuda:
            found = torch.empty(found.shape, dtype=found.dtype, pin_memory=True).copy_(found)
        array: Array = found.to(self._kind).contiguous().numpy()
        return array


def _moved(given: Any, device: Any) -> Any:
    if isinstance(given, torch.Tensor):
        return given.to(device, non_blocking=True)
    if type(given) in (list, tuple):
        return type(given)(_moved(one, device) for one in given)
    if type(given) is dict:
        return {name: _moved(one, device) for name, one in given.items()}
    return given
