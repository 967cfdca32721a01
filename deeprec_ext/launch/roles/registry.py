"""All runners, by the word of `run --backend`. Another one is a file that implements `runner.Runner`, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deeprec_ext.launch.roles.guard import Guard
from deeprec_ext.launch.roles.local import LocalRunner
from deeprec_ext.launch.roles.runner import JobOutline, Runner
from deeprec_ext.launch.roles.slurm import SlurmRunner

LOCAL = "local"
RUNNERS: Mapping[str, Callable[[JobOutline, Guard], Runner]] = {LOCAL: LocalRunner, "slurm": SlurmRunner}
