"""The checks of `doctor`. Each returns what it found; none raises."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import psutil

from deeprec_ext.errors import DeepRecError
from deeprec_ext.gazer.cgroup import Cgroup
from deeprec_ext.gazer.host import free_memory_bytes
from deeprec_ext.launch.command import resolve_command
from deeprec_ext.launch.environment import AUTOLOAD, role_environment
from deeprec_ext.launch.job import version
from deeprec_ext.launch.openness import opening
from deeprec_ext.launch.ports import HOST, free_port
from deeprec_ext.launch.roles.isolation import OUTWARD, loopback_name_server, open_ports, why_impossible
from deeprec_ext.layout import facts_of_command
from deeprec_ext.units import format_bytes

_ROLE_BYTES = 400 << 20  # resident memory of one TensorFlow process without a model
_SMALLEST_JOB = 4  # 2 PS, a chief, a worker

PYTHONS = ((3, 9), (3, 13))
TENSORFLOWS = ((2, 15), (2, 21))
"""From which to which was tried (docs/dependencies.md); `requires-python` and the extras of pyproject.toml say the same."""

_PROTOBUF_BELOW = (((2, 17), 5), ((2, 19), 6), ((2, 20), 7))
"""Last TensorFlow → what its protobuf is below. They say so themselves, but 2.20, which writes no graph with 7."""

PYTHON_SECONDS = 60.0
"""A Python that is asked something may take to start, import TensorFlow and answer."""

_INSTALL = 'pip install "deeprec-ext[tf]" (2.15, with tf.estimator) or "deeprec-ext[tf-latest]" (up to 2.21, without)'


@dataclass(frozen=True)
class Finding:
    name: str
    verdict: str  # ok, warn, fail
    found: str
    remedy: str = ""


def _with_python(name: str) -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Of a check that starts a Python: one that takes too long lacks nothing."""

    def decorate(check: Callable[[], Finding]) -> Callable[[], Finding]:
        @wraps(check)
        def checked() -> Finding:
            try:
                return check()
            except subprocess.TimeoutExpired as error:
                return Finding(
                    name, "warn", f"not looked at: a Python had not started and imported after {error.timeout:.0f} s",
                    "a busy machine or a slow disk: ask again",
                )  # fmt: skip

        return checked

    return decorate


def check_python() -> Finding:
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return Finding(
            "python", "fail", found,
            "TensorFlow 2.15 exists for Python 3.9 to 3.11, 2.21 for 3.10 to 3.13: make a virtual environment with one",
        )  # fmt: skip
    return Finding("python", "ok", found)


def check_tensorflow() -> Finding:
    found = _tensorflow()
    if found is None:
        return Finding("tensorflow", "fail", f"not installed for {sys.executable}", _INSTALL)
    numbers = _numbers(found)
    if numbers < TENSORFLOWS[0]:
        return Finding("tensorflow", "fail", found, _INSTALL)
    if numbers > TENSORFLOWS[1]:
        return Finding("tensorflow", "warn", f"{found}, which was not tried", _INSTALL)
    if numbers > TENSORFLOWS[0]:
        return Finding(
            "tensorflow", "ok", f"{found}: no tf.estimator, which ended with 2.15; MonitoredTrainingSession runs"
        )
    return Finding("tensorflow", "ok", found)


def without_estimator(words: Sequence[str]) -> str:
    """What is to be said of a command whose script's text uses Estimator, where TensorFlow has none; empty: nothing."""
    facts, found = facts_of_command(words), _tensorflow() or ""
    if facts is None or not facts.estimator or _numbers(found) <= TENSORFLOWS[0]:
        return ""
    return (
        f"the script uses tf.estimator, which ended with TensorFlow 2.15, and {found} is installed: "
        'pip install "deeprec-ext[tf]" (Python 3.9 to 3.11)'
    )


@_with_python("tensorflow's private names")
def check_private_names() -> Finding:
    """Elasticity hangs on names of TensorFlow that are not public; a release may have others."""
    if _tensorflow() is None:
        return Finding("tensorflow's private names", "warn", "not looked for: there is no TensorFlow")
    answer = _python(
        "from deeprec_ext.tf_private.missing import missing; print(*missing(), sep='\\n')",
        {"PYTHONPATH": role_environment({}, autoload=False)["PYTHONPATH"], "TF_CPP_MIN_LOG_LEVEL": "3"},
    )  # fmt: skip
    lacking = answer.stdout.split()
    if answer.returncode:
        lacking = answer.stderr.strip().splitlines()[-1:] or ["TensorFlow cannot be imported"]
    if lacking:
        return Finding("tensorflow's private names", "fail", f"missing: {', '.join(lacking)}", _INSTALL)
    return Finding("tensorflow's private names", "ok", "all that is used is there")


@_with_python("python of scripts")
def check_script_python() -> Finding:
    """`python` in `deeprec-ext run -- python train.py` need not be the interpreter that runs us."""
    try:
        program = resolve_command(["python", "-c", "0"])[0]
    except DeepRecError as error:
        return Finding("python of scripts", "fail", str(error), "install Python, or activate the virtual environment")
    code = "from importlib.metadata import version; print(version('tensorflow'))"
    answer = _python(code, program=program)
    if answer.returncode:
        return Finding("python of scripts", "fail", f"{program} has no tensorflow", f"{program} -m {_INSTALL}")
    ours = _tensorflow()
    theirs = answer.stdout.strip()
    if theirs != ours:
        return Finding(
            "python of scripts",
            "warn",
            f"{program} has tensorflow {theirs}, PS run {ours}",
            "use one environment for both",
        )
    return Finding("python of scripts", "ok", program)


@_with_python("grpc")
def check_grpc() -> Finding:
    found = f"grpcio {version('grpcio')}, protobuf {version('protobuf')}"
    code = "import deeprec_ext.proto.deeprec_ext_pb2_grpc, grpc_health.v1.health, grpc_reflection.v1alpha.reflection"
    answer = _python(code, {"PYTHONPATH": role_environment({}, autoload=False)["PYTHONPATH"]})
    if answer.returncode:
        problem = answer.stderr.strip().splitlines()[-1:] or ["unknown error"]
        return Finding("grpc", "fail", f"{found}: {problem[0]}", 'pip install --force-reinstall "deeprec-ext[tf]"')
    tensorflow = _numbers(_tensorflow() or "")
    below = next((below for last, below in _PROTOBUF_BELOW if tensorflow and tensorflow <= last), 0)
    if below and _numbers(version("protobuf") or "") >= (below,):
        return Finding(
            "grpc", "warn", found,
            f"TensorFlow {_tensorflow()} wants protobuf below {below}: "
            f'pip install "protobuf<{below}" grpcio-health-checking grpcio-reflection',
        )  # fmt: skip
    return Finding("grpc", "ok", found)


def check_memory() -> Finding:
    available, limit = psutil.virtual_memory().available, Cgroup().sample().memory_limit_bytes
    found = f"{format_bytes(available)} available" + (f", cgroup limit {format_bytes(limit)}" if limit else "")
    usable = free_memory_bytes()
    if usable < _SMALLEST_JOB * _ROLE_BYTES:
        return Finding(
            "memory",
            "warn",
            found,
            f"2 PS, a chief and a worker need about {format_bytes(_SMALLEST_JOB * _ROLE_BYTES)}",
        )
    return Finding("memory", "ok", found)


def check_cpus() -> Finding:
    cpus, limit = len(os.sched_getaffinity(0)), Cgroup().sample().cpu_limit_cores
    found = f"{cpus} cores" + (f", cgroup limit {limit:g}" if limit else "")
    if min(cpus, limit or cpus) < 2:
        return Finding("cpu", "warn", found, "it works, but PS and workers take turns: give it two cores")
    return Finding("cpu", "ok", found)


def check_ports() -> Finding:
    try:
        with (
            socket.create_server((HOST, free_port())) as server,
            socket.create_connection(server.getsockname(), timeout=2),
        ):
            return Finding("ports", "ok", f"free ports on {HOST} can be had and reached")
    except OSError as error:
        return Finding("ports", "fail", f"{HOST}: {error}", "allow TCP on the loopback interface (firewall, sandbox)")


def check_isolation() -> Finding:
    """Whether a run on this machine can have a network of its own, and keeps its way out (`run --isolate`)."""
    impossible, outward, resolver = why_impossible(), shutil.which(OUTWARD), loopback_name_server()
    if impossible:
        return Finding(
            "isolation", "warn", f"no network namespace can be made ({impossible}): {open_ports()}",
            "run as root or allow user namespaces; else run only where no other user can log in",
        )  # fmt: skip
    if outward is None or resolver:
        missing = (
            f"{OUTWARD} is not on the PATH" if outward is None else f"the name server {resolver} is not reached inside"
        )
        return Finding(
            "isolation", "warn", f"works, but not by itself ({missing}): {open_ports()}",
            f"run --isolate on, where the script needs no network; else install {OUTWARD}",
        )  # fmt: skip
    return Finding("isolation", "ok", f"PS and trainers get a network of their own, with {outward} as the way out")


def check_proxy() -> Finding:
    """TensorFlow's own channels between workers and PS honour the variable; ours do not."""
    values = {name.lower(): value for name, value in os.environ.items()}
    proxy = values.get("grpc_proxy") or values.get("https_proxy") or values.get("http_proxy")
    exceptions = values.get("no_grpc_proxy", values.get("no_proxy", ""))
    if proxy and not any(name in exceptions for name in ("127.0.0.1", "localhost", "*")):
        return Finding("proxy", "warn", proxy, "export no_proxy=localhost,127.0.0.1 so that PS are reached directly")
    return Finding("proxy", "ok", "not in the way" if proxy else "none")


@_with_python("autoload")
def check_autoload() -> Finding:
    """A python started as the launcher starts a script must pass through our sitecustomize."""
    with tempfile.TemporaryDirectory() as directory:
        answer = _python(
            "import sys; print('deeprec_ext.autoload' in sys.modules)",
            role_environment({"DEEPREC_EXT_AIMASTER": f"{HOST}:1", "DEEPREC_EXT_ROLE": "chief", "DEEPREC_EXT_JOB": "doctor",
                              "DEEPREC_EXT_SLOTS": "8", "DEEPREC_EXT_WORKDIR": directory}, autoload=True),
        )  # fmt: skip
    if answer.stdout.strip().endswith("True"):
        return Finding("autoload", "ok", str(AUTOLOAD))
    problem = (answer.stderr.strip().splitlines() or ["a sitecustomize elsewhere on the path came first"])[-1]
    return Finding(
        "autoload", "fail", problem, "add `import deeprec_ext` as the first line of the script, and report this"
    )


def check_directory() -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=Path.cwd()):
            pass
    except OSError as error:
        return Finding(
            "run directory", "warn", f"{Path.cwd()}: {error.strerror}", "change the directory, or give --workdir"
        )
    if (open_ := opening(Path.cwd() / "runs")) is not None:
        return Finding("run directory", "warn", open_.line, open_.remedy)
    return Finding("run directory", "ok", f"{Path.cwd()} is writable, by nobody else")


def _tensorflow() -> str | None:
    return version("tensorflow") or version("tensorflow-cpu")


def _numbers(text: str) -> tuple[int, ...]:
    """Of a release: `2.15.1` → (2, 15); nothing of what is none."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return tuple(int(number) for number in match.groups()) if match else ()


def _python(
    code: str, environment: dict[str, str] | None = None, program: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Raises subprocess.TimeoutExpired."""
    try:
        return subprocess.run(
            [program, "-c", code], env={**os.environ, **(environment or {})}, capture_output=True, text=True,
            timeout=PYTHON_SECONDS, check=False,
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess([program], 1, "", str(error))


ALL = (
    check_python, check_tensorflow, check_private_names, check_script_python, check_grpc, check_memory, check_cpus, check_ports,
    check_proxy, check_isolation, check_autoload, check_directory,
)  # fmt: skip
