"""The operator that leads renews the certificates of jobs that run, in their Secrets, with a virtual clock."""

from __future__ import annotations

import asyncio
import base64
import copy
import time
from collections.abc import Awaitable, Callable

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deeprec_ext.security import lifetimes
from deeprec_ext.security.lifetimes import DAY_SECONDS
from tests.unit.aimaster.kubernetes.fake_api import NAMESPACE
from tests.unit.tfjob.operator.test_aimasters import JOB, Server, elastic
from tests.unit.tfjob.operator.test_history import ADDRESS, ASKS, marked
from tfjob.model.kinds import EVENTS, SECRETS, Manifest
from tfjob.operator.aimasters import AIMasters
from tfjob.operator.certificates import history_certificates
from tfjob.operator.certificates import renewals as module
from tfjob.operator.certificates.history_certificates import HistoryAuthority, issue
from tfjob.operator.certificates.renewals import FAILED, FAILED_SECONDS, REASON, Renewals
from tfjob.operator.recorder import EventRecorder
from tfjob.operator.sight import Missing
from tfjob.pods import certificates
from tfjob.pods.aimaster import Options

NAME = certificates.secret_name("job")


class World:
    def __init__(self) -> None:
        self.server = Server(budgets=False)
        self.jobs: dict[tuple[str, str], Manifest] = {}
        self.now = time.time()
        self.history = HistoryAuthority(self.server, "deeprec-ext", lambda: self.now)  # type: ignore[arg-type]
        self.renewals = self.operator()

    def operator(self) -> Renewals:
        recorder = EventRecorder(self.server, asyncio.Semaphore(8), Missing())  # type: ignore[arg-type]
        return Renewals(self.server, self.jobs, recorder, self.history, lambda: self.now)  # type: ignore[arg-type]

    async def begin(self, marks: dict[str, str] | None = None) -> None:
        job, options = (copy.deepcopy(JOB), elastic()) if marks is None else marked(marks)
        self.jobs[NAMESPACE, "job"] = job
        made = Options("i:1", history=ADDRESS if marks else "")
        await AIMasters(self.server, made, self.history).ensure(job, options, ())  # type: ignore[arg-type]

    async def after(self, days: float) -> None:
        self.now += days * DAY_SECONDS
        await self.renewals.look()

    @property
    def files(self) -> dict[str, bytes]:
        data = self.server.objects[SECRETS.plural, NAME]["data"]
        return {name: base64.b64decode(text) for name, text in data.items()}

    def asked(self) -> int:
        return self.server.count("get", SECRETS)

    def told(self) -> list[str]:
        return [one["reason"] for (plural, _), one in self.server.objects.items() if plural == EVENTS.plural]


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(World())

    asyncio.run(main())


def test_a_secret_is_read_once_a_day_and_when_it_is_due_its_certificates_are_new() -> None:
    async def scenario(it: World) -> None:
        await it.begin()
        before = it.files
        await it.after(0)
        asked = it.asked()
        for _ in range(240):
            await it.after(1)
            await it.renewals.look()
        assert it.asked() == asked + 240 and it.files == before
        await it.after(5)
        after = it.files
        changed = {name for name in after if after[name] != before[name]}
        assert changed == {f"{role}.pem" for role in certificates.ROLES} and it.asked() == asked + 241
        assert lifetimes.read(after["ps.pem"]).ends == pytest.approx(it.now + 365 * DAY_SECONDS, abs=2)
        assert it.told() == [REASON]

    play(scenario)


def test_without_the_right_an_event_says_so_months_before_the_end_and_it_is_tried_again() -> None:
    async def scenario(it: World) -> None:
        await it.begin()
        it.server.forbidden.add(("update", SECRETS.plural))
        before = it.files
        await it.after(250)
        for _ in range(50):
            await it.after(60 / DAY_SECONDS)
        assert it.told() == [FAILED] and it.files == before and 5 <= it.server.count("update", SECRETS) <= 6
        assert lifetimes.read(before["ps.pem"]).ends - it.now > 100 * DAY_SECONDS
        it.server.forbidden.clear()
        await it.after(600 / DAY_SECONDS)
        assert it.told() == [FAILED, REASON] and it.files != before

    play(scenario)


def test_two_that_lead_at_once_do_not_undo_each_other() -> None:
    async def scenario(it: World) -> None:
        await it.begin()
        it.now += 250 * DAY_SECONDS
        await asyncio.gather(it.operator().look(), it.renewals.look())
        first = it.files
        await it.after(1)
        assert it.files == first and it.told().count(REASON) == 1

    play(scenario)


def test_jobs_that_have_ended_or_are_not_elastic_and_secrets_of_others_are_left_alone() -> None:
    async def scenario(it: World) -> None:
        await it.begin()
        job = it.jobs[NAMESPACE, "job"]
        asked = it.asked()
        job["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        await it.after(300)
        assert it.asked() == asked
        job["status"], job["metadata"]["annotations"] = {}, {}
        await it.after(1)
        assert it.asked() == asked
        job["metadata"].update(annotations={"aimaster.deeprec.io/enabled": "true"}, uid="another")
        before = it.files
        await it.after(1)
        assert it.asked() == asked + 1 and it.files == before and not it.told()

    play(scenario)


def test_what_a_secret_of_an_earlier_operator_lacks_is_added() -> None:
    async def scenario(it: World) -> None:
        await it.begin()
        data = it.server.objects[SECRETS.plural, NAME]["data"]
        for name in ("chief.pem", "chief-key.pem", "dashboard.token"):
            del data[name]
        await it.after(0)
        assert not certificates.lacking(it.server.objects[SECRETS.plural, NAME]["data"])

    play(scenario)


def test_the_certificate_for_the_history_is_renewed_by_its_own_authority() -> None:
    async def scenario(it: World) -> None:
        await it.begin(ASKS)
        before = it.files
        await it.after(250)
        after = it.files
        assert after["history-aimaster.pem"] != before["history-aimaster.pem"]
        assert after["history-ca.pem"] == before["history-ca.pem"] == (await it.history.files())["ca.pem"]

    play(scenario)


def test_a_successor_of_the_historys_authority_is_told_to_jobs_before_it_signs_anything() -> None:
    now, first = time.time(), issue({})
    files = certificates.issue_history(first, "team")
    assert certificates.renewed_history(files, first, "team", now) == {}
    second = {**first, "ca.pem": first["ca.pem"] * 2}
    changed = certificates.renewed_history(files, second, "team", now)
    assert changed["history-ca.pem"] == second["ca.pem"] and set(changed) == set(certificates.HISTORY)


def test_jobs_are_told_of_a_successor_of_the_historys_authority_within_a_day() -> None:
    async def scenario(it: World) -> None:
        await it.begin(ASKS)
        await it.after(0)
        data = it.server.objects[SECRETS.plural, "deeprec-ext-history"]["data"]
        both = base64.b64decode(data["ca.pem"]) * 2
        data["ca.pem"] = base64.b64encode(both).decode()
        await it.after(1)
        assert it.files["history-ca.pem"] == both

    play(scenario)


def encrypted() -> bytes:
    key, pem = ec.generate_private_key(ec.SECP256R1()), serialization.Encoding.PEM
    hidden = serialization.BestAvailableEncryption(b"secret")
    return key.private_bytes(pem, serialization.PrivateFormat.PKCS8, hidden)


def test_an_authority_whose_key_is_encrypted_is_told_as_a_failure_of_its_job() -> None:
    async def scenario(it: World) -> None:
        await it.begin()
        data = it.server.objects[SECRETS.plural, NAME]["data"]
        good = data["ca-key.pem"]
        data["ca-key.pem"] = base64.b64encode(encrypted()).decode()
        await it.after(250)
        assert it.told() == [FAILED]
        data["ca-key.pem"] = good
        await it.after(1)
        assert it.told() == [FAILED, REASON]

    play(scenario)


def test_whatever_is_wrong_with_one_job_others_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(it: World) -> None:
        it.jobs["else", "odd"] = {"metadata": {"uid": "odd", "namespace": "else", "name": "odd"}}
        await it.begin()
        asked, elastic = list[str](), module._runs_elastic

        def odd(job: Manifest) -> bool:
            asked.append(job["metadata"]["name"])
            return elastic(job) if asked[-1] != "odd" else bool(job["no such key"])

        monkeypatch.setattr(module, "_runs_elastic", odd)
        await it.after(250)
        assert it.told() == [REASON] and asked == ["odd", "job"]
        await it.after((FAILED_SECONDS - 1) / DAY_SECONDS)
        assert asked.count("odd") == 1
        await it.after(2 / DAY_SECONDS)
        assert asked.count("odd") == 2

    play(scenario)


def test_a_secret_of_the_history_that_cannot_be_looked_at_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(it: World) -> None:
        monkeypatch.setattr(history_certificates, "RETRY_SECONDS", 0.001)
        tries = list[str]()

        async def odd(*_: object) -> dict[str, bytes]:
            tries.append("once")
            raise TypeError("whatever")

        monkeypatch.setattr(history_certificates.shared_secrets, "ensure", odd)
        keeping = asyncio.ensure_future(it.history.keep())
        while len(tries) < 3 and not keeping.done():
            await asyncio.sleep(0.001)
        assert not keeping.done()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    play(scenario)
