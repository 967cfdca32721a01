"""What a trainer tells the AIMaster of its own accord: its variables, its pauses, its metrics."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Mapping

from deeprec_ext.elastic.agent.agent import Agent
from deeprec_ext.elastic.agent.declaring import Declaring
from deeprec_ext.elastic.agent.steps import StepClock
from deeprec_ext.elastic.session.session import ElasticSession
from deeprec_ext.graph import Report
from deeprec_ext.graph.catalogue import is_slow
from deeprec_ext.proto import deeprec_ext_pb2 as pb

log = logging.getLogger("deeprec_ext")


class Reporter:
    """Args:
    declaring: what it tells of its variables.
    note_pause: is told the seconds of each pause that is reported.
    slow: is told what makes steps slow, and the remedy.
    """

    def __init__(
        self, agent: Agent, clock: StepClock, declaring: Declaring, note_pause: Callable[[float], None],
        slow: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._agent, self._clock, self._declaring, self._note_pause = agent, clock, declaring, note_pause
        self._slow = slow
        self._told: list[tuple[str, int, str]] = []  # of passes
        self.examples_given: int | None = None
        """By the user, for each step; else they are read off the graph."""

    def variables(self, sessions: Iterable[ElasticSession]) -> None:
        """The catalogue, where it is new (other steps may update other variables), and what the passes did, where that is."""
        for session in sessions:
            catalogue = session.catalogue()
            if catalogue is None:
                continue
            self._clock.examples_per_step = self.examples_given or session.batch_size()
            if self._declaring.complete(catalogue):
                for warning in catalogue.warnings:
                    log.warning("%s", warning)
                    if is_slow(warning):
                        text, _, remedy = warning.partition(". ")
                        self._slow(text, remedy)
            reports = session.reports()
            told = [(one.name, one.changed, one.detail) for one in reports]
            if told != self._told:
                self._told = told
                self._agent.send(pb.AgentMessage(passes=pb.PassReport(json=_json(reports))))

    def metrics(self, metrics: Mapping[str, float], step: int) -> None:
        self._agent.send(pb.AgentMessage(metrics=pb.MetricsReport(metrics=dict(metrics), step=step)))

    def pauses(self, flush: bool = False) -> None:
        """Those that are over; `flush`: all there are."""
        for pause in self._clock.take_pauses(flush):
            what = "loss of PS" if pause.loss else f"scaling {pause.scaling_id}"
            log.info(
                "%s: longest pause %.3f s, %.1f s ago (%s); %d runs waited at the gate",
                what, pause.pause_seconds, pause.seconds_ago, pause.cause or "no cause", pause.gate_waits,
            )  # fmt: skip
            report = pb.PauseReport(
                scaling_id=pause.scaling_id,
                pause_seconds=pause.pause_seconds,
                median_step_seconds=pause.median_step_seconds,
                gate_waits=pause.gate_waits,
                steps=pause.steps,
                cause=pause.cause,
                loss=pause.loss,
            )
            self._agent.send(pb.AgentMessage(pause=report))
            if not pause.loss:
                self._note_pause(pause.pause_seconds)


def _json(reports: list[Report]) -> str:
    return json.dumps([dataclasses.asdict(report) for report in reports])
