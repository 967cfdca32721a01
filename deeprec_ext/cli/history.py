"""`deeprec-ext history`: the service that keeps the finished jobs of a cluster, and the certificates with which it is asked.

deeprec-ext history --database URL --certs DIR     serves; makes the schema, or brings an older one to this release
deeprec-ext history --certs DIR --make             makes an authority, the service's certificate and the administrator's
deeprec-ext history --certs DIR --issue NS --to D  writes what an AIMaster of a namespace needs into D
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path
from typing import Any

from deeprec_ext import env
from deeprec_ext.aimaster.core.extras import parse_address, require
from deeprec_ext.bounds import whole
from deeprec_ext.errors import UsageError
from deeprec_ext.history import identities
from deeprec_ext.history.client import PORT
from deeprec_ext.rundir import files_private
from deeprec_ext.units import parse_duration

DATABASE = env.PREFIX + env.HISTORY_DATABASE


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "history", help="serve the history of a cluster's jobs, from which later jobs take their first size",
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
    )  # fmt: skip
    parser.add_argument(
        "--database", metavar="URL",
        help=f"sqlite:////DIR/history.db or postgresql://USER@HOST/NAME (default: what {DATABASE} says: for passwords)",
    )  # fmt: skip
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default=f"0.0.0.0:{PORT}",  # nosec B104 # a service; who asks needs a certificate
        help=f"where AIMasters ask, with mTLS (default 0.0.0.0:{PORT})",
    )  # fmt: skip
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="a page that only reads, for whoever reaches it (default: none)"
    )
    parser.add_argument("--certs", metavar="DIR", type=Path, required=True, help="of the authority and the service")
    parser.add_argument("--keep", metavar="DURATION", default="365d", help="how long a job is kept (default 365d)")
    parser.add_argument(
        "--keep-jobs", metavar="N", type=whole("rows"), default=2_000, help="so many of a namespace (default 2000)"
    )
    parser.add_argument(
        "--keep-all", metavar="N", type=whole("rows"), default=100_000, help="so many in all (default 100000)"
    )
    parser.add_argument("--make", action="store_true", help="make the certificates in --certs, and end")
    parser.add_argument("--issue", metavar="NAMESPACE", help="make the certificate of an AIMaster, and end")
    parser.add_argument("--to", metavar="DIR", type=Path, help="of --issue: where it is written")


def run(arguments: argparse.Namespace) -> int:
    if (arguments.issue is None) != (arguments.to is None):
        raise UsageError("history: --issue NAMESPACE and --to DIR belong together")
    try:
        with files_private():
            if arguments.make:
                identities.create(arguments.certs)
                print(
                    f"{arguments.certs} has the authority, and new certificates of the service and of the administrator"
                )
            if arguments.issue is not None:
                identities.write_writer(arguments.certs, arguments.issue, arguments.to)
                print(f"{arguments.to} has the certificate of namespace {arguments.issue}: --history-certs of its jobs")
    except (OSError, ValueError) as error:
        raise UsageError(f"--certs {arguments.certs}: no certificate can be made: {error}") from error
    return 0 if arguments.make or arguments.issue is not None else serve(arguments)


def serve(arguments: argparse.Namespace) -> int:
    """Until it is told to end. Raises UsageError."""
    require("history", "deeprec-ext history")
    from deeprec_ext.history import service
    from deeprec_ext.history.database import Retention

    database = arguments.database or env.history_database()
    if not database:
        raise UsageError(f"history: which database? Give --database URL, or say it in {DATABASE}")
    try:
        retention = Retention(parse_duration(arguments.keep), arguments.keep_jobs, arguments.keep_all)
    except ValueError as error:
        raise UsageError(f"--keep: {error}") from None
    if min(retention.jobs_of_namespace, retention.jobs) < 1:
        raise UsageError("history: --keep-jobs and --keep-all must be 1 or more")
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    options = service.ServiceOptions(
        database, parse_address(arguments.listen, "--listen"), arguments.certs,
        parse_address(arguments.http) if arguments.http else None, retention,
    )  # fmt: skip
    try:
        with files_private():
            return asyncio.run(service.run(options))
    except OSError as error:
        raise UsageError(f"history: {error}; certificates are made with --make") from error
