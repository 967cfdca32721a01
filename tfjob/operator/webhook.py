"""The webhook that the API server calls for each new TFJob, beside Kubeflow's operator. All operators serve it, leader or not.

It answers from the request alone, so a dry run needs nothing of its own, and being called twice does no harm. The operator
looks after its certificate, and that the server knows the authority of it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import logging
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from deeprec_ext.errors import DeepRecError, UsageError
from tfjob.api.client import Api, ApiError, ConflictError, ForbiddenError, NotFoundError
from tfjob.model.kinds import Manifest, Resource
from tfjob.model.spec import InvalidError, check_update
from tfjob.operator.certificates import serving_certificates
from tfjob.operator.certificates.serving_certificates import AUTHORITIES, CERTIFICATE, KEY, SECRET, SERVICE, Files
from tfjob.operator.running import together
from tfjob.operator.sight import EVERYWHERE, Missing, Namespaces, Right, verb_of
from tfjob.reconciling.admission import Admitted, admit, review

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger(__name__)

CONFIGURATIONS = Resource("mutatingwebhookconfigurations", group="admissionregistration.k8s.io")
CONFIGURATION = "deeprec-ext-operator"
PATH = "/tfjobs"
BODY_BYTES_MAX = 8 << 20
"""A TFJob has at most 1.5 MB, and a review has it twice at an update."""

REQUESTS_MAX = 600
"""Three API servers, each with the 200 changes that it makes at a time if nothing else is said. One that is refused here makes
a job that is not elastic: `failurePolicy` is Ignore."""

CHECK_SECONDS, AGAIN_SECONDS = 600.0, 5.0
"""How often the certificate and the server's knowledge of it are looked at, and after an error."""


@dataclass(frozen=True)
class WebhookOptions:
    """
    Args:
        port: where it is served.
        namespace: where the operator's pod is, and the Secret with the certificate.
        url: by which the API server reaches an operator that runs outside of the cluster; empty: by the service.
        jobs_namespaces: jobs of other namespaces stay as they are; None among them: all are looked at.
        package_image, domain: see `injection`.
    """

    port: int
    namespace: str
    url: str = ""
    jobs_namespaces: Namespaces = EVERYWHERE
    package_image: str = ""
    domain: str = ""

    @property
    def hosts(self) -> list[str]:
        """By which it is called."""
        host = urlsplit(self.url).hostname
        return [host] if host else [f"{SERVICE}.{self.namespace}.svc", f"{SERVICE}.{self.namespace}"]


class Webhook:
    def __init__(self, api: Api, options: WebhookOptions, missing: Missing | None = None) -> None:
        self._api, self._options, self._missing = api, options, missing or Missing()
        self._context: ssl.SSLContext | None = None
        self._files: Files = {}
        self.serving = asyncio.Event()
        self.reviewed: dict[str, int] = {"admitted": 0, "denied": 0, "unchanged": 0}

    def answer(self, body: Manifest) -> Manifest:
        """To an AdmissionReview. Raises ValueError for what is none."""
        request, options = _request(body), self._options
        job, namespace = request["object"], str(request.get("namespace") or "default")
        if not {None, namespace} & set(options.jobs_namespaces):
            return review(request, Admitted(job))
        try:
            found = self._decide(request, job, namespace)
        except InvalidError as error:
            found = error
        except (
            Exception
        ) as error:  # what the server sends is what anybody may have written: it is refused, and we go on
            log.exception("a TFJob in %s could not be looked at", namespace)
            found = InvalidError("metadata", f"is of no form that can be looked at ({type(error).__name__}: {error})")
        kind = "denied" if isinstance(found, InvalidError) else "unchanged" if found.job == job else "admitted"
        self.reviewed[kind] += 1
        return review(request, found)

    def _decide(self, request: Manifest, job: Manifest, namespace: str) -> Admitted | InvalidError:
        """Raises InvalidError."""
        options = self._options
        if request.get("operation") == "UPDATE":
            check_update(request.get("oldObject") or {}, job)
            return Admitted(job)
        return admit(job, namespace, package_image=options.package_image, domain=options.domain)

    # ------------------------------------------------------------------------------------------------ serving

    async def run(self) -> None:
        """For ever. Raises UsageError when the port is taken, and whatever ends the server or the care for its certificate."""
        from starlette.applications import Starlette
        from starlette.routing import Route

        from deeprec_ext import webserver

        await self._until_done(self._refresh)
        app = Starlette(routes=[Route(PATH, self._mutate, methods=["POST"])])
        try:
            listener = webserver.bind(webserver.EVERYWHERE, self._options.port)
        except OSError as error:
            raise UsageError(f"--webhook-port {self._options.port}: {error.strerror or error}; give another") from error
        with contextlib.closing(listener):
            serving = webserver.serve(app, listener, tls=self._context, requests_max=REQUESTS_MAX)
            await together([serving, self._look_after()])

    async def _mutate(self, request: Request) -> Response:
        from starlette.responses import JSONResponse, PlainTextResponse

        from deeprec_ext.webserver import body_of

        body = await body_of(request, BODY_BYTES_MAX)
        if body is None:
            return PlainTextResponse(f"the body is longer than {BODY_BYTES_MAX} bytes\n", 413)
        try:
            return JSONResponse(self.answer(json.loads(body)))
        except (ValueError, RecursionError) as error:
            log.warning("a request to the webhook was no AdmissionReview of a TFJob: %r", error)
            return PlainTextResponse(f"no AdmissionReview of a TFJob: {error!r}\n", 400)

    async def _look_after(self) -> None:
        """The certificate, and that the server knows its authority; for ever."""
        while True:
            await self._until_done(self._announce)
            self.serving.set()
            await asyncio.sleep(CHECK_SECONDS)
            await self._until_done(self._refresh)

    async def _until_done(self, step: Callable[[], Any]) -> None:
        while True:
            try:
                await step()
                return
            except DeepRecError as error:
                log.warning("the webhook's certificate: %s; trying again", error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _refresh(self) -> None:
        """Serves with what the Secret says. Raises ApiError, UnreachableError."""
        now = datetime.datetime.now(datetime.timezone.utc)
        files = await serving_certificates.ensure(self._api, self._options.namespace, self._options.hosts, now)
        if files == self._files:
            return
        if self._context is None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory(prefix="deeprec-ext-webhook-") as directory:  # ssl reads from files only
            path = Path(directory)
            for name in (CERTIFICATE, KEY):
                (path / name).write_bytes(files[name])
            self._context.load_cert_chain(path / CERTIFICATE, path / KEY)  # of connections to come
        self._files = files

    async def _announce(self) -> None:
        """The server believes our authority; with rights in namespaces alone an administrator sees to that. Raises ApiError,
        UnreachableError."""
        try:
            await self._announce_it()
        except ForbiddenError as error:
            so = f"somebody who may gives the webhook {CONFIGURATION} the authority ({AUTHORITIES} of Secret {SECRET})"
            self._missing.add(Right("", CONFIGURATIONS, verb_of(error) or "get"), error, so)
        else:
            self._missing.given(Right("", CONFIGURATIONS, "patch"))  # or it is not needed: somebody has done it

    async def _announce_it(self) -> None:
        try:
            found = await self._api.get(CONFIGURATIONS, None, CONFIGURATION)
        except NotFoundError:
            where = "tfjob/manifests/overlays/beside-kubeflow/webhook.yaml"
            raise ApiError(
                404, "NotFound", f"there is no MutatingWebhookConfiguration {CONFIGURATION}: apply {where}"
            ) from None
        self._missing.given(Right("", CONFIGURATIONS, "get"))
        wanted = announced(found.get("webhooks") or [], self._files, self._options.url)
        if wanted == found.get("webhooks"):
            return
        version = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}}
        try:
            await self._api.patch(CONFIGURATIONS, None, CONFIGURATION, {**version, "webhooks": wanted})
        except ConflictError:
            await self._announce_it()


def _request(body: Any) -> Manifest:
    """Of an AdmissionReview. Raises ValueError."""
    request = body.get("request") if isinstance(body, dict) else None
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ValueError("it has no request with a uid")
    if not isinstance(request.get("object"), dict):
        raise ValueError("its request has no object")
    return request


def announced(webhooks: list[Manifest], files: Files, url: str) -> list[Manifest]:
    """The webhooks of the configuration with our authority, and with the address if they are to have another one."""
    bundle = base64.b64encode(files[AUTHORITIES]).decode("ascii")
    found = []
    for one in webhooks:
        client = {**one["clientConfig"], "caBundle": bundle}
        if url:
            client = {"url": url, "caBundle": bundle}
        found.append({**one, "clientConfig": client})
    return found
