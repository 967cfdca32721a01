"""A file that is written anew replaces the one that was there when it is complete, as nobody would lose a good one to a bad.

Keras writes in place. Where rows come from PS, more can fail while it writes, and it takes longer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

SUFFIXES = (".keras", ".h5", ".hdf5")
"""Of what is one file. A checkpoint of TensorFlow is complete before it gets its name, whoever writes it."""

_FORMATS = (None, "h5", "hdf5", "keras")
"""Of Keras 2, where they are named: TensorFlow's own may have any suffix."""
_BESIDE = ".new."


@contextmanager
def replacing(args: Sequence[Any], words: Mapping[str, Any]) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
    """Gives the arguments to save with: into a file beside the one that is meant, which becomes that one at the end. It is
    removed if an exception passes; a process that is killed leaves it behind, and the next that saves writes over it.

    Args:
      args, words: of a method of Keras by which a model is saved, without the model: `filepath` and `overwrite` first.
    """
    given = {**dict(zip(("filepath", "overwrite"), args)), **words}
    path, asks = given.get("filepath"), not given.get("overwrite", True)
    place = os.path.realpath(path) if isinstance(path, (str, os.PathLike)) else ""
    other = len(args) > 2 or given.get("save_format") not in _FORMATS or given.get("max_shard_size") is not None
    if asks or other or not _is_one_file(place):
        yield args, words
        return
    beside = os.path.join(os.path.dirname(place), _BESIDE + os.path.basename(place))
    try:
        yield ((beside, *args[1:]), words) if args else (args, {**words, "filepath": beside})
        if os.path.exists(place):
            shutil.copymode(place, beside)
        os.replace(beside, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def _is_one_file(place: str) -> bool:
    """Whether it is, or can be, on a disk of this machine, with another beside it."""
    free = os.path.isfile(place) or not os.path.lexists(place)
    return place.endswith(SUFFIXES) and free and os.access(os.path.dirname(place), os.W_OK)
