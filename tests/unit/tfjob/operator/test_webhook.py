"""The webhook as the API server calls it: over TLS, with an authority that the operator has told the server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from deeprec_ext import webserver
from deeprec_ext.errors import UsageError
from deeprec_ext.launch.ports import free_port
from tests.unit.aimaster.kubernetes.fake_api import FakeApi
from tests.unit.tfjob_manifests.pods import tfjob
from tfjob.model.kinds import SECRETS, Manifest
from tfjob.operator.certificates import serving_certificates as certificates
from tfjob.operator.sight import Missing
from tfjob.operator.webhook import CONFIGURATION, CONFIGURATIONS, Webhook, WebhookOptions

NAMESPACE = "deeprec-ext"
NOW = datetime.datetime.now(datetime.timezone.utc)
YEAR = datetime.timedelta(days=365)


def configuration() -> Manifest:
    service = {"name": "deeprec-ext-webhook", "namespace": NAMESPACE, "path": "/tfjobs", "port": 443}
    return {"metadata": {"name": CONFIGURATION}, "webhooks": [{"name": "tfjobs", "clientConfig": {"service": service}}]}


def request(**changes: Any) -> Manifest:
    job = tfjob()
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u-1", "namespace": "ads", "operation": "CREATE", "object": job, **changes}}  # fmt: skip


async def call(port: int, bundle: str, body: Any) -> tuple[int, Any]:
    context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    async with aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{port}/tfjobs"
        async with session.post(url, data=json.dumps(body), ssl=context) as answer:
            return answer.status, await answer.json() if answer.status == 200 else await answer.text()


def play(scenario: Callable[[FakeApi, Webhook, int], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        api, port = FakeApi(), free_port()
        api.put(CONFIGURATIONS, configuration())
        url = f"https://127.0.0.1:{port}/tfjobs"
        webhook = Webhook(api, WebhookOptions(port, NAMESPACE, url, package_image="i:1", **options))  # type: ignore[arg-type]
        running = asyncio.ensure_future(webhook.run())
        try:
            await asyncio.wait_for(webhook.serving.wait(), 20)
            await asyncio.wait_for(scenario(api, webhook, port), 20)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def client_of(api: FakeApi) -> Manifest:
    (found,) = api.objects[CONFIGURATIONS.plural, CONFIGURATION]["webhooks"]
    client: Manifest = found["clientConfig"]
    return client


def test_the_server_is_told_the_address_and_the_authority_and_gets_a_patch() -> None:
    async def scenario(api: FakeApi, webhook: Webhook, port: int) -> None:
        client = client_of(api)
        assert client["url"] == f"https://127.0.0.1:{port}/tfjobs" and "service" not in client
        status, answer = await call(port, client["caBundle"], request())
        assert status == 200 and answer["response"]["allowed"] and answer["response"]["patch"]
        denied = tfjob(annotations={"aimaster.deeprec.io/max-ps": "0"})
        _, answer = await call(port, client["caBundle"], request(object=denied, dryRun=True))
        assert not answer["response"]["allowed"] and "max-ps" in answer["response"]["status"]["message"]
        plain = {**tfjob(), "metadata": {"name": "ctr"}}
        _, answer = await call(port, client["caBundle"], request(object=plain))
        assert answer["response"] == {"uid": "u-1", "allowed": True}
        assert webhook.reviewed == {"admitted": 1, "denied": 1, "unchanged": 1}

    play(scenario)


@pytest.mark.parametrize(
    "body",
    [{}, [], {"request": {"uid": "u", "object": []}}, {"request": None}, {"request": {"object": {}}}, "text", 1, None],
)
def test_what_is_no_review_is_refused(body: Any) -> None:
    async def scenario(api: FakeApi, webhook: Webhook, port: int) -> None:
        status, text = await call(port, client_of(api)["caBundle"], body)
        assert status == 400 and "no AdmissionReview" in text

    play(scenario)


def test_an_operator_of_one_namespace_leaves_the_jobs_of_others_alone() -> None:
    async def scenario(api: FakeApi, webhook: Webhook, port: int) -> None:
        _, answer = await call(port, client_of(api)["caBundle"], request())
        assert answer["response"] == {"uid": "u-1", "allowed": True}

    play(scenario, jobs_namespaces=("mine", "other"))


def test_operators_share_one_certificate_and_say_nothing_twice() -> None:
    async def scenario(api: FakeApi, webhook: Webhook, port: int) -> None:
        before = len([one for one in api.calls if one[0] not in ("get", "list")])
        another = Webhook(api, webhook._options)  # type: ignore[arg-type]
        await another._refresh()
        await another._announce()
        assert another._files == webhook._files
        assert len([one for one in api.calls if one[0] not in ("get", "list")]) == before

    play(scenario)


async def _until_it_ends(webhook: Webhook, running: asyncio.Future[None]) -> None:
    """Nothing of it may be left: neither a task nor a listener."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(asyncio.shield(running), 20)
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == [], left
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", webhook._options.port)


@pytest.mark.parametrize("which", ["server", "certificate"])
def test_when_the_server_or_the_care_for_its_certificate_fails_the_other_ends_and_the_error_comes_out(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        api, port, broken = FakeApi(), free_port(), asyncio.Event()
        api.put(CONFIGURATIONS, configuration())
        webhook = Webhook(api, WebhookOptions(port, NAMESPACE, "https://127.0.0.1:1/tfjobs"))  # type: ignore[arg-type]
        serve = webserver.serve

        async def fails() -> None:
            await webhook.serving.wait()
            await broken.wait()
            raise KeyError("odd")

        async def ends(*given: Any, **how: Any) -> None:
            serving = asyncio.ensure_future(serve(*given, **how))
            try:
                await fails()
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

        if which == "server":
            monkeypatch.setattr(webserver, "serve", ends)
        else:
            announce = webhook._announce

            async def look_after() -> None:
                await announce()
                webhook.serving.set()
                await fails()

            monkeypatch.setattr(webhook, "_look_after", look_after)
        running = asyncio.ensure_future(webhook.run())
        await asyncio.wait_for(webhook.serving.wait(), 20)
        broken.set()
        await _until_it_ends(webhook, running)
        assert repr(running.exception()) == "KeyError('odd')"

    asyncio.run(main())


def test_who_does_not_begin_its_handshake_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webserver, "PATIENCE_SECONDS", 0.2)

    async def scenario(api: FakeApi, webhook: Webhook, port: int) -> None:
        reader, _ = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""

    play(scenario)


def test_without_the_right_to_change_the_configuration_it_serves_and_says_what_somebody_has_to_do() -> None:
    async def main() -> None:
        api, missing = FakeApi(), Missing()
        api.put(CONFIGURATIONS, configuration())
        api.forbidden |= {("get", CONFIGURATIONS.plural), ("patch", CONFIGURATIONS.plural)}
        webhook = Webhook(api, WebhookOptions(free_port(), NAMESPACE), missing)  # type: ignore[arg-type]
        running = asyncio.ensure_future(webhook.run())
        await webhook.serving.wait()
        (told,) = missing.told()
        assert "may not get mutatingwebhookconfigurations" in told and "ca.crt of Secret deeprec-ext-webhook" in told
        api.forbidden.discard(("get", CONFIGURATIONS.plural))
        await webhook._announce()
        (told,) = missing.told()
        assert "may not patch mutatingwebhookconfigurations" in told
        api.forbidden.clear()
        await webhook._announce()
        assert not missing.told()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_disk_that_is_full_is_not_told_as_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        api = FakeApi()
        webhook = Webhook(api, WebhookOptions(free_port(), NAMESPACE))  # type: ignore[arg-type]

        async def full() -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(webhook, "_look_after", full)
        with pytest.raises(OSError, match="No space left"):
            await webhook.run()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_port_that_is_taken_is_one_line_with_the_flag() -> None:
    async def main(port: int) -> None:
        await Webhook(FakeApi(), WebhookOptions(port, NAMESPACE)).run()  # type: ignore[arg-type]

    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"--webhook-port {port}: Address already in use; give another"):
            asyncio.run(asyncio.wait_for(main(port), 20))


def ensured(api: FakeApi, now: datetime.datetime, hosts: tuple[str, ...] = ("a.svc",)) -> certificates.Files:
    return asyncio.run(certificates.ensure(api, NAMESPACE, list(hosts), now))  # type: ignore[arg-type]


def test_the_certificate_is_made_anew_before_it_ends_by_the_same_authority() -> None:
    api = FakeApi()
    first = ensured(api, NOW)
    assert ensured(api, NOW + 0.6 * YEAR) == first
    second = ensured(api, NOW + 0.7 * YEAR)
    assert second[certificates.CERTIFICATE] != first[certificates.CERTIFICATE]
    assert second[certificates.AUTHORITIES] == first[certificates.AUTHORITIES]
    assert api.names(SECRETS) == ["deeprec-ext-webhook"]


def test_a_new_authority_does_not_shut_out_who_still_serves_with_the_old_one() -> None:
    api = FakeApi()
    first = ensured(api, NOW)
    second = ensured(api, NOW + 9 * YEAR)
    assert second[certificates.AUTHORITIES].endswith(first[certificates.AUTHORITIES])
    assert second[certificates.AUTHORITIES].count(b"BEGIN") == 2


@pytest.mark.parametrize("spoil", [{"tls.crt": "bm9uZQ=="}, {"ca.key": None}, {"ca.crt": "bm9uZQ=="}])
def test_a_secret_that_somebody_has_damaged_is_made_anew(spoil: dict[str, Any]) -> None:
    api = FakeApi()
    ensured(api, NOW)
    api.change(SECRETS, "deeprec-ext-webhook", {"data": spoil})
    found = ensured(api, NOW + 0.7 * YEAR)
    assert not certificates.due(found, ["a.svc"], NOW)


def test_another_address_needs_another_certificate() -> None:
    api = FakeApi()
    first = ensured(api, NOW)
    assert ensured(api, NOW, ("a.svc", "127.0.0.1")) != first


TEMPLATE = "spec/tfReplicaSpecs/Worker/template"
PLACES = (
    "apiVersion", "kind", "metadata", "metadata/name", "metadata/namespace", "metadata/annotations", "metadata/labels",
    "metadata/generation", "metadata/uid", "metadata/deletionTimestamp", "spec", "spec/runPolicy", "spec/tfReplicaSpecs",
    "spec/successPolicy", "spec/enableDynamicWorker", "status", "spec/tfReplicaSpecs/Worker", f"{TEMPLATE}",
    "spec/tfReplicaSpecs/Worker/replicas", "spec/tfReplicaSpecs/Worker/restartPolicy", f"{TEMPLATE}/metadata",
    f"{TEMPLATE}/spec", f"{TEMPLATE}/spec/containers", f"{TEMPLATE}/spec/containers/0", f"{TEMPLATE}/spec/containers/0/env",
    f"{TEMPLATE}/spec/containers/0/name", f"{TEMPLATE}/spec/containers/0/command", f"{TEMPLATE}/spec/containers/0/ports",
    f"{TEMPLATE}/spec/containers/0/resources", f"{TEMPLATE}/spec/containers/0/lifecycle", f"{TEMPLATE}/spec/volumes",
    f"{TEMPLATE}/spec/initContainers", f"{TEMPLATE}/spec/securityContext",
    f"{TEMPLATE}/spec/containers/0/volumeMounts", "metadata/annotations/aimaster.deeprec.io~1enabled",
    "metadata/annotations/aimaster.deeprec.io~1max-ps", "metadata/annotations/aimaster.deeprec.io~1started-with",
    "metadata/annotations/aimaster.deeprec.io~1restart-policies",
)  # fmt: skip
VALUES = (
    None,
    [],
    {},
    "",
    "text",
    0,
    -1,
    1 << 80,
    1e308,
    True,
    [None],
    [[]],
    [{}],
    {"": None},
    {"a": {"b": [1]}},
    "\x00\x1b[31m",
)


def test_odd_objects_are_answered_and_never_end_in_an_error_of_the_server() -> None:
    """Each place of a job with each kind of value: either the job stays as it is, or it is refused by name."""
    webhook = Webhook(FakeApi(), WebhookOptions(0, NAMESPACE, package_image="i:1"))  # type: ignore[arg-type]
    answered = 0
    for place in PLACES:
        for value in VALUES:
            job = _set(place, value)
            for operation in ("CREATE", "UPDATE"):
                answer = webhook.answer(request(object=job, oldObject=job, operation=operation))["response"]
                json.dumps(answer)
                assert answer["allowed"] or answer["status"]["code"] == 422, (place, value)
                assert answer["allowed"] or "no form that can be looked at" not in answer["status"]["message"], (
                    place,
                    value,
                    answer,
                )
                answered += 1
    assert answered == 2 * len(PLACES) * len(VALUES)
    for namespace in (None, 1, [], {}):
        assert webhook.answer(request(namespace=namespace))["response"]["uid"] == "u-1"
    assert webhook.answer(request(object={}))["response"]["allowed"], "no annotation, nothing to do"


def _set(place: str, value: Any) -> Manifest:
    job: Any = tfjob()
    *way, last = [key.replace("~1", "/") for key in place.split("/")]
    where = job
    for key in way:
        where = where[int(key)] if isinstance(where, list) else where.setdefault(key, {})
    where[int(last) if isinstance(where, list) else last] = value
    return job


def test_who_manages_a_job_cannot_be_changed() -> None:
    webhook = Webhook(FakeApi(), WebhookOptions(0, NAMESPACE, package_image="i:1"))  # type: ignore[arg-type]
    old, new = tfjob(), tfjob()
    new["spec"]["runPolicy"] = {"managedBy": "kueue.x-k8s.io/multikueue"}
    answer = webhook.answer(request(object=new, oldObject=old, operation="UPDATE"))["response"]
    assert not answer["allowed"] and "managedBy: is immutable" in answer["status"]["message"]
    answer = webhook.answer(request(object=new, oldObject=new, operation="UPDATE"))["response"]
    assert answer == {"uid": "u-1", "allowed": True}, "an update changes nothing"
