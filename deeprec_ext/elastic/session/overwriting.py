"""A run of the script's that would set the live model back is held back: that part of it is not done, and it is told.

Many scripts run `tf.global_variables_initializer()`, or restore a checkpoint, right after they have opened their session, in
every process. Stock TensorFlow obeys, and a worker that is started again throws away all that was trained; here workers come
and go. A model that lives is initialised: the run returns as if it had been done, the script goes on, and what is the process's
own (its variables, tables, iterators) is done. What the model has never had the chief initialises, if the AIMaster says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from deeprec_ext.elastic.session.host import SessionHost
from deeprec_ext.elastic.session.placed import Signature
from deeprec_ext.elastic.session.usergraph import UserGraph
from deeprec_ext.errors import RefusedError
from deeprec_ext.graph import Overwrite
from deeprec_ext.units import counted, few

NAMED_MAX = 3
"""Variables that are named."""

_ASKS = ("VarIsInitializedOp", "IsVariableInitialized")


def restrained(
    overwrite: Overwrite, signature: Signature, user: UserGraph, host: SessionHost,
    run: Callable[[Sequence[str]], Sequence[Any]],
) -> Signature:  # fmt: skip
    """What is left of a run on a live model.

    Args:
      run: fetches tensors by name.

    Raises RefusedError where the rest of it needs what is held back.
    """
    if host.chief and (spared := _new(overwrite, user, host, run)):
        remaining = user.overwrites(signature, spared)
        if remaining is None:
            return signature
        overwrite = remaining
    if overwrite.entangled:
        reason = entangled(overwrite)
        host.refused(reason)
        raise RefusedError(reason)
    host.notice(*notice(overwrite), mended=not overwrite.restores)
    needed = user.upstream((*signature.fetches, *overwrite.targets))
    feeds = tuple(feed for feed in signature.feeds if feed.split(":")[0] in needed)
    return Signature(feeds, signature.fetches, overwrite.targets)


def _new(
    overwrite: Overwrite, user: UserGraph, host: SessionHost, run: Callable[[Sequence[str]], Sequence[Any]]
) -> frozenset[str]:
    """Variables that nobody has initialised, and that the AIMaster says are new."""
    asked = {name: tensor for name in overwrite.variables if (tensor := _asks(user.graph, name)) is not None}
    there = run(tuple(asked.values())) if asked else ()
    absent = [name for name, is_there in zip(asked, there) if not np.all(is_there)]
    if not absent:
        return frozenset()
    parts = {name: user.on_ps(user.graph.get_operation_by_name(name)) for name in absent}
    new = host.new_variables([part for some in parts.values() for part in some])
    return frozenset(name for name, some in parts.items() if some and new.issuperset(some))


def _asks(graph: tf.Graph, variable: str) -> str | None:
    """A tensor of the script's graph that tells whether a variable is initialised."""
    consumers = graph.get_operation_by_name(variable).outputs[0].consumers()
    return next((one.outputs[0].name for one in consumers if one.type in _ASKS), None)


def notice(overwrite: Overwrite) -> tuple[str, str, str]:
    """Code, text and remedy; the same from every process."""
    variables = f"{counted(len(overwrite.variables), 'variable')} ({few(overwrite.variables, NAMED_MAX)})"
    if overwrite.restores:
        return (
            "restore-held-back",
            f"the script restores a checkpoint over the live model; that was held back: {variables} of it stay as they are",
            "only the chief restores, before training begins: give checkpoint_dir to MonitoredTrainingSession, or init_fn to "
            "its scaffold",
        )  # fmt: skip
    return (
        "initialisation-held-back",
        f"the script initialises the live model once more; that was held back: {variables} of it stay as they are",
        "only the chief initialises: give init_op to MonitoredTrainingSession's scaffold, or leave it out",
    )  # fmt: skip


def entangled(overwrite: Overwrite) -> str:
    """Why the run is refused."""
    verb = "restores" if overwrite.restores else "initialises"
    return (
        f"a run of the script {verb} {few(overwrite.variables, NAMED_MAX)} of the live model, and "
        f"{few(overwrite.entangled, NAMED_MAX)} in the same run needs that: nothing is overwritten without the "
        "AIMaster's order; initialise in the scaffold of MonitoredTrainingSession, and run apart what else is to be done"
    )
