"""The operator and the history: whose certificates it makes, who gets them, and that a job starts without."""

from __future__ import annotations

import asyncio
import base64
import copy
import datetime
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from deeprec_ext.cli.main import main
from deeprec_ext.history import identities
from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE
from tests.unit.tfjob.operator.test_aimasters import JOB, Server
from tfjob.api.client import ForbiddenError
from tfjob.model import annotations
from tfjob.model.annotations import Elastic
from tfjob.model.kinds import PODS, SECRETS, Manifest
from tfjob.model.spec import TFJob
from tfjob.operator.aimasters import AIMasters
from tfjob.operator.certificates import history_certificates
from tfjob.operator.certificates.history_certificates import SECRET, HistoryAuthority, due, issue
from tfjob.pods import certificates
from tfjob.pods.aimaster import Options

ADDRESS = "deeprec-ext-history.deeprec-ext:7443"
ASKS = {"aimaster.deeprec.io/history": "true"}


def marked(marks: dict[str, str]) -> tuple[Manifest, Elastic]:
    job = copy.deepcopy(JOB)
    job["metadata"]["annotations"].update(marks)
    found, _ = annotations.parse(TFJob.parse(job))
    assert found is not None
    return job, found


def play(scenario: Callable[[Server, HistoryAuthority], Awaitable[None]]) -> None:
    async def run() -> None:
        server = Server(budgets=False)
        await scenario(server, HistoryAuthority(server, "deeprec-ext"))  # type: ignore[arg-type]

    asyncio.run(run())


def data_of(server: Server, name: str) -> dict[str, bytes]:
    return {key: base64.b64decode(text) for key, text in server.objects[SECRETS.plural, name]["data"].items()}


def test_an_aimaster_gets_a_certificate_of_its_namespace_and_no_key_of_the_authority() -> None:
    async def scenario(server: Server, authority: HistoryAuthority) -> None:
        job, elastic = marked(ASKS)
        await AIMasters(server, Options("i:1", history=ADDRESS), authority).ensure(job, elastic, ())  # type: ignore[arg-type]
        files = data_of(server, "job-aimaster-certs")
        subject = x509.load_pem_x509_certificate(files["history-aimaster.pem"]).subject
        assert [subject.get_attributes_for_oid(oid)[0].value for oid in (NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME)] == [
            NAMESPACE, "aimaster",
        ]  # fmt: skip
        whole = data_of(server, SECRET)
        assert files["history-ca.pem"] == whole["ca.pem"] and whole["ca-key.pem"] not in files.values()
        spec = server.objects[PODS.plural, "job-aimaster"]["spec"]
        words = spec["containers"][0]["command"]
        assert words[words.index("--history") + 1 : words.index("--history") + 4] == [
            ADDRESS, "--history-certs", certificates.HISTORY_DIRECTORY,
        ]  # fmt: skip
        (volume,) = [one for one in spec["volumes"] if one["name"] == certificates.HISTORY_VOLUME]
        assert volume["secret"]["optional"] and {one["path"] for one in volume["secret"]["items"]} == {
            "ca.pem", "aimaster.pem", "aimaster-key.pem",
        }  # fmt: skip

    play(scenario)


@pytest.mark.parametrize(("marks", "address"), [({}, ADDRESS), (ASKS, "")])
def test_who_does_not_ask_or_has_nobody_to_ask_gets_nothing(marks: dict[str, str], address: str) -> None:
    async def scenario(server: Server, authority: HistoryAuthority) -> None:
        job, elastic = marked(marks)
        given = authority if address else None
        await AIMasters(server, Options("i:1", history=address), given).ensure(job, elastic, ())  # type: ignore[arg-type]
        assert not [name for name in data_of(server, "job-aimaster-certs") if name.startswith("history")]
        assert "--history" not in server.objects[PODS.plural, "job-aimaster"]["spec"]["containers"][0]["command"]

    play(scenario)


def test_a_job_starts_where_the_authority_cannot_be_read() -> None:
    class Closed(HistoryAuthority):
        async def files(self) -> dict[str, bytes]:
            raise ForbiddenError(403, "Forbidden", "secrets")

    async def scenario(server: Server, _: HistoryAuthority) -> None:
        job, elastic = marked(ASKS)
        closed = Closed(server, "deeprec-ext")  # type: ignore[arg-type]
        await AIMasters(server, Options("i:1", history=ADDRESS), closed).ensure(job, elastic, ())  # type: ignore[arg-type]
        assert ("pods", "job-aimaster") in server.objects
        assert "history-aimaster.pem" not in data_of(server, "job-aimaster-certs")

    play(scenario)


def test_the_authority_is_made_once_and_read_again_after_an_hour() -> None:
    async def scenario(server: Server, _: HistoryAuthority) -> None:
        now = [0.0]
        first = HistoryAuthority(server, "deeprec-ext", lambda: now[0])  # type: ignore[arg-type]
        files = await first.files()
        assert set(files) == set(identities.OWN)
        assert await HistoryAuthority(server, "deeprec-ext").files() == files  # type: ignore[arg-type]
        calls = len(server.calls)
        await first.files()
        assert len(server.calls) == calls
        now[0] = history_certificates.LOOK_SECONDS
        assert await first.files() == files and len(server.calls) == calls + 1

    play(scenario)


def test_certificates_are_renewed_by_the_same_authority_and_damaged_ones_are_made_anew() -> None:
    files = issue({})
    now = datetime.datetime.now(datetime.timezone.utc)
    assert not due(files, now)
    later = now + datetime.timedelta(days=270)
    assert due(files, later)
    renewed = issue(files)
    assert renewed["ca.pem"] == files["ca.pem"] and renewed["history.pem"] != files["history.pem"]
    for name in identities.OWN:
        damaged: dict[str, Any] = {**files, name: b"x"}
        if not name.endswith("-key.pem"):
            assert due(damaged, now)
        assert set(issue(damaged)) == set(identities.OWN)
    assert due({name: files[name] for name in identities.OWN[1:]}, now)


def test_what_is_no_address_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--history", "nowhere"]) == 2
    assert "HOST:PORT" in capsys.readouterr().err
