"""A thin asynchronous client of the Kubernetes API: manifests go in and come out as the dictionaries they are.

Who it is (kubeconfig, exec plugins, the service account of a pod and its rotated token) is the `kubernetes` package's
business; requests are aiohttp's. Every request has a deadline, every list is paged, errors name verb and resource.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from deeprec_ext.errors import DeepRecError, UnreachableError
from tfjob.api.kubeconfig import load
from tfjob.api.proxies import shown
from tfjob.model.kinds import Manifest, Resource

log = logging.getLogger(__name__)

CALL_SECONDS = 30.0
PAGE = 500
WATCH_SECONDS = 300
"""The server ends a watch after so long; a connection that died silently is noticed then, at the latest."""
CONNECTIONS = 32
MESSAGE_BYTES_MAX = 64 << 20
"""Of a websocket. Servers send 32 KiB at a time."""


class ApiError(DeepRecError):
    """The API server has answered with an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409: the object exists already, or has changed since it was read."""


class ForbiddenError(ApiError):
    """403: the rights are too narrow (or a quota is used up); the message names verb and resource."""


class ExpiredError(ApiError):
    """410: a watch that starts too far back; list again."""


_ERRORS: dict[int, type[ApiError]] = {403: ForbiddenError, 404: NotFoundError, 409: ConflictError, 410: ExpiredError}


class Api:
    """Async context manager; one connection pool. For one event loop."""

    def __init__(self, configuration: Any, connections: int = CONNECTIONS) -> None:
        self._configuration, self._connections = configuration, connections
        self._session: Any = None

    @classmethod
    def from_environment(
        cls, context: str | None = None, kubeconfig: str | None = None, connections: int = CONNECTIONS
    ) -> Api:
        """As kubectl finds it: in a pod its service account, else KUBECONFIG. Raises UsageError."""
        return cls(load(context, kubeconfig), connections)

    async def __aenter__(self) -> Api:
        import aiohttp

        connector = aiohttp.TCPConnector(limit=self._connections, ssl=self._tls())
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    def _tls(self) -> ssl.SSLContext | bool:
        found = self._configuration
        if not found.host.startswith("https"):
            return False
        context = ssl.create_default_context(cafile=found.ssl_ca_cert)
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)  # authorities of clusters lack key identifiers
        if found.cert_file:
            context.load_cert_chain(found.cert_file, found.key_file)
        if not found.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _headers(self, content_type: str, accept: str = "application/json") -> dict[str, str]:
        headers = {"Accept": accept, "Content-Type": content_type}
        token = self._configuration.get_api_key_with_prefix("authorization")  # reads a rotated token again
        token = token or self._configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers["Authorization"] = token if " " in token else f"Bearer {token}"
        elif self._configuration.username:
            headers["Authorization"] = self._configuration.get_basic_auth_token()
        return headers

    # ------------------------------------------------------------------------------------------------ requests

    @contextlib.asynccontextmanager
    async def _answer(
        self, method: str, path: str, asked: str, headers: Mapping[str, str], **options: Any
    ) -> AsyncIterator[Any]:
        """An `aiohttp.ClientResponse` that is none of an error. Raises ApiError, UnreachableError."""
        with _reached(asked, self._configuration.proxy):
            url, proxy = self._configuration.host + path, self._configuration.proxy
            async with self._session.request(method, url, headers=headers, proxy=proxy, **options) as answer:
                if answer.status >= 400:
                    raise api_error(answer.status, await answer.text(), asked)
                yield answer

    async def request(
        self, method: str, path: str, body: Any = None, *, query: Mapping[str, str] | None = None,
        content_type: str = "application/json", timeout_seconds: float = CALL_SECONDS,
    ) -> Manifest:  # fmt: skip
        """One request. Raises ApiError (its subclasses), or UnreachableError when there was no answer."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        data, asked = None if body is None else json.dumps(body), f"{method} {path.partition('?')[0]}"
        headers = self._headers(content_type)
        async with self._answer(method, path, asked, headers, params=query, data=data, timeout=timeout) as answer:
            text = await answer.text()
        value: Manifest = json.loads(text)
        return value

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, read_seconds: float, verb: str = "GET"
    ) -> AsyncIterator[Any]:
        """The body of an answer as it comes, an `aiohttp.StreamReader`.

        Args:
            read_seconds: nothing may come for so long.
            verb: as errors call it.

        Raises ApiError; UnreachableError, also from within the block when the connection breaks.
        """
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS, sock_read=read_seconds)
        headers = self._headers("application/json")
        async with self._answer("GET", path, f"{verb} {path}", headers, params=query, timeout=timeout) as answer:
            yield answer.content

    @contextlib.asynccontextmanager
    async def websocket(self, path: str, protocol: str) -> AsyncIterator[Any]:
        """An open `aiohttp.ClientWebSocketResponse`. Raises ApiError, UnreachableError.

        A server that refuses says why only in the answer to a plain request, so it is asked once more without the upgrade.
        """
        import aiohttp

        asked = f"GET {path.partition('?')[0]}"
        opening = asyncio.ensure_future(
            self._session.ws_connect(
                self._configuration.host + path, protocols=(protocol,), max_msg_size=MESSAGE_BYTES_MAX,
                headers=self._headers("application/json", accept="*/*"),  # a stream is not JSON, and would be refused as 406
                proxy=self._configuration.proxy,
            )
        )  # fmt: skip
        try:
            with _reached(asked, self._configuration.proxy, but=aiohttp.WSServerHandshakeError):
                await asyncio.wait({opening}, timeout=CALL_SECONDS)
                if not opening.done():
                    raise asyncio.TimeoutError
                opened = opening.result()
        except aiohttp.WSServerHandshakeError as error:
            try:
                await self.request("GET", path)
            except ApiError as said:
                if said.status != 400:  # that one says no more than that this was no upgrade
                    raise
            raise ApiError(
                error.status, "", f"{asked}: no websocket is opened ({error.status}: {error.message})"
            ) from error
        finally:
            opening.cancel()
        try:
            yield opened
        finally:
            await opened.close()

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        return await self.request("GET", resource.path(namespace, name))

    async def list_all(
        self, resource: Resource, namespace: str | None, *, labels: str = "", fields: str = "",
        shrink: Callable[[Manifest], Any] | None = None,
    ) -> tuple[list[Any], str]:  # fmt: skip
        """All of them, page by page, and the resource version from which a watch goes on.

        Args:
          shrink: what is kept of each, where there are many: never more than a page of them is whole.
        """
        items: list[Any] = []
        query = {"limit": str(PAGE), **_selectors(labels, fields)}
        while True:
            page = await self.request("GET", resource.path(namespace), query=query)
            found = page.get("items") or []
            items += found if shrink is None else map(shrink, found)
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, metadata.get("resourceVersion", "")
            query["continue"] = metadata["continue"]

    async def create(self, resource: Resource, namespace: str | None, body: Manifest) -> Manifest:
        return await self.request("POST", resource.path(namespace), body)

    async def replace(
        self, resource: Resource, namespace: str | None, body: Manifest, subresource: str = ""
    ) -> Manifest:
        """With the resource version in `body`: raises ConflictError when somebody was faster."""
        name = body["metadata"]["name"]
        return await self.request("PUT", resource.path(namespace, name, subresource), body)

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, body: Manifest, subresource: str = ""
    ) -> Manifest:
        """A merge patch (RFC 7386)."""
        path = resource.path(namespace, name, subresource)
        return await self.request("PATCH", path, body, content_type="application/merge-patch+json")

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, grace_seconds: float | None = None, uid: str = ""
    ) -> bool:
        """Whether there was something to delete. `uid`: only this very object."""
        body: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = int(grace_seconds)
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", resource.path(namespace, name), body)
        except (NotFoundError, ConflictError):  # gone, or another one of that name
            return False
        return True

    async def watch(
        self, resource: Resource, namespace: str | None, version: str, *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Manifest]]:
        """(ADDED, MODIFIED, DELETED or BOOKMARK; the object), until the server ends it.

        Raises ExpiredError when `version` is too old, UnreachableError when the connection breaks.
        """
        query = {
            "watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS), **_selectors(labels, fields),
        }  # fmt: skip
        path = resource.path(namespace)
        async with self.stream(path, query, read_seconds=WATCH_SECONDS + 30.0, verb="WATCH") as content:
            async for line in _lines(content):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise api_error(event["object"].get("code", 500), json.dumps(event["object"]), f"WATCH {path}")
                yield event["type"], event["object"]


@contextlib.contextmanager
def _reached(asked: str, proxy: str | None, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Raises UnreachableError where there is no answer, except for `but`, which is one."""
    import aiohttp

    try:
        yield
    except but:
        raise
    except aiohttp.ClientHttpProxyError as error:
        raise UnreachableError(
            f"the proxy {shown(proxy or '')} does not connect to the Kubernetes API ({asked}): {error.status} {error.message}"
        ) from None
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        if proxy is None:
            raise UnreachableError(f"the Kubernetes API does not answer ({asked}): {error!r}") from error
        why = (
            f"{type(error).__name__}: {error}"  # its repr, and that of what it came from, may have the proxy's password
        )
        through = f"through the proxy {shown(proxy)}"
        raise UnreachableError(f"the Kubernetes API does not answer {through} ({asked}): {why}") from None


async def _lines(content: Any) -> AsyncIterator[bytes]:
    """Lines of any length (aiohttp's own iterator gives up at 128 KiB)."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {**({"labelSelector": labels} if labels else {}), **({"fieldSelector": fields} if fields else {})}


def api_error(status: int, text: str, request: str) -> ApiError:
    """From the `Status` object that the server sends with an error."""
    reason, message = "", text[:500]
    with contextlib.suppress(ValueError, AttributeError):
        found = json.loads(text)
        reason, message = found.get("reason", ""), found.get("message", "") or message
    return _ERRORS.get(status, ApiError)(status, reason, f"{request}: {message}")
