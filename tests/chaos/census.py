"""The census example, unchanged, with the brake."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
from tests.chaos import brake

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "census_wide_deep" / "train.py"
BATCH = 128

if __name__ == "__main__":
    brake.brake(BATCH)
    sys.argv[0] = str(EXAMPLE)
    brake.load(EXAMPLE).main()
