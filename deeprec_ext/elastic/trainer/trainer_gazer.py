"""What Gazer measures in a trainer: the process, its steps, traces of some; and the chief's figures for TensorBoard."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from deeprec_ext.elastic.agent.inputs import Inputs
from deeprec_ext.elastic.agent.metrics_collector import Outlet, ProcessPart, Sampler
from deeprec_ext.elastic.session import tracing
from deeprec_ext.elastic.session.tracing import Tracing
from deeprec_ext.elastic.trainer.scalars import WRITE_SECONDS, Scalars
from deeprec_ext.proto import deeprec_ext_pb2 as pb

PAUSES_MAX = 100
"""Pauses that wait to be written down."""


class Host(tracing.Host, Protocol):
    """The trainer."""

    inputs: Inputs

    @property
    def chief(self) -> bool: ...

    def size(self) -> tuple[int, int]:
        """PS and trainers of the present view."""


@dataclass
class _Point:
    """Where the last point of the scalars was taken."""

    time: float
    step: int
    gate: float
    input: float


class TrainerGazer:
    """Args:
    name: of the role.
    host: the trainer.
    outlet: its agent.
    """

    def __init__(self, name: str, host: Host, outlet: Outlet, clock: Callable[[], float] = time.monotonic) -> None:
        self._host, self._clock = host, clock
        self.tracing = Tracing(name, host, clock)
        self.sampler = Sampler(
            outlet, {"the process": ProcessPart(), "steps": self._steps, "traces": self._traces,
                     "TensorBoard": self._scalars}, clock,
        )  # fmt: skip
        self.trace_wish: float | None = None
        """Least seconds between two traces that the script asked for, instead of the job's."""
        self.tensorboard = True
        self.model_directory = ""
        """Where the chief keeps its checkpoints; empty: nowhere, as far as is known."""
        self._gate = self._input = 0.0
        self._told = False
        self._file: Scalars | None = None
        self._last: _Point | None = None
        self._pauses: deque[tuple[int, float]] = deque(maxlen=PAUSES_MAX)
        self._settings = pb.AgentSettings()

    def follow(self, settings: pb.AgentSettings) -> None:
        """The settings of the job; also after the script has said what it wants."""
        self._settings = settings
        self.tracing.seconds = self.trace_wish if self.trace_wish is not None else settings.trace_seconds
        self.tracing.budget = settings.trace_budget
        self.tracing.delay_seconds = settings.trace_delay_seconds
        self.sampler.follow(settings.gazer_seconds)

    def wish(self, trace_seconds: float | None, sample_seconds: float | None, tensorboard: bool) -> None:
        """What the script asks for; None: as the job has it."""
        self.trace_wish, self.sampler.wish, self.tensorboard = trace_seconds, sample_seconds, tensorboard
        self.follow(self._settings)

    def note_pause(self, seconds: float) -> None:
        """A scaling held this trainer up for so long."""
        self._pauses.append((self._host.clock.global_step, seconds))

    # -- the parts

    def _steps(self, report: pb.GazerReport) -> None:
        host, sample = self._host, self._host.clock.take_interval()
        gate, waited = host.gate.waiting.seconds, host.inputs.waiting.seconds
        sample.gate_wait_seconds, self._gate = gate - self._gate, gate
        sample.input_wait_seconds, self._input = waited - self._input, waited
        sample.training = bool(host.pools())
        report.steps.CopyFrom(sample)

    def _traces(self, report: pb.GazerReport) -> None:
        self.tracing.tick()
        trace = self.tracing.take()
        if trace is not None:
            report.traces.append(trace)
        if self.tracing.trouble and not self._told:
            self._told = True
            self.sampler.trouble(self.tracing.trouble)

    def _scalars(self, report: pb.GazerReport) -> None:
        """A point now and then, of what happened since the last."""
        host = self._host
        if not (self.tensorboard and self.model_directory and host.chief and host.clock.steps):
            return
        now = _Point(self._clock(), host.clock.global_step, host.gate.waiting.seconds, host.inputs.waiting.seconds)
        last = self._last
        if last is None or now.step < last.step:  # restored from an older checkpoint
            self._last = now
            return
        seconds = now.time - last.time
        if seconds < WRITE_SECONDS or now.step == last.step:
            return
        self._last = now
        if self._file is None:
            self._file = Scalars(self.model_directory)
        while self._pauses:
            step, pause = self._pauses.popleft()
            self._file.write(step, {"pause_seconds": pause})
        rate, (ps, workers) = (now.step - last.step) / seconds, host.size()
        values = {
            "steps_per_second": rate,
            "examples_per_second": rate * host.clock.examples_per_step,
            "step_seconds": host.clock.median_step_seconds(),
            "gate_wait_share": (now.gate - last.gate) / seconds,
            "input_wait_share": (now.input - last.input) / seconds,
            "ps": ps,
            "workers": workers,
        }
        self._file.write(now.step, values)
