"""`python -m deeprec_ext.modeldef train | evaluate | predict …`: what `deeprec-ext` runs for the command of that name.

Exit codes: 0 done, 1 it failed, 2 something is missing or cannot be: one line says what, and what to do.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

COMMANDS = ("train", "evaluate", "predict")
T = TypeVar("T")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m deeprec_ext.modeldef", description=__doc__)
    made.add_argument("command", choices=COMMANDS)
    for name in (
        "model-def", "model-zoo", "data", "validation-data", "reader", "output", "weights", "feed", "loss", "optimizer",
        "eval-metrics-fn", "callbacks", "prediction-outputs-processor",
    ):  # fmt: skip
        made.add_argument(f"--{name}", default="auto" if name == "reader" else "")
    for name in ("skip-lines", "epochs", "batch-size", "seed", "shard-records"):
        made.add_argument(f"--{name}", type=int)
    made.add_argument("--no-shuffle", dest="shuffle", action="store_false")
    made.add_argument("--check", action="store_true")
    made.add_argument("--json", action="store_true")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    arguments = parser().parse_args(words)
    from deeprec_ext.data import streams
    from deeprec_ext.errors import DeepRecError, UsageError

    try:
        return _check(arguments) if arguments.check else _run(arguments)
    except DeepRecError as error:
        text = " ".join(str(error).split())
        home = streams.trainer()
        if home is not None and isinstance(error, UsageError):  # no use to start the process again and again
            home.refused(text)
        print(f"deeprec-ext: {text}", file=sys.stderr, flush=True)
        if arguments.json:
            print(json.dumps({"error": text}), flush=True)
        return 2 if isinstance(error, UsageError) else 1


def _names(arguments: argparse.Namespace) -> Any:
    from deeprec_ext.modeldef.definition import Names

    return _filled(Names, arguments)


def _filled(kind: type[T], arguments: argparse.Namespace) -> T:
    """A dataclass of those arguments that were given."""
    names = {one.name for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in vars(arguments).items() if name in names and value not in (None, "")}
    return kind(**given)


def _run(arguments: argparse.Namespace) -> int:
    from deeprec_ext.modeldef.definition import load

    definition = load(arguments.model_def, _names(arguments), arguments.model_zoo)
    if arguments.command == "train":
        from deeprec_ext.modeldef.training import Training, train

        figures = train(definition, _filled(Training, arguments))
        if arguments.json:
            print(json.dumps(dict(figures)), flush=True)
    elif arguments.command == "evaluate":
        from deeprec_ext.modeldef.evaluating import Evaluation, evaluate
        from deeprec_ext.modeldef.training import shown

        figures = evaluate(definition, _filled(Evaluation, arguments))
        print(json.dumps(dict(figures)) if arguments.json else shown(figures), flush=True)
    else:
        from deeprec_ext.modeldef.predicting import Prediction, predict

        predict(definition, _filled(Prediction, arguments))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from deeprec_ext.modeldef.checking import check

    report = check(
        arguments.command, arguments.model_def, _names(arguments), arguments.model_zoo, arguments.data,
        arguments.validation_data, arguments.reader, arguments.skip_lines or 0, arguments.weights,
    )  # fmt: skip
    if arguments.json:
        print(json.dumps(dataclasses.asdict(report)), flush=True)
    else:
        print("\n".join([*report.found, *(f"missing: {line}" for line in report.missing)]), flush=True)
    return 2 if report.missing else 0


if __name__ == "__main__":
    sys.exit(main())
