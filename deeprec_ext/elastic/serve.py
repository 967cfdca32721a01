"""`python -m deeprec_ext.elastic.serve`: the name of a PS's program (`elastic.ps.program`)."""

from __future__ import annotations

import sys

from deeprec_ext.elastic.ps.program import main

if __name__ == "__main__":
    sys.exit(main())
