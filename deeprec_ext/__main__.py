"""`python -m deeprec_ext …`: the same as `deeprec-ext …`, where that is not on the path."""

from __future__ import annotations

import sys

from deeprec_ext.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
