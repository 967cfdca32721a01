"""What is of Keras 2 alone: how its models step, which variables they have, and what of it cannot be traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from deeprec_ext.keras import ownership, unmade
from deeprec_ext.keras.optimizers import optimizers
from deeprec_ext.tf_private import keras_classes
from deeprec_ext.tf_private.eager import has_handle, not_converted
from deeprec_ext.tf_private.keras_classes import unwrapped

NUMBER = 2
APPLIES = "apply_gradients"
"""Of an optimizer: what all its steps go through."""
GIVES_LAST = False
"""Where the input ends within an execution of several steps, it ends there, whatever steps have been made."""


def step(model: Any, kind: str) -> Callable[[Any], Any]:
    """As Keras runs it on one batch."""

    @not_converted
    def run(batch: Any) -> Any:
        outputs = getattr(model, f"{kind}_step")(batch)
        tensors = (one for one in tf.nest.flatten(outputs, expand_composites=True) if tf.is_tensor(one))
        first = next((one for one in tensors if not isinstance(one, tf.Variable)), None)
        with tf.control_dependencies([first] if first is not None else []):  # only a step that succeeds counts
            keras_classes.counter(model, kind).assign_add(1)
        return outputs

    return run


def weights(model: Any) -> list[Any]:
    """In their order; without those of metrics, which Keras lists among them."""
    metrics = {ownership.key(unwrapped(one)) for metric in model.metrics for one in metric.variables}
    found = (unwrapped(one) for one in model.weights if has_handle(unwrapped(one)))
    return [one for one in found if ownership.key(one) not in metrics and not ownership.is_metric(one)]


def counters(model: Any) -> list[Any]:
    """Of batches, in this process."""
    return [keras_classes.counter(model, kind) for kind in keras_classes.COUNTERS]


def optimizer_variables(model: Any) -> list[Any]:
    found: list[Any] = []
    for one in optimizers(model):
        variables = one.variables() if callable(one.variables) else one.variables
        found += [unwrapped(variable) for variable in (one.iterations, *variables)]
    return list({ownership.key(one): one for one in found}.values())


def filling(model: Any) -> AbstractContextManager[None]:
    """Within, what optimizers keep of tables without storage has none: they fill it by themselves, so they do it in a graph."""
    own = [one for one in optimizers(model) if keras_classes.is_own(getattr(type(one), "build", None))]
    held = [one for one in own if not getattr(one, "use_ema", False)]
    return unmade.building(held, unwrapped, lambda: unmade.Filling().as_default())


@contextmanager
def traceable(model: Any) -> Iterator[None]:
    """Within, its steps can be traced and taken apart."""
    with filling(model), keras_classes.without_xla(model, optimizers(model)):
        yield


def steps_per_execution(model: Any) -> int:
    return keras_classes.steps_per_execution(model)


def named(model: Any, results: Any) -> dict[str, Any]:
    """The values of an evaluation by name, whichever way it gave them."""
    if isinstance(results, dict):
        return results
    return dict(zip(model.metrics_names, results if isinstance(results, (list, tuple)) else [results]))


def trained(model: Any) -> list[Any]:
    return [unwrapped(one) for one in model.trainable_variables]


def gradients_of(
    original: Callable[..., Any], args: Sequence[Any], words: Mapping[str, Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Of a call of `APPLIES`: the gradients with the shapes of their variables, None for a variable without one, and how it is
    called with others."""
    rest = dict(words)
    pairs = list(args[0] if args else rest.pop("grads_and_vars"))
    return [(one, unwrapped(variable).shape) for one, variable in pairs], lambda means: original(
        [(mean, variable) for mean, (_, variable) in zip(means, pairs)], *args[1:], **rest
    )
