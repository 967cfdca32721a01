"""A role without TensorFlow: `python fake_trainer.py STEPS SECONDS_PER_STEP`. Counts steps into a file the fake AIMaster reads.

A worker goes on until the file `leave` exists; a PS for ever.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    steps, pause = int(sys.argv[1]), float(sys.argv[2])
    role = os.environ["DEEPREC_EXT_ROLE"]
    workdir = Path(os.environ["DEEPREC_EXT_WORKDIR"])
    name = f"{role}-{os.environ.get('DEEPREC_EXT_INDEX', '0')}"
    path = workdir / f"progress-{name}.json"
    step = 0
    with contextlib.suppress(FileNotFoundError, ValueError):
        step = json.loads(path.read_text())["step"]
    while role == "ps" or step < steps or role != "chief":
        if role != "ps" and role != "chief" and (workdir / "leave").exists():
            return
        step += 1
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"incarnation": os.getpid(), "step": 0 if role == "ps" else step}))
        temporary.replace(path)
        time.sleep(pause)
    print("done", flush=True)


if __name__ == "__main__":
    main()
