"""The weights in a `.keras` file, which Keras makes in memory before it puts them into the archive: here, in a file beside it.

That file has no name: of a process that dies while it saves nothing stays.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from typing import IO, Any

COPIED_BYTES = 1 << 20
"""At once, into the archive."""


def open_on_disk(original: Callable[..., Any], store: Any, *args: Any, **words: Any) -> None:
    """Around `__init__` of Keras's store of weights."""
    original(store, *args, **words)
    if store.archive is None or store.mode != "w" or store.io_file is None:
        return
    file = _nameless(store.archive.filename)
    store.h5_file.close()
    store.io_file.close()
    store.h5_file, store.io_file = sys.modules["h5py"].File(file, mode="w"), None
    store._deeprec_ext_file = file


def _nameless(beside: Any) -> IO[bytes]:
    """Of a file without a name, the number of its descriptor may be given, or nothing."""
    try:
        return tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(beside)) if isinstance(beside, str) else None)
    except OSError:  # a directory in which nothing new can be made
        return tempfile.TemporaryFile()


def close_into_archive(original: Callable[..., Any], store: Any) -> None:
    """Around `close` of the same."""
    file = vars(store).pop("_deeprec_ext_file", None)
    if file is None:
        original(store)
        return
    archive, store.archive = store.archive, None
    with file:
        original(store)
        if archive is None:  # saving has failed, and Keras leaves them out
            return
        entry = zipfile.ZipInfo(str(getattr(store, "path_or_io", None) or store.root_path), time.localtime()[:6])
        entry.file_size = file.seek(0, os.SEEK_END)
        entry.external_attr = 0o600 << 16
        file.seek(0)
        with archive.open(entry, "w") as member:
            shutil.copyfileobj(file, member, COPIED_BYTES)
