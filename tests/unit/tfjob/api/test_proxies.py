"""By which proxy an API server is reached, and that everything goes through it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deeprec_ext.errors import UnreachableError, UsageError
from deeprec_ext.security.authority import create_certificates
from tests.unit.cli.cluster.server import kubeconfig
from tfjob.api.client import Api
from tfjob.api.kubeconfig import load
from tfjob.api.proxies import proxy_of, shown
from tfjob.model.kinds import PODS

SERVER = "https://api.example.com:6443"
P, Q = "http://proxy:3128", "http://other:8080"


@pytest.mark.parametrize(("server", "proxy_url", "environment", "expected"), [
    (SERVER, "", {}, None),
    (SERVER, P, {}, P),
    (SERVER, P, {"HTTPS_PROXY": Q, "NO_PROXY": "*"}, P),
    ("https://127.0.0.1:6443", P, {}, P),
    (SERVER, "", {"HTTPS_PROXY": P}, P),
    (SERVER, "", {"HTTPS_PROXY": P, "https_proxy": Q}, P),
    (SERVER, "", {"https_proxy": Q}, Q),
    (SERVER, "", {"HTTPS_PROXY": "proxy:3128"}, P),
    (SERVER, "", {"HTTP_PROXY": P, "ALL_PROXY": P}, None),
    ("http://api.example.com", "", {"HTTP_PROXY": P, "HTTPS_PROXY": Q}, P),
    ("http://127.0.0.1:8001", "", {"HTTP_PROXY": P}, None),
    ("https://[::1]:6443", "", {"HTTPS_PROXY": P}, None),
    ("https://localhost:6443", "", {"HTTPS_PROXY": P}, None),
])  # fmt: skip
def test_the_proxy_is_that_of_the_kubeconfig_else_of_the_environment(
    server: str, proxy_url: str, environment: Mapping[str, str], expected: str | None
) -> None:
    assert proxy_of(server, proxy_url, environment) == expected


@pytest.mark.parametrize(("no_proxy", "server", "direct"), [
    ("*", SERVER, True), ("api.example.com", SERVER, True), ("example.com", SERVER, True), (".example.com", SERVER, True),
    ("*.example.com", SERVER, True), ("EXAMPLE.com", SERVER, True), ("a.b, example.com", SERVER, True),
    ("a.b example.com", SERVER, True), ("example.com:6443", SERVER, True),
    ("ample.com", SERVER, False), ("example.com:443", SERVER, False), ("example.org", SERVER, False), (",", SERVER, False),
    (".api.example.com", SERVER, False), ("10.0.0.0/8", SERVER, False), ("what/ever", "https://10.1.2.3", False),
    ("10.0.0.0/8", "https://10.1.2.3:6443", True), ("10.1.2.3", "https://10.1.2.3:6443", True),
    ("10.1.2.3:443", "https://10.1.2.3", True), ("1.2.3", "https://10.1.2.3", False),
    ("11.0.0.0/8", "https://10.1.2.3:6443", False), ("fd00::/8", "https://[fd00::5]:6443", True),
    ("fd00::5", "https://[fd00:0::5]:6443", True), ("[fd00::5]:6443", "https://[fd00::5]:6443", True),
    ("[fd00::5]:443", "https://[fd00::5]:6443", False), ("10.0.0.0/8", "https://[fd00::5]", False),
])  # fmt: skip
def test_no_proxy_names_hosts_domains_addresses_and_networks(no_proxy: str, server: str, direct: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        assert proxy_of(server, "", {"HTTPS_PROXY": P, name: no_proxy}) == (None if direct else P)


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "https://proxy", "http://", "http://proxy:x", "ftp://proxy"])
def test_a_proxy_of_no_use_is_refused_with_what_to_write(proxy: str) -> None:
    with pytest.raises(UsageError, match=r"proxy-url.*write http://HOST:PORT"):
        proxy_of(SERVER, proxy, {})
    with pytest.raises(UsageError, match=r"HTTPS_PROXY.*NO_PROXY"):
        proxy_of(SERVER, "", {"HTTPS_PROXY": proxy})


def test_a_proxy_is_shown_without_its_password() -> None:
    assert shown("http://me:secret@proxy:3128") == "proxy:3128"


# ------------------------------------------------------------------------------------------------ the kubeconfig


def written(path: Path, *, server: str = SERVER, **cluster: Any) -> str:
    found = kubeconfig(server, "team")
    found["clusters"][0]["cluster"].update({key.replace("_", "-"): value for key, value in cluster.items()})
    direct = {"name": "direct", "cluster": {"server": server}}
    found["clusters"].append(direct)
    found["contexts"].append({"name": "straight", "context": {"cluster": "direct", "user": "u"}})
    path.write_text(yaml.safe_dump(found))
    return str(path)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_each_context_has_the_proxy_of_its_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "config", proxy_url=P)
    monkeypatch.setenv("HTTP_PROXY", Q)  # the package would take that one
    assert load(None, path).proxy == load("plain", path).proxy == P
    assert load("straight", path).proxy is None
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{path}")
    assert load().proxy == P
    monkeypatch.setenv("HTTPS_PROXY", Q)
    assert load("straight").proxy == Q


def test_in_a_pod_the_server_is_reached_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes import config

    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HTTPS_PROXY", P)
    monkeypatch.setattr(config, "load_incluster_config", lambda client_configuration: None)
    assert load().proxy is None


# ------------------------------------------------------------------------------------------------ through it

PATH = "/api/v1/namespaces/team/pods/one"
ACCEPTED = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 18\r\nConnection: close\r\n\r\n"
SWITCHED = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: v5\r\n"
)
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Tunnel:
    """A proxy that knows CONNECT, with a TLS server behind it that nobody reaches but by the proxy."""

    def __init__(self, certificates: Path, refusal: str = "") -> None:
        self._certificates, self._refusal = certificates, refusal
        self.asked: list[str] = []  # of the proxy
        self.served: list[str] = []  # by the server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served.append(head := (await reader.readuntil(b"\r\n\r\n")).decode())
        if key := re.search(r"(?i)sec-websocket-key: (\S+)", head):
            proof = base64.b64encode(hashlib.sha1(f"{key[1]}{WEBSOCKET}".encode()).digest()).decode()  # RFC 6455
            writer.write(f"{SWITCHED}Sec-WebSocket-Accept: {proof}\r\n\r\n".encode() + b"\x81\x05hello\x88\x00")
        else:
            writer.write(f'{ACCEPTED}{{"kind": "served"}}'.encode())
        await writer.drain()
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
            sink.close()

        self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self._refusal:
            writer.write(f"HTTP/1.1 {self._refusal}\r\nContent-Length: 0\r\n\r\n".encode())
            writer.close()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", self._server_port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, outer), copy(inner, writer), return_exceptions=True)

    async def play(self, kubeconfig_path: Path, ask: Callable[[Api], Awaitable[Any]]) -> Any:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificates / "aimaster.pem", self._certificates / "aimaster-key.pem")
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        proxy = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self._server_port = server.sockets[0].getsockname()[1]
        port = proxy.sockets[0].getsockname()[1]
        # nobody listens at that port of the loopback: only who asks the proxy is served
        path = written(
            kubeconfig_path, server="https://127.0.0.1:1", proxy_url=f"http://me:secret@127.0.0.1:{port}",
            certificate_authority=str(self._certificates / "ca.pem"),
        )  # fmt: skip
        async with server, proxy, Api.from_environment(None, path) as api:
            return await ask(api)


def get(api: Api) -> Awaitable[Any]:
    return api.get(PODS, "team", "one")


async def hear(api: Api) -> Any:
    async with api.websocket(f"{PATH}/exec", "v5") as opened:
        return await opened.receive_str()


def test_requests_go_through_a_tunnel_to_the_server(tmp_path: Path) -> None:
    tunnel = Tunnel(create_certificates(tmp_path / "certs", "ctr"))
    assert asyncio.run(asyncio.wait_for(tunnel.play(tmp_path / "config", get), 20)) == {"kind": "served"}
    head = tunnel.asked[0]
    assert head.startswith("CONNECT 127.0.0.1:1 HTTP/1.1\r\n") and "Bearer" not in head, "the token is the server's"
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:secret').decode()}" in head
    assert tunnel.served[0].startswith(f"GET {PATH} ") and "Authorization: Bearer t" in tunnel.served[0]


def test_commands_in_pods_go_through_it_too(tmp_path: Path) -> None:
    tunnel = Tunnel(create_certificates(tmp_path / "certs", "ctr"))
    assert asyncio.run(asyncio.wait_for(tunnel.play(tmp_path / "config", hear), 20)) == "hello"
    assert len(tunnel.asked) == 1 and tunnel.served[0].startswith(f"GET {PATH}/exec ")


def test_a_proxy_that_refuses_is_named_without_its_password(tmp_path: Path) -> None:
    tunnel = Tunnel(create_certificates(tmp_path / "certs", "ctr"), "407 Proxy Authentication Required")
    with pytest.raises(UnreachableError, match=r"the proxy 127\.0\.0\.1:\d+ does not connect .*: 407 Proxy") as raised:
        asyncio.run(asyncio.wait_for(tunnel.play(tmp_path / "config", get), 20))
    assert not tunnel.served and "secret" not in str(raised.value)


def test_a_proxy_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    async def ask() -> None:
        path = written(tmp_path / "config", proxy_url="http://me:secret@127.0.0.1:1")
        async with Api.from_environment(None, path) as api:
            await api.get(PODS, "team", "one")

    with pytest.raises(UnreachableError, match=r"through the proxy 127\.0\.0\.1:1 ") as raised:
        asyncio.run(asyncio.wait_for(ask(), 20))
    assert "secret" not in str(raised.value)
