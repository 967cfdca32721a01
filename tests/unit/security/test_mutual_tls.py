"""mTLS round trips over a real port: who is let in, who is not, and renewal."""

from __future__ import annotations

import concurrent.futures
import datetime
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from deeprec_ext.security import authority, credentials

METHOD = "/test/Who"


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    return authority.create_certificates(tmp_path / "certs", "job")


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts servers that answer with the caller's certificate role."""
    servers = []

    def start(certs: Path, role: str = "aimaster") -> str:
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), options=credentials.SERVER_OPTIONS)
        handler = grpc.unary_unary_rpc_method_handler(
            lambda _request, context: (credentials.peer_role(context) or "").encode()
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Who": handler}),))
        port = credentials.add_port(server, "127.0.0.1:0", role, certs)
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None).wait()


def ask(channel: grpc.Channel) -> bytes:
    with channel:
        return channel.unary_unary(METHOD)(b"", timeout=3)


@pytest.mark.parametrize("role", ["ps", "trainer", "admin"])
def test_the_server_sees_the_role_of_the_caller(certs: Path, serve: Callable[..., str], role: str) -> None:
    assert ask(credentials.open_channel(serve(certs), "aimaster.job", role, certs)) == role.encode()


def test_a_server_of_another_name_is_refused(certs: Path, serve: Callable[..., str]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        ask(credentials.open_channel(serve(certs), "aimaster.other", "ps", certs))
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_role_certificate_cannot_pose_as_the_server(certs: Path, serve: Callable[..., str]) -> None:
    with pytest.raises(grpc.RpcError):
        ask(credentials.open_channel(serve(certs, "trainer"), "aimaster.job", "ps", certs))


def test_another_jobs_certificate_is_refused(certs: Path, serve: Callable[..., str], tmp_path: Path) -> None:
    other = authority.create_certificates(tmp_path / "other", "job")
    (other / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    with pytest.raises(grpc.RpcError):
        ask(credentials.open_channel(serve(certs), "aimaster.job", "ps", other))


def test_a_client_without_a_certificate_is_refused(certs: Path, serve: Callable[..., str]) -> None:
    bare = grpc.ssl_channel_credentials((certs / "ca.pem").read_bytes())
    options = [("grpc.ssl_target_name_override", "aimaster.job")]
    with pytest.raises(grpc.RpcError):
        ask(grpc.secure_channel(serve(certs), bare, options=options))


def test_renewed_certificates_are_used_without_a_restart(certs: Path, serve: Callable[..., str]) -> None:
    address = serve(certs)
    assert ask(credentials.open_channel(address, "aimaster.job", "ps", certs)) == b"ps"
    authority.renew(certs, "renamed")
    assert ask(credentials.open_channel(address, "aimaster.renamed", "ps", certs)) == b"ps"


def test_keys_are_private_and_an_existing_authority_is_kept(certs: Path) -> None:
    before = (certs / "ca.pem").read_bytes()
    authority.create_certificates(certs, "job")
    assert (certs / "ca.pem").read_bytes() == before
    for key in certs.glob("*-key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(certs.stat().st_mode) == 0o700


def test_the_name_of_a_job_becomes_a_host_name() -> None:
    assert credentials.server_name("aimaster", "Run 1/x") == "aimaster.run-1-x"


def test_certificates_are_valid_on_a_clock_that_is_set_by_a_day_either_way(certs: Path) -> None:
    from cryptography import x509

    day, now = datetime.timedelta(days=1), datetime.datetime.now(datetime.timezone.utc)
    found = sorted(certs.glob("*.crt")) or sorted(certs.glob("*.pem"))
    assert found
    for path in found:
        if b"BEGIN CERTIFICATE" in path.read_bytes():
            one = x509.load_pem_x509_certificate(path.read_bytes())
            assert one.not_valid_before_utc < now - day and now + day < one.not_valid_after_utc, path.name
