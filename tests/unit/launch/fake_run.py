"""`deeprec-ext run` with a fake AIMaster and fake PS: the launcher is the real one."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from deeprec_ext.cli import main, run
from deeprec_ext.launch import observer
from deeprec_ext.launch.plan import RunPlan

HERE = Path(__file__).parent
_make_plan = run.make_plan


def fake_plan(arguments: object) -> RunPlan:
    return dataclasses.replace(
        _make_plan(arguments),  # type: ignore[arg-type]
        aimaster_program=(sys.executable, str(HERE / "fake_aimaster.py")),
        ps_program=(sys.executable, str(HERE / "fake_trainer.py"), "0", "0.05"),
    )


if __name__ == "__main__":
    run.make_plan = fake_plan
    observer.AIMASTER_SILENCE_SECONDS = 1.0
    sys.exit(main.main())
