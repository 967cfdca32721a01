"""gRPC channels and ports with mutual TLS, from the files that `authority` writes. Needs only grpc.

A certificate directory holds `ca.pem`, `<certificate>.pem` and `<certificate>-key.pem`. Clients check the *name* of the server
(`aimaster.<job>`, `launcher.<job>`) and not its host: the AIMaster may move. Servers demand a client certificate of the
same job's authority; for whom it speaks is its common name: one process (`worker-1`), or any of a role where who makes the
certificates does not know the index (`worker`; `trainer`: not even whether it is the chief).

Renewal (`renewing`) needs no restart: a server looks at the files again at each handshake, a client whenever it opens a channel
(agents, the AIMaster and `launch.client` open a new one when they reconnect). What is connected stays so: TLS looks at
certificates when a connection is made. Everywhere `certs=None` means no TLS at all: tests only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

TRAINERS = ("chief", "worker", "evaluator")
ROLES = ("ps", "trainer", *TRAINERS, "admin", "aimaster", "launcher")
SERVERS = ("aimaster", "launcher", "history")

MESSAGE_BYTES_MAX = 64 << 20
"""A view or a catalogue of a large model takes a few MiB; more than this is a mistake, not a message."""

_COMMON: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    *_COMMON,
    ("grpc.enable_http_proxy", 0),  # a proxy in the environment is for the internet, not for the job
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # min_reconnect_backoff_ms stays at its default: it also limits how long a handshake may take, and a busy host or a
    # thousand agents at once need seconds; a small value makes a storm of connections that never get through.
]
SERVER_OPTIONS: list[tuple[str, int]] = [
    *_COMMON,
    ("grpc.so_reuseport", 0),  # two servers on one port is an error, not load balancing
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]


READ_TRIES = 5
"""Files of certificates change once in months, and within milliseconds."""


class _Context(Protocol):
    def auth_context(self) -> Mapping[str, Iterable[bytes]]: ...


def server_name(service: str, job: str) -> str:
    """`("aimaster", "Run 1")` → `aimaster.run-1`: the name in the server's certificate."""
    return f"{service}.{re.sub('[^a-z0-9._-]', '-', job.lower())[:50] or 'job'}"


def _paths(certs: str | Path, role: str) -> tuple[Path, Path, Path]:
    directory = Path(certs)
    return directory / "ca.pem", directory / f"{role}-key.pem", directory / f"{role}.pem"


def stamp(certs: str | Path | None, role: str) -> tuple[int, ...]:
    """Another one when the files of `role` have been replaced. Raises OSError."""
    found = [path.stat() for path in _paths(certs, role)] if certs is not None else []
    return tuple(number for one in found for number in (one.st_mtime_ns, one.st_ino))


def _read(certs: str | Path, role: str) -> tuple[bytes, bytes, bytes]:
    """Authorities, key and certificate that belong together, also where they are being replaced meanwhile. Raises OSError."""
    before = stamp(certs, role)
    for _ in range(READ_TRIES):
        ca, key, chain = (path.read_bytes() for path in _paths(certs, role))
        if (after := stamp(certs, role)) == before:
            break
        before = after
    return ca, key, chain


def channel_credentials(certs: str | Path, role: str) -> grpc.ChannelCredentials:
    """Credentials of a client with the certificate `role`, from the files as they are now."""
    return grpc.ssl_channel_credentials(*_read(certs, role))


def _options(name: str) -> list[tuple[str, int | str]]:
    return [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", name)]


def open_channel(address: str, name: str, role: str, certs: str | Path | None) -> grpc.Channel:
    """A channel to `address` that accepts only the server called `name` (see `server_name`).

    Args:
        address: host:port.
        name: name in the server's certificate, e.g. `aimaster.myjob`.
        role: the caller's certificate, one of `ROLES`.
        certs: directory of the certificates; None: no TLS (tests).
    """
    if certs is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(address, channel_credentials(certs, role), options=_options(name))


def open_aio_channel(address: str, name: str, role: str, certs: str | Path | None) -> grpc.aio.Channel:
    """The same as `open_channel`, for asyncio."""
    if certs is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, channel_credentials(certs, role), options=_options(name))


class _Files:
    """The certificate configuration of a server, read again when a file has changed."""

    def __init__(self, certs: str | Path, role: str) -> None:
        self._certs, self._role = Path(certs), role
        self._seen = stamp(certs, role)
        self.configuration = self._load()

    def _load(self) -> grpc.ServerCertificateConfiguration:
        ca, key, chain = _read(self._certs, self._role)
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=ca)

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Called by gRPC at each handshake, in one of its threads; None means unchanged."""
        try:
            now = stamp(self._certs, self._role)
            if now == self._seen:
                return None
            self.configuration, self._seen = self._load(), now
            return self.configuration
        except OSError:  # being renamed into place: the old ones are good until the next handshake
            return None


def server_credentials(certs: str | Path, role: str) -> grpc.ServerCredentials:
    """Credentials of a server that demands client certificates and follows renewed files."""
    files = _Files(certs, role)
    return grpc.dynamic_ssl_server_credentials(files.configuration, files.fetch, require_client_authentication=True)


def add_port(server: grpc.Server | grpc.aio.Server, address: str, role: str, certs: str | Path | None) -> int:
    """Binds `address` (port 0: a free one) with the certificate `role`; returns the port.

    Raises RuntimeError when the port is taken.
    """
    if certs is None:
        return int(server.add_insecure_port(address))
    return int(server.add_secure_port(address, server_credentials(certs, role)))


def peer_certificate(context: _Context) -> str | None:
    """The name in the caller's certificate (`worker-1`, `ps`, `admin`), None without TLS."""
    for name in context.auth_context().get("x509_common_name", ()):
        return name.decode("utf-8", "replace")
    return None


def peer_role(context: _Context) -> str | None:
    """What the caller may act as: `ps`, `trainer`, `admin`, `aimaster`, `launcher`; None without TLS."""
    certificate = peer_certificate(context)
    return None if certificate is None else group_of(certificate)


def group_of(certificate: str) -> str:
    """`worker-1`, `chief` → `trainer`; `ps-0` → `ps`. Of any other name: that name."""
    role = role_of(certificate)
    return "trainer" if role in TRAINERS else role


def role_of(certificate: str) -> str:
    """`worker-1` → `worker`."""
    match = re.fullmatch(r"(ps|chief|worker|evaluator)-\d{1,6}", certificate)
    return match[1] if match else certificate


def is_own(certificate: str) -> bool:
    """Whether it is that of one process."""
    return role_of(certificate) != certificate


def certificate_for(certs: str | Path | None, role: str, index: int) -> str:
    """Which certificate the process `role`-`index` has in this directory: its own, that of its role, or that of its kind."""
    group = group_of(role)
    names = (f"{role}-{index}", role, group)
    return group if certs is None else next((name for name in names if (Path(certs) / f"{name}.pem").exists()), group)


class Speakers:
    """Who may speak for whom.

    Args:
        certs: the server's directory. Where it has a certificate of one process (the launcher made it), no certificate of the
            whole role speaks for that process. None: no TLS (tests), everybody speaks for everybody.
    """

    def __init__(self, certs: str | Path | None) -> None:
        self._certs = certs

    def may(self, certificate: str | None, name: str) -> bool:
        """Whether the bearer of this certificate may speak for the role called `name`, e.g. `worker-1`."""
        if self._certs is None or certificate is None:
            return self._certs is None
        if certificate == name:
            return is_own(certificate)
        role = role_of(name)
        of_role = certificate == role or (certificate == "trainer" and role in TRAINERS)
        return of_role and not (Path(self._certs) / f"{name}.pem").exists()
