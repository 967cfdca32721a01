"""A PostgreSQL of its own for the tests: Debian's, in a temporary directory, reached by a socket there and by nobody else."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

DEBIAN = Path("/usr/lib/postgresql")
SECONDS = 60


def binaries() -> Path | None:
    """Debian has the server's programs beside the PATH, by version."""
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0)
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


def why_not() -> str:
    """Why there is none; empty: there is one."""
    if binaries() is None:
        return "no PostgreSQL is installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


def _user() -> pwd.struct_passwd | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres")
    return None


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Its directory, for `url`."""
    programs, user = binaries(), _user() if os.geteuid() == 0 else None
    assert programs is not None
    directory = tempfile.mkdtemp(
        prefix="deeprec-ext-pg-", dir="/tmp"
    )  # pytest's own is root's alone, and long for a socket
    who: dict[str, Any] = {}
    if user is not None:
        os.chown(directory, user.pw_uid, user.pw_gid)
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run(*words: str) -> None:
        done = subprocess.run(
            words, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=SECONDS, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, **who,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:]

    data, log = f"{directory}/data", f"{directory}/log"
    options = f"-c listen_addresses= -c unix_socket_directories={directory} -c fsync=off -c max_connections=20"
    try:
        run(str(programs / "initdb"), "-D", data, "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8")
        run(str(programs / "pg_ctl"), "-D", data, "-l", log, "-w", "-t", str(SECONDS), "-o", options, "start")
        try:
            yield directory
        finally:
            run(str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def url(directory: str, name: str) -> str:
    return f"postgresql://tests@/{name}?host={quote(directory, safe='')}"


def create(directory: str, name: str) -> str:
    """A database of this name; its URL."""
    import psycopg

    with psycopg.connect(f"host={directory} user=tests dbname=postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
    return url(directory, name)
