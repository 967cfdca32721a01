"""No code change: what makes an unmodified script elastic.

`install` runs when Python starts (through `_autoload/sitecustomize.py`) or at `import deeprec_ext`. It rewrites TF_CONFIG at
once and waits, without importing anything, for the script to import TensorFlow; then the process registers, and the few
classes through which sessions are made are exchanged (`elastic.trainer.patches`). A process without an AIMaster is left alone.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from deeprec_ext import env
from deeprec_ext.elastic import sent_away
from deeprec_ext.elastic.agent import alike
from deeprec_ext.elastic.agent.script_end import SCRIPT
from deeprec_ext.layout import WORKERS, Choice, choose, facts_of_command, filled, user_tf_config
from deeprec_ext.tf_private import imports

_WATCHED: dict[str, str] = {
    "tensorflow": "tensorflow_imported",
    imports.ESTIMATOR: "estimator_imported",
    **dict.fromkeys(imports.KERAS_MODELS, "keras_imported"),
    imports.KERAS3_MODELS: "keras3_imported",
    **dict.fromkeys(imports.KERAS_OPTIMIZERS, "keras_optimizers_imported"),
}
"""Module -> function of `elastic.trainer.patches` that is called, with the module, when it has been imported."""

_IN_STEP: dict[str, tuple[str, str]] = {
    "tensorflow": ("deeprec_ext.hooks.summed", "tensorflow_imported"),
    imports.ESTIMATOR: ("deeprec_ext.hooks.summed", "estimator_imported"),
    **dict.fromkeys(imports.KERAS_MODELS, ("deeprec_ext.keras.in_step.doors", "keras_imported")),
    imports.KERAS3_MODELS: ("deeprec_ext.keras.in_step.doors", "keras3_imported"),
    **dict.fromkeys(imports.KERAS_OPTIMIZERS, ("deeprec_ext.hooks.summed", "keras_optimizers_imported")),
    "torch": ("deeprec_ext.torch.doorway", "torch_imported"),
    "torch.distributed.run": ("deeprec_ext.torch.doorway", "launcher_imported"),
    **dict.fromkeys(
        (
            "torch.distributed.fsdp",
            "torch.distributed.optim",
            "torch.distributed.rpc",
            "torch.distributed.pipelining",
            "torch.distributed.tensor.parallel",
            "torch.distributed.algorithms.join",
        ),
        ("deeprec_ext.torch.doorway", "refused_imported"),
    ),
}
"""The same in a job without PS: module -> (module, function)."""

_installed = False


def install() -> bool:
    """Makes this process elastic when its environment says so; whether it did. A second call does nothing."""
    global _installed
    if _installed:
        return True
    if not env.is_elastic_process():
        if env.is_below_process() and env.sums():
            sys.meta_path.insert(0, _AfterImport(("torch",), _apply_to_child))
        return False
    if env.becomes_server():
        become_server()
    if env.role() == "ps":  # the server itself, or what it starts: there is no script to make elastic
        return False
    _installed = True
    sent_away.install()
    if env.sums():
        _draw_alike()  # before anything here imports NumPy
        joined = importlib.import_module("deeprec_ext.elastic.member.joined")
        joined.install()
        sys.meta_path.insert(0, _AfterImport(_IN_STEP, _apply_in_step))
        sys.meta_path.insert(0, OurHorovod())
        return True
    words = sys.argv
    if not env.layout():  # in a pod
        choice = choose_layout(env.chief_role())
        env.set_layout(choice.layout)
        words = list(choice.command)
        if choice.named or env.chief_role() == "worker":
            sys.stderr.write(f"deeprec-ext: TF_CONFIG has {choice}\n")
    config = user_tf_config(env.role(), env.index(), env.slots(), env.layout())
    os.environ["TF_CONFIG"] = json.dumps(config)
    sys.argv[1:] = filled(words[1:], config)
    SCRIPT.watch()
    sys.meta_path.insert(0, _AfterImport(_WATCHED, _apply))
    for name in _WATCHED:
        if name in sys.modules:
            _apply(sys.modules[name])
    _draw_alike()
    return True


def _draw_alike() -> None:
    if alike.MODULE not in sys.modules and alike.is_wanted(facts_of_command(own_command())):
        sys.meta_path.insert(0, _AfterImport((alike.MODULE,), lambda module: alike.ALIKE.begin(module, env.job())))


def become_server() -> NoReturn:
    """In a pod every role runs the user's command: the first Python of a PS becomes the server instead."""
    env.claim_server()
    for name, value in env.SERVER_DEFAULTS.items():
        os.environ.setdefault(name, value)
    sys.stderr.write("deeprec-ext: this is a PS of an elastic job; the script does not run here\n")
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "deeprec_ext.elastic.serve"])


def choose_layout(chief: str) -> Choice:
    """Of a TFJob, whose pods call their chief `chief`, `master`, or `worker`: worker 0 is it. TF_CONFIG says so, as Kubeflow's
    does, with two exceptions: a script that takes its cluster from flags, which know no chief, and one that wants a chief where
    the TFJob has none. Kubeflow would give an Estimator a TF_CONFIG there that it refuses; with a chief in it, it trains.
    """
    facts = facts_of_command(own_command())
    choice = choose(facts, sys.argv)
    if choice.named:
        return choice
    if chief != "worker":
        return Choice(chief, f"the TFJob has a {chief.capitalize()}", choice.command)
    if facts is None or choice.layout != "chief" or not (facts.estimator or "chief" in facts.jobs):
        reason = "the TFJob has no Chief or Master, and the script's text asks for none"
        return Choice(WORKERS, reason, choice.command)
    return choice


def own_command() -> list[str]:
    """The command of this process, interpreter and its options included; empty where nobody tells."""
    words: list[str] | None = getattr(sys, "orig_argv", None)  # since Python 3.10
    if words is not None:
        return list(words)
    try:
        told = Path("/proc/self/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(word) for word in told.split(b"\0")[:-1]]


def _apply(module: ModuleType) -> None:
    if "tensorflow" not in sys.modules:  # Keras 3 on another backend
        if importlib.util.find_spec("tensorflow") is None:
            return
        importlib.import_module("tensorflow")  # which is applied first
    patches = importlib.import_module("deeprec_ext.elastic.trainer.patches")
    getattr(patches, _WATCHED[module.__name__])(module)


def _apply_in_step(module: ModuleType) -> None:
    place, function = _IN_STEP[module.__name__]
    getattr(importlib.import_module(place), function)(module)


def _apply_to_child(module: ModuleType) -> None:
    importlib.import_module("deeprec_ext.torch.children").torch_imported(module)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls back when one of the watched modules has been executed."""

    def __init__(self, watched: Collection[str], callback: Callable[[ModuleType], None]) -> None:
        self._watched, self._callback = watched, callback
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._watched or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._callback)
        return spec


class _Loader(importlib.abc.Loader):
    """The module's own loader, and then the callback."""

    def __init__(self, loader: importlib.abc.Loader, callback: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._callback(module)

    def __getattr__(self, name: str) -> object:  # resource readers and the like
        return getattr(self._loader, name)


class OurHorovod(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """In a job without PS `import horovod.tensorflow.keras` gives `deeprec_ext.horovod.tensorflow.keras`, the very module.

    Horovod's own would find no launcher there, take itself for the only process, and train alone. A package or module
    `horovod` of the script's own stays what it is (a folder without `__init__.py` is none). `horovod` itself imports nothing:
    whoever asks for `horovod.torch` hears that it is not followed, and has no TensorFlow.
    """

    NAME = "horovod"
    FOLLOWED = frozenset({"horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras"})
    OTHERS = frozenset({"common", "data", "mxnet", "ray", "runner", "spark", "torch"})
    """Packages in Horovod's."""
    VERSION = "0.28.1"
    """Of Horovod, whose calls these are."""

    def __init__(self) -> None:
        self._is_the_scripts = False  # what was found as `horovod`

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == self.NAME:
            self._is_the_scripts = self._finds_the_scripts()
        if fullname.partition(".")[0] != self.NAME or self._is_the_scripts:
            return None
        if fullname == self.NAME:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if fullname not in self.FOLLOWED:
            importlib.import_module("deeprec_ext.elastic.member.joined").notice(
                "horovod", f"the script looks for {fullname}, which a job without PS does not have; where it goes on without, "
                "each of its workers trains alone",
                "DistributedDataParallel for scripts of PyTorch, horovod.tensorflow or horovod.keras for those of TensorFlow",
            )  # fmt: skip
            raise ModuleNotFoundError(
                f"{fullname} is not followed in a job of deeprec-ext: horovod.tensorflow, horovod.tensorflow.keras and "
                "horovod.keras are; scripts of PyTorch train there with DistributedDataParallel", name=fullname,
            )  # fmt: skip
        return importlib.machinery.ModuleSpec(fullname, self)

    def _finds_the_scripts(self) -> bool:
        spec = importlib.machinery.PathFinder.find_spec(self.NAME, None)
        if spec is None or spec.loader is None:
            return False
        return not any((Path(one) / "common" / "basics.py").exists() for one in spec.submodule_search_locations or ())

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        if spec.name == self.NAME:
            top = ModuleType(self.NAME, self.__doc__)
            vars(top).update(__version__=self.VERSION, __getattr__=self._of_top)
            return top
        module = importlib.import_module(f"deeprec_ext.{spec.name}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed under its own name, which it keeps."""
        assert module.__spec__ is not None
        if module.__spec__.name != self.NAME:
            module.__spec__ = module.__spec__.loader_state

    def _of_top(self, name: str) -> object:
        if name in self.OTHERS or name.startswith("__") or f"{self.NAME}.{name}" in self.FOLLOWED:
            raise AttributeError(f"module {self.NAME!r} has no attribute {name!r}")
        return getattr(importlib.import_module("deeprec_ext.horovod"), name)
