"""TensorFlow's runtime without its Python API, for a PS: a third of the start-up time, and 160 MB less memory.

`import tensorflow` imports every public module, Keras among them: two seconds of processor time, which a scaling and a
recovery wait for, and a PS uses nothing of it. `install` puts a module named `tensorflow` in its place that has the names of
`_SOURCES`, each imported from the submodule that defines it when it is first asked for. Any other public name still works: the
whole of TensorFlow is imported then, and the log says for which name.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import logging
import os
import site
import sys
import sysconfig
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

log = logging.getLogger("deeprec_ext")

NAME = "tensorflow"

_importing = threading.RLock()

_DTYPES = (
    "DType", "as_dtype", "bfloat16", "bool", "float16", "float32", "float64", "int32", "int64", "resource", "string",
    "uint32", "uint64", "uint8", "variant",
)  # fmt: skip
_FILES = {
    "makedirs": "recursive_create_dir_v2", "isdir": "is_directory_v2", "listdir": "list_directory_v2", "stat": "stat_v2",
    "rename": "rename_v2", "remove": "delete_file_v2", "exists": "file_exists_v2", "glob": "get_matching_files_v2",
}  # fmt: skip

_SOURCES: dict[str, tuple[str, str]] = {
    "__version__": ("python.framework.versions", "VERSION"),
    "errors": ("python.framework.errors", ""),
    "Graph": ("python.framework.ops", "Graph"),
    "Operation": ("python.framework.ops", "Operation"),
    "Tensor": ("python.framework.tensor", "Tensor"),
    "TensorShape": ("python.framework.tensor_shape", "TensorShape"),
    "make_ndarray": ("python.framework.tensor_util", "MakeNdarray"),
    "make_tensor_proto": ("python.framework.tensor_util", "make_tensor_proto"),
    "load_op_library": ("python.framework.load_library", "load_op_library"),
    "train.ClusterSpec": ("python.training.server_lib", "ClusterSpec"),
    "compat.v1.errors": ("python.framework.errors", ""),
    "compat.v1.Graph": ("python.framework.ops", "Graph"),
    "compat.v1.GraphKeys": ("python.framework.ops", "GraphKeys"),
    "compat.v1.Session": ("python.client.session", "Session"),
    "compat.v1.GraphDef": ("core.framework.graph_pb2", "GraphDef"),
    "compat.v1.NodeDef": ("core.framework.node_def_pb2", "NodeDef"),
    "compat.v1.ConfigProto": ("core.protobuf.config_pb2", "ConfigProto"),
    "io.gfile.GFile": ("python.platform.gfile", "GFile"),
    **{name: ("python.framework.dtypes", name) for name in _DTYPES},
    **{f"io.gfile.{name}": ("python.lib.io.file_io", definition) for name, definition in _FILES.items()},
}
"""Name below `tensorflow` -> its submodule, and the name there ("": the module itself)."""

_KERNELS = ("core/kernels", "lite/experimental/microfrontend/python/ops/_audio_microfrontend_op.so")
"""Libraries of operations that only Python loads; a model may use them on a PS."""


class _Bare(ModuleType):
    """`tensorflow`, or a namespace in it such as `tensorflow.compat.v1`."""

    def __getattr__(self, name: str) -> Any:
        dotted = f"{self.__name__}.{name}"[len(NAME) + 1 :]
        if any(known.startswith(f"{dotted}.") for known in _SOURCES):
            value: Any = _Bare(f"{NAME}.{dotted}")
        elif dotted in _SOURCES:
            try:
                value = _from_source(*_SOURCES[dotted])
            except (ImportError, AttributeError):  # another build of TensorFlow
                value = _from_whole(dotted)
        elif name.startswith("__"):  # what Python itself looks for in modules
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        else:
            value = _from_whole(dotted)
        setattr(self, name, value)
        return value


def _from_source(module: str, name: str) -> Any:
    imported = importlib.import_module(f"{NAME}.{module}")
    return getattr(imported, name) if name else imported


def unknown() -> list[str]:
    """Names whose submodule is not where it was: a PS that asks for one imports the whole of TensorFlow, and takes longer."""
    lacking = []
    for dotted, source in _SOURCES.items():
        try:
            _from_source(*source)
        except (ImportError, AttributeError):
            lacking.append(dotted)
    return lacking


def _from_whole(dotted: str) -> Any:
    value: Any = _whole(dotted)
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


def _whole(asked: str) -> ModuleType:
    """Imports all of TensorFlow, over what has been imported of it. What holds the bare module asks through it from now on."""
    with _importing:  # who asks meanwhile must not see half of it
        bare = sys.modules[NAME]
        if isinstance(bare, _Bare):
            log.info("all of TensorFlow is imported for its %s", asked)
            del sys.modules[NAME]
            try:
                importlib.import_module(NAME)
            except BaseException:
                sys.modules[NAME] = bare
                raise
        return sys.modules[NAME]


def install() -> bool:
    """Makes `import tensorflow` cheap in this process, when nobody has imported it yet and it has nothing to load that only

    its own `__init__` would: plugins for devices. Whether it did; False means the whole, which is never wrong.
    """
    spec = importlib.machinery.PathFinder.find_spec(NAME) if NAME not in sys.modules else None
    if spec is None or not spec.submodule_search_locations or _has_plugins():
        return False
    bare = _Bare(NAME)
    bare.__path__ = list(spec.submodule_search_locations)
    bare.__spec__ = spec
    bare.__file__ = spec.origin
    os.environ["TF2_BEHAVIOR"] = "1"  # as its __init__ does, before it imports anything
    sys.modules[NAME] = bare
    try:
        importlib.import_module(f"{NAME}.python.tf2").enable()
        load = _from_source("python.framework.load_library", "load_library")
    except (ImportError, AttributeError):
        del sys.modules[NAME]
        return False
    for library in _KERNELS:
        if (path := Path(bare.__path__[0], library)).exists():
            load(str(path))
    return True


def _has_plugins() -> bool:
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages(), *sys.path}
    return bool(os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH")) or any(
        Path(directory, "tensorflow-plugins").exists() for directory in packages
    )
