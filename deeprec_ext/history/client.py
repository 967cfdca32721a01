"""Asking the service, and adding to it. Blocking, with the standard library alone; every call ends within its time.

What it answers is taken as written by anybody: it is bounded before it is read, and jobs that cannot have been are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from deeprec_ext.autoscaler.history.history import Finished, HistoryError
from deeprec_ext.autoscaler.history.possible import TEXT_MAX
from deeprec_ext.bounds import MOST
from deeprec_ext.errors import UsageError
from deeprec_ext.history.identities import SERVER_NAME, client_context, role_in
from deeprec_ext.history.record import BYTES_MAX, Kept, RecordError, from_values
from deeprec_ext.security import lifetimes

T = TypeVar("T")

SCHEME = "https://"
PORT = 7443
JOBS_MAX = 50
"""That are looked at for a first size."""

ANSWER_BYTES_MAX = 100 * (BYTES_MAX + 4 * TEXT_MAX)
SECONDS = 5.0
"""How long a job that begins, or has ended, waits for the service."""

SHOWN = 200

ISSUED_BY = "`deeprec-ext history --issue` writes new ones; in a cluster the operator renews them in the job's Secret"


@dataclass(frozen=True)
class Service:
    """Where a service is, and with which certificates it is asked (see `identities`)."""

    host: str
    port: int
    certificates: Path

    def __str__(self) -> str:
        return f"{SCHEME}{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def jobs(
        self, *, script: str | None = None, namespace: str | None = None, before: str = "", limit: int = JOBS_MAX,
        seconds: float = SECONDS,
    ) -> tuple[list[Kept], str]:  # fmt: skip
        """The newest first, and where the next page begins; jobs that cannot be read are left out. Raises HistoryError."""
        asked = {"script": script, "namespace": namespace, "before": before or None, "limit": str(limit)}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        found = within(seconds, lambda: self._request("GET", f"/api/jobs?{query}", None, seconds), str(self))
        rows, following = found.get("jobs"), found.get("next", "")
        if not isinstance(rows, list) or not isinstance(following, str) or len(following) > SHOWN:
            raise HistoryError(f"the history {self} does not answer as one")
        kept = []
        for row in rows[:limit]:
            with contextlib.suppress(RecordError, KeyError, TypeError, ValueError):
                kept.append(Kept(int(row["number"]), str(row["namespace"])[:TEXT_MAX], from_values(row["job"])))
        return kept, following

    def add(self, uid: str, job: Finished, *, seconds: float = SECONDS) -> bool:
        """False: it is there already. Raises HistoryError."""
        try:
            body = json.dumps({"uid": uid, "job": dataclasses.asdict(job)}, allow_nan=False).encode()
        except ValueError as error:
            raise HistoryError(f"the job cannot be written down: {error}") from None
        found = within(seconds, lambda: self._request("POST", "/api/jobs", body, seconds), str(self))
        return found.get("added") is True

    def _request(self, method: str, path: str, body: bytes | None, seconds: float) -> Mapping[str, Any]:
        try:
            context = client_context(self.certificates)
        except OSError as error:  # which names no file
            raise HistoryError(
                f"the history {self} cannot be asked: no certificate can be read in {self.certificates}: {error!s:.{SHOWN}}"
            ) from error
        try:
            connection = _Connection(self.host, self.port, timeout=seconds, context=context)
            with contextlib.closing(connection):
                connection.request(method, path, body, {"content-type": "application/json"} if body else {})
                answer = connection.getresponse()
                text = answer.read(ANSWER_BYTES_MAX + 1)
        except (OSError, ssl.SSLError, http.client.HTTPException) as error:
            expired = lifetimes.expired(self.certificates, ("ca", role_in(self.certificates)), time.time(), ISSUED_BY)
            raise HistoryError(f"the history {self} cannot be asked: {expired or str(error)[:SHOWN]}") from error
        if len(text) > ANSWER_BYTES_MAX:
            raise HistoryError(f"the history {self} answers with more than {ANSWER_BYTES_MAX:,} bytes")
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise HistoryError(f"the history {self} does not answer as one (status {answer.status})")
        if answer.status not in (200, 201):
            raise HistoryError(f"the history {self} refuses: {values.get('error', answer.status)!s:.{SHOWN}}")
        return values


class _Connection(http.client.HTTPSConnection):
    """Checks the name of the service, whatever host it runs on. A proxy in the environment is for the internet, not for it."""

    def __init__(self, host: str, port: int, *, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._tls = context

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self.timeout)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=SERVER_NAME)
        except BaseException:
            plain.close()
            raise


def service_at(text: str, certificates: Path | None) -> Service:
    """`https://HOST:PORT`. Raises UsageError: also without a directory of certificates, which the service demands."""
    rest = text.removeprefix(SCHEME)
    host, _, port = rest.rstrip("/").rpartition(":")
    host = host.strip("[]")
    if not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) <= MOST["port"]:
        raise UsageError(f"{text[:SHOWN]}: write {SCHEME}HOST:PORT, for example {SCHEME}history.deeprec-ext:{PORT}")
    if certificates is None:
        raise UsageError(f"{text[:SHOWN]}: the service knows who asks by a certificate: give --history-certs DIR, too")
    if not certificates.is_dir():
        raise UsageError(
            f"--history-certs {certificates}: there is no such directory; `deeprec-ext history --issue` writes one"
        )
    return Service(host, int(port), certificates)


def within(seconds: float, call: Callable[[], T], what: str) -> T:
    """What `call` returns, or raises. Raises HistoryError when that takes longer: a server that dribbles keeps nobody.

    The thread that is left behind then ends with its socket's own time limit, or with the process.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="history", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise HistoryError(f"the history {what} has not answered within {seconds:g} s")
    if failed:
        raise failed[0]
    return found[0]
