"""Who may read and add what: the authority of the history, and the certificates that it gives.

The history has an authority of its own, since it serves the jobs of many. A certificate says what its bearer is (its common
name: `admin` reads everything; `aimaster` reads and adds the jobs of one namespace) and of which namespace (its organisation).
So no record can be put under another namespace, and nobody learns what another's jobs need.

A directory has the files that `deeprec_ext.security` has: `ca.pem`, `<role>.pem`, `<role>-key.pem`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeprec_ext import wholefiles
from deeprec_ext.errors import UsageError
from deeprec_ext.security import authority
from deeprec_ext.security.credentials import server_name

NAME = "history"
SERVER, ADMIN, WRITER = "history", "admin", "aimaster"
SERVER_NAME = server_name(SERVER, NAME)
"""In the server's certificate: a client checks it, and not the host, which may be any."""

OWN = ("ca.pem", "ca-key.pem", "history.pem", "history-key.pem", "admin.pem", "admin-key.pem")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Caller:
    """`namespace`: of a writer."""

    role: str
    namespace: str = ""


def create(directory: Path) -> None:
    """The authority, if there is none, and new certificates of the service and of the administrator. Raises OSError."""
    authority.create_authority(directory, NAME)
    authority.renew(directory, NAME, (SERVER, ADMIN))


def checked_namespace(text: str) -> str:
    """Raises UsageError for what is no name of a namespace."""
    if not _NAMESPACE.fullmatch(text):
        raise UsageError(f"{text[:70]!r} is no namespace: small letters, digits and -, at most 63")
    return text


def writer(files: Mapping[str, bytes], namespace: str, now: float | None = None) -> dict[str, bytes]:
    """What an AIMaster of the namespace needs: file name → content. `files`: those of the authority. Raises ValueError."""
    namespace = checked_namespace(namespace)
    certificate, key = authority.issued(files["ca.pem"], files["ca-key.pem"], namespace, WRITER, now=now)
    return {"ca.pem": files["ca.pem"], f"{WRITER}.pem": certificate, f"{WRITER}-key.pem": key}


def write_writer(directory: Path, namespace: str, target: Path) -> None:
    """The same as files (mode 0600 of the key) in `target`, which is made. Raises OSError, ValueError, UsageError."""
    files = writer({name: (directory / name).read_bytes() for name in ("ca.pem", "ca-key.pem")}, namespace)
    target.mkdir(parents=True, exist_ok=True)
    wholefiles.write_together(
        *((target / name, data, 0o600 if "key" in name else 0o644) for name, data in files.items())
    )


def server_context(directory: Path) -> ssl.SSLContext:
    """Of a server that only who has a certificate of this authority can talk to. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load(context, directory)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def load(context: ssl.SSLContext, directory: Path) -> None:
    """The files as they are now, for connections to come. Raises OSError."""
    context.load_cert_chain(directory / f"{SERVER}.pem", directory / f"{SERVER}-key.pem")
    context.load_verify_locations(directory / "ca.pem")


def client_context(directory: Path) -> ssl.SSLContext:
    """Of whoever has a certificate in this directory: an AIMaster, else the administrator. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(directory / "ca.pem")
    role = role_in(directory)
    context.load_cert_chain(directory / f"{role}.pem", directory / f"{role}-key.pem")
    return context


def role_in(directory: Path) -> str:
    """As what its owner asks."""
    return WRITER if (directory / f"{WRITER}.pem").exists() else ADMIN


def caller_of(certificate: Mapping[str, Any] | None) -> Caller | None:
    """Whose certificate it is (as `SSLSocket.getpeercert` has it); None: nobody's who may ask."""
    found = {key: value for part in (certificate or {}).get("subject", ()) for key, value in part}
    role, whose = found.get("commonName", ""), found.get("organizationName", "")
    if role == ADMIN and whose == NAME:
        return Caller(ADMIN)
    if role == WRITER and _NAMESPACE.fullmatch(whose):
        return Caller(WRITER, whose)
    return None
