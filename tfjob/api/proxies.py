"""By which proxy an API server is reached, as kubectl decides it: that of its kubeconfig, else what the environment says.

The rules are those of Go's `golang.org/x/net/http/httpproxy`: a `proxy-url` is used whatever NO_PROXY says; of the
environment the upper case counts first, and a loopback address is always reached directly.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from deeprec_ext.errors import UsageError

PORTS = {"http": 80, "https": 443}


def proxy_of(server: str, proxy_url: str, environment: Mapping[str, str]) -> str | None:
    """URL of the proxy; None: directly. Raises UsageError for a proxy that is none, or of a kind that is not known here.

    Args:
        server: URL of the API server.
        proxy_url: of its entry in the kubeconfig; empty: none.
    """
    if proxy_url:
        return _checked(proxy_url, "proxy-url of the kubeconfig")
    found = urlsplit(server)
    name = f"{found.scheme}_proxy".upper()
    given = _of(environment, name)
    if not given or _direct(found, _of(environment, "NO_PROXY")):
        return None
    return _checked(given if "://" in given else f"http://{given}", name, "; NO_PROXY names what is reached without it")


def shown(proxy: str) -> str:
    """Without its password."""
    return urlsplit(proxy).netloc.rpartition("@")[2]


def _of(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _checked(proxy: str, where: str, remedy: str = "") -> str:
    try:
        found = urlsplit(proxy)
        host = found.hostname if found.port != 0 else None
    except ValueError:
        raise UsageError(f"{where}: this is no URL; write http://HOST:PORT{remedy}") from None
    if found.scheme in ("https", "socks5", "socks5h"):
        raise UsageError(
            f"{where}: proxies are spoken to by HTTP only, not {found.scheme}; write http://HOST:PORT (what goes to the API "
            f"server through it is encrypted all the same){remedy}"
        )
    if found.scheme != "http" or not host:
        raise UsageError(f"{where}: this is no proxy; write http://HOST:PORT{remedy}")
    return proxy


def _direct(server: SplitResult, no_proxy: str) -> bool:
    host, port = (server.hostname or "").rstrip("."), server.port or PORTS.get(server.scheme, 0)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_names(one, host, address, port) for one in no_proxy.lower().replace(" ", ",").split(",") if one)


def _names(
    entry: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, port: int
) -> bool:  # fmt: skip
    """Whether this entry of NO_PROXY means that server: `*`, an address, a network, `host`, `.host` or `*.host`; each may
    have a port, but a network."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        entry = name
    if (one := _address(entry.strip("[]"))) is not None or address is not None:
        return one == address
    entry = entry[1:] if entry.startswith("*.") else entry
    return host.endswith(entry if entry.startswith(".") else f".{entry}") or host == entry


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
