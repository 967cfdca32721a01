"""What Gazer costs a training step, at its default rates: sampling and tracing on ÷ off.

    python -m benchmarks.gazer_overhead                     # about seven minutes
    python -m benchmarks.gazer_overhead --pairs 20 --turn 3

One real job (chief, 2 PS, the DeepFM of benchmarks/models.py). The training process itself switches its Gazer on and off in
turns of a few seconds, in the order on off off on, and notes its step times and the processor time of itself and of the PS.
In the turns that are on, a step is traced as often as by default (one in 30 s of such turns). The PS' own samplers cannot be
switched from there and stay on; what one of their reports costs is measured in the training process (`report_seconds`).

A machine that is shared has turns that differ by more than all this costs. So besides the ratios, what is done more is
measured directly: `direct.share` is the processor time of the sampler's thread, and the time that traced steps took
longer than the ordinary ones before them, over the time of the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from benchmarks.job import end_on_signals, running, say

RESULT = "gazer_overhead.json"
ORDER = (True, False, False, True)
SKIPPED_STEPS = 2
"""At the beginning of a turn: they began in the one before."""
PS_COMMAND = "deeprec_ext.elastic.serve"


@dataclass
class Turn:
    """Some seconds with Gazer on, or off."""

    on: bool
    steps: int
    seconds: float
    median_seconds: float
    trainer_cpu: float
    ps_cpu: float
    sampler_cpu: float

    @property
    def mean_seconds(self) -> float:
        return self.seconds / self.steps


# ------------------------------------------------------------------------------------------------ in the training process


class Switch:
    """Turns the Gazer of this process on and off, and looks at clocks."""

    def __init__(self, trace_seconds: float) -> None:
        from deeprec_ext.elastic.trainer import process
        from deeprec_ext.options import Settings
        from deeprec_ext.proto import deeprec_ext_pb2 as pb

        trainer = process.trainer()
        if trainer is None:
            raise SystemExit("--trainer is for the job's own process; run without it")
        self.gazer = trainer.gazer
        self._on = pb.AgentSettings(  # half of the turns are on, and the wait for the next trace goes on in the others
            gazer_seconds=Settings.gazer_seconds,
            trace_seconds=2 * trace_seconds,
            trace_budget=Settings.trace_budget / 2,
        )
        self._off = pb.AgentSettings()
        launcher = psutil.Process().parent()
        children = launcher.children(recursive=True) if launcher is not None else []
        self._ps = [one for one in children if PS_COMMAND in " ".join(one.cmdline())]
        self.traced: list[float] = []
        take = self.gazer.tracing.take

        def noting() -> Any:
            waiting = list(self.gazer.tracing._recorded.queue)
            self.traced += [one.recorded.seconds - one.recorded.ordinary_seconds for one in waiting]
            return take()

        self.gazer.tracing.take = noting

    def turn(self, on: bool) -> None:
        self.gazer.follow(self._on if on else self._off)
        for pool in self.gazer._host.pools() if not on else ():
            if pool.present is not None and pool.present.probe is not None:
                pool.present.probe.armed = False

    def cpu(self) -> tuple[float, float, float]:
        """Processor seconds so far: of this process, of all PS, of the sampler's thread."""
        ps = sum(sum(one.cpu_times()[:2]) for one in self._ps)
        thread = self.gazer.sampler._thread
        clock = time.pthread_getcpuclockid(thread.ident) if thread is not None and thread.ident is not None else None
        return time.process_time(), ps, time.clock_gettime(clock) if clock is not None else 0.0

    def report_seconds(self) -> float:
        """Processor time of one report of a PS."""
        from deeprec_ext.elastic.agent.metrics_collector import ProcessPart
        from deeprec_ext.proto import deeprec_ext_pb2 as pb

        part, times = ProcessPart(), []
        for _ in range(200):
            began, report = time.thread_time(), pb.GazerReport()
            part(report)
            pb.AgentMessage(gazer=report).SerializeToString()
            times.append(time.thread_time() - began)
        return statistics.median(times)


def train(arguments: argparse.Namespace) -> None:
    """The user's script of the job."""
    import tensorflow as tf

    from benchmarks import models

    v1 = tf.compat.v1

    class Turns(v1.train.SessionRunHook):
        def __init__(self) -> None:
            self.switch = Switch(arguments.trace_seconds)
            self.turns: list[Turn] = []
            self._begin = time.perf_counter()
            self._times: list[float] = []
            self._cpu = (0.0, 0.0, 0.0)
            self._number = -1  # warming up

        def after_run(self, run_context: Any, run_values: Any) -> None:
            now = time.perf_counter()
            self._times.append(now)
            if self._number < 0:
                if now - self._begin >= arguments.warm:
                    self._next()
            elif len(self._times) == SKIPPED_STEPS:
                self._cpu = self.switch.cpu()
            elif now - self._begin >= arguments.turn and len(self._times) > SKIPPED_STEPS + 1:
                self._note()
                if len(self.turns) >= 2 * arguments.pairs:
                    run_context.request_stop()
                    return
                self._next()

        def _next(self) -> None:
            self._number += 1
            self.switch.turn(ORDER[self._number % len(ORDER)])
            self._begin, self._times = time.perf_counter(), []

        def _note(self) -> None:
            times = self._times[SKIPPED_STEPS - 1 :]
            gaps = [later - earlier for earlier, later in zip(times, times[1:])]
            trainer, ps, sampler = (after - before for before, after in zip(self._cpu, self.switch.cpu()))
            on = ORDER[self._number % len(ORDER)]
            turn = Turn(on, len(gaps), sum(gaps), statistics.median(gaps), trainer, ps, sampler if on else 0.0)
            self.turns.append(turn)

        def end(self, session: Any) -> None:
            found = {
                "turns": [asdict(turn) for turn in self.turns],
                "traced": self.switch.traced,
                "report_seconds": self.switch.report_seconds(),
            }
            result = Path(os.environ["DEEPREC_EXT_WORKDIR"], RESULT)
            result.with_suffix(".part").write_text(json.dumps(found))
            result.with_suffix(".part").rename(result)

    size = models.size_of(arguments.state, batch=arguments.batch, parts=arguments.parts)
    config = tf.estimator.RunConfig(
        os.path.join(os.environ["DEEPREC_EXT_WORKDIR"], "model"), save_checkpoints_secs=3600, save_summary_steps=None,
        log_step_count_steps=10**6,
    )  # fmt: skip
    estimator = tf.estimator.Estimator(models.model_fn, config=config, params={"size": size})
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(models.input_fn(size), max_steps=10**9, hooks=[Turns()]),
        tf.estimator.EvalSpec(models.input_fn(size, batches=1), steps=1, start_delay_secs=0, throttle_secs=10**6),
    )


# ------------------------------------------------------------------------------------------------ the result


def quartiles(values: list[float]) -> dict[str, float]:
    """Median and quartiles, rounded."""
    first, middle, third = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"median": round(middle, 4), "first": round(first, 4), "third": round(third, 4)}


def pairs(turns: list[Turn]) -> list[tuple[Turn, Turn]]:
    """(on, off), of turns that follow one another."""
    return [(a, b) if a.on else (b, a) for a, b in zip(turns[::2], turns[1::2])]


def evaluate(found: dict[str, Any], trace_seconds: float) -> dict[str, Any]:
    turns = [Turn(**turn) for turn in found["turns"]]
    both = pairs(turns)
    on, off = [turn for turn in turns if turn.on], [turn for turn in turns if not turn.on]

    def per_step(some: list[Turn], what: str) -> float:
        return sum(getattr(turn, what) for turn in some) / sum(turn.steps for turn in some)

    seconds = sum(turn.seconds for turn in on)
    sampler = sum(turn.sampler_cpu for turn in on) / seconds
    extra = sum(max(0.0, one) for one in found["traced"]) / seconds
    return {
        "pairs": len(both),
        "steps": sum(turn.steps for turn in turns),
        "step_seconds": {name: round(per_step(some, "seconds"), 6) for name, some in (("on", on), ("off", off))},
        "ratio_of_medians": quartiles([a.median_seconds / b.median_seconds for a, b in both]),
        "ratio_of_means": quartiles([a.mean_seconds / b.mean_seconds for a, b in both]),
        "ratio_of_totals": round(per_step(on, "seconds") / per_step(off, "seconds"), 4),
        "off_against_off": quartiles([a.mean_seconds / b.mean_seconds for a, b in zip(off, off[1:])]),
        "cpu_seconds_per_step": {
            role: {
                "on": round(per_step(on, what), 6),
                "off": round(per_step(off, what), 6),
                "ratio": round(per_step(on, what) / per_step(off, what), 4),
            }
            for role, what in (("trainer", "trainer_cpu"), ("ps", "ps_cpu"))
        },
        "traces": len(found["traced"]),
        "trace_extra_seconds": quartiles(found["traced"]) if found["traced"] else None,
        "seconds_between_traces": round(seconds / len(found["traced"]), 1) if found["traced"] else None,
        "wanted_seconds_between_traces": trace_seconds,
        "report_seconds": round(found["report_seconds"], 6),
        "direct": {
            "sampler_cpu_share": round(sampler, 6),
            "trace_share": round(extra, 6),
            "share": round(sampler + extra, 6),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60, help="of turns, one on and one off")
    parser.add_argument("--turn", type=float, default=3.0, help="seconds")
    parser.add_argument("--warm", type=float, default=20.0, help="seconds before the first turn")
    parser.add_argument("--trace-seconds", type=float, default=30.0, help="between two traces, of turns that are on")
    parser.add_argument("--state", default="64MB")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--ps", type=int, default=2)
    parser.add_argument("--trainer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trainer:
        train(arguments)
        return
    end_on_signals()
    command = [str(Path(__file__).resolve()), "--trainer"]
    for name in ("pairs", "turn", "warm", "trace_seconds", "state", "batch", "parts"):
        command += ["--" + name.replace("_", "-"), str(getattr(arguments, name))]
    limit = 300 + arguments.warm + 4 * arguments.pairs * arguments.turn
    with running(command, ps=arguments.ps, workers=0, flags=["--setting", "peer_backup=off"], label="gazer") as job:
        say(f"{arguments.pairs} pairs of turns of {arguments.turn:g} s; the run is in {job.workdir}")
        result = job.workdir / RESULT
        job.until(result.exists, "the result", limit)
        found = json.loads(result.read_text())
    print(json.dumps(evaluate(found, arguments.trace_seconds), indent=1))


if __name__ == "__main__":
    main()
