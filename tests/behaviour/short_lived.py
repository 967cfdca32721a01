"""`deeprec-ext` with certificates that live for seconds, all else as it is: `python -m tests.behaviour.short_lived run …`."""

import sys

from deeprec_ext.cli.main import main
from deeprec_ext.security import lifetimes

CERTIFICATE_SECONDS, AUTHORITY_SECONDS = 20.0, 60.0

if __name__ == "__main__":
    lifetimes.CERTIFICATE_DAYS = CERTIFICATE_SECONDS / lifetimes.DAY_SECONDS
    lifetimes.AUTHORITY_DAYS = AUTHORITY_SECONDS / lifetimes.DAY_SECONDS
    sys.exit(main())
