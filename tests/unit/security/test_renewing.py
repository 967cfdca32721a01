"""When certificates are renewed, with a virtual clock; and who is let in while that goes on."""

from __future__ import annotations

import asyncio
import errno
import stat
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deeprec_ext import wholefiles
from deeprec_ext.aimaster.core.clock import SystemClock
from deeprec_ext.aimaster.job.expiring import CODE
from deeprec_ext.aimaster.job.job import Job
from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.elastic.agent.agent import Agent, Identity
from deeprec_ext.errors import UnreachableError
from deeprec_ext.launch.client import JobClient
from deeprec_ext.options import JobSpec
from deeprec_ext.security import authority, credentials, lifetimes
from deeprec_ext.security.lifetimes import DAY_SECONDS, Life
from deeprec_ext.security.proofs import Proofs
from deeprec_ext.security.renewing import Renewing, is_due, next_due, renewed

T0 = 1_800_000_000.0
NAMES = ("aimaster", "worker-1")


def made(now: float = T0) -> dict[str, bytes]:
    certificate, key = authority.new_authority("job", now)
    from cryptography.hazmat.primitives.serialization import Encoding

    files = {"ca.pem": certificate.public_bytes(Encoding.PEM), "ca-key.pem": authority.key_bytes(key)}
    return {**files, **renewed(files, "job", NAMES, now)}


def at(days: float) -> float:
    return T0 + days * DAY_SECONDS


def believed(files: dict[str, bytes], name: str, now: float) -> bool:
    """Whether who has read this `ca.pem` takes this certificate."""
    one = x509.load_pem_x509_certificate(files[f"{name}.pem"])
    for ca in x509.load_pem_x509_certificates(files["ca.pem"]):
        key = ca.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        try:
            one.verify_directly_issued_by(ca)
        except Exception:
            continue
        return Life.of(ca).ends > now and Life.of(one).ends > now
    return False


# ------------------------------------------------------------------------------------------------ when, and what


def test_nothing_is_written_until_two_thirds_have_passed_then_certificates_alone_with_their_keys() -> None:
    files = made()
    third = lifetimes.CERTIFICATE_DAYS / 3
    assert renewed(files, "job", NAMES, at(2 * third - 1)) == {}
    changed = renewed(files, "job", NAMES, at(2 * third + 1))
    assert set(changed) == {"aimaster.pem", "worker-1.pem"}
    before, after = (x509.load_pem_x509_certificate(one["worker-1.pem"]) for one in (files, changed))
    assert before.public_key() == after.public_key() and before.subject == after.subject
    assert Life.of(after) == Life(at(2 * third + 1), at(5 * third + 1))
    assert next_due({**files, **changed}, NAMES) == pytest.approx(at(4 * third + 1), abs=2)


def test_what_is_missing_or_damaged_is_made_and_a_damaged_authority_is_an_error() -> None:
    files = made()
    for broken in ({**files, "worker-1.pem": b"x"}, {k: v for k, v in files.items() if k != "worker-1-key.pem"}):
        assert "worker-1.pem" in renewed(broken, "job", NAMES, T0)
    assert set(renewed(files, "job", (*NAMES, "chief"), T0)) == {"chief.pem", "chief-key.pem"}
    with pytest.raises(ValueError):
        renewed({**files, "ca.pem": b""}, "job", NAMES, T0)
    assert is_due(None, b"", T0) and not is_due(files["aimaster.pem"], files["aimaster-key.pem"], T0)


def test_over_forty_years_everybody_believes_everybody_who_has_read_the_files_within_a_month() -> None:
    """The files of today and of a month before: authorities change, and nobody is cut off. Each month somebody's is renewed."""
    files, authorities, bundles = made(), set(), 0
    for day in range(0, 40 * 365, 30):
        now, before = at(day), dict(files)
        names = [*NAMES, *(f"ps-{number}" for number in range(min(day // 30, 9)))]
        files |= renewed(files, "job", names, now)
        authorities.add(files["ca.pem"][:200])
        bundles += files["ca.pem"] != before["ca.pem"]
        for name in names:
            if f"{name}.pem" not in before:  # new, and so is who it belongs to
                continue
            assert believed(files, name, now)
            assert believed({**files, "ca.pem": before["ca.pem"]}, name, now), f"day {day}: new {name}, old authorities"
            assert believed({**before, "ca.pem": files["ca.pem"]}, name, now), f"day {day}: old {name}, new authorities"
        assert files["ca.pem"].count(b"BEGIN CERT") == files["ca-key.pem"].count(b"BEGIN PRIVATE") <= 2
    assert (
        len(authorities) == 6 and bundles == 10
    )  # a successor each 6.7 years, and its predecessor goes when it has ended


def test_no_certificate_lives_longer_than_its_authority() -> None:
    files = made()
    late = at(lifetimes.AUTHORITY_DAYS - 10)
    certificate, _ = authority.issued(files["ca.pem"], files["ca-key.pem"], "job", "ps", now=late)
    assert lifetimes.read(certificate).ends == at(lifetimes.AUTHORITY_DAYS)
    with pytest.raises(ValueError, match="expired"):
        authority.issued(files["ca.pem"], files["ca-key.pem"], "job", "ps", now=at(lifetimes.AUTHORITY_DAYS + 1))


def test_a_run_that_is_resumed_after_its_authority_has_ended_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetimes, "AUTHORITY_DAYS", -1.0)
    certs = authority.create_authority(tmp_path / "certs", "job") or tmp_path / "certs"
    monkeypatch.undo()
    authority.create_certificates(certs, "job")
    found = x509.load_pem_x509_certificates((certs / "ca.pem").read_bytes())
    assert len(found) == 1 and Life.of(found[0]).ends > time.time()
    assert stat.S_IMODE((certs / "ca-key.pem").stat().st_mode) == 0o600


# ------------------------------------------------------------------------------------------------ a directory


def test_a_directory_is_renewed_and_proofs_of_the_aimaster_hold_on(tmp_path: Path) -> None:
    certs = authority.create_certificates(tmp_path / "certs", "job")
    authority.issue(certs, "job", "worker-7")
    proof, now, said = Proofs("job", str(certs)).make(3), [time.time()], list[str]()
    before = {path.name: path.read_bytes() for path in certs.iterdir()}

    async def main() -> None:
        renewing = Renewing(certs, "job", said.append, lambda: now[0])
        assert await renewing.look() == lifetimes.LOOK_SECONDS
        assert {path.name: path.read_bytes() for path in certs.iterdir()} == before
        now[0] += 300 * DAY_SECONDS
        assert await renewing.look() == lifetimes.LOOK_SECONDS

    asyncio.run(main())
    after = {path.name: path.read_bytes() for path in certs.iterdir()}
    roles = {f"{name}.pem" for name in (*credentials.ROLES, "worker-7")}
    assert {name for name in after if after[name] != before[name]} == roles and not said
    assert Proofs("job", str(certs)).holds(3, proof)


def test_a_full_disk_is_told_once_and_again_when_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certs = authority.create_certificates(tmp_path / "certs", "job")
    now, said = time.time() + 300 * DAY_SECONDS, list[str]()
    before = {path.name: path.read_bytes() for path in certs.iterdir()}

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "no space left on device")

    async def main() -> None:
        renewing = Renewing(certs, "job", said.append, lambda: now)
        with monkeypatch.context() as patched:
            patched.setattr(wholefiles, "draft", full)
            for _ in range(2):
                assert await renewing.look() <= lifetimes.AGAIN_SECONDS
        (line,) = said
        assert "cannot be renewed" in line and "no space left" in line and "expires at 20" in line
        assert {path.name: path.read_bytes() for path in certs.iterdir()} == before
        await renewing.look()
        assert said[1:] == ["the certificates of the job are renewed again"]

    asyncio.run(main())


def test_files_that_are_replaced_while_they_are_read_come_from_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kubelet does it: all at once, by another directory behind a link."""
    one, other = (authority.create_certificates(tmp_path / name, "job") for name in ("one", "other"))
    link = tmp_path / "certs"
    link.symlink_to(one)
    read, reads = Path.read_bytes, list[str]()

    def switching(path: Path) -> bytes:
        data = read(path)
        reads.append(path.name)
        if len(reads) == 1:
            link.unlink()
            link.symlink_to(other)
        return data

    monkeypatch.setattr(Path, "read_bytes", switching)
    found = credentials._read(link, "ps")
    monkeypatch.undo()
    assert found == credentials._read(other, "ps")


# ------------------------------------------------------------------------------------------------ who is told


def test_the_aimaster_warns_once_when_nobody_has_renewed_by_three_quarters(tmp_path: Path) -> None:
    certs = authority.create_certificates(tmp_path / "certs", "job")
    job = Job(
        JobSpec(name="job", ps=1, workers=0, workdir=tmp_path), Store(tmp_path / "a.db"), SystemClock(), str(certs)
    )
    now = [time.time()]
    job.expiring._clock = lambda: now[0]
    try:
        assert job.expiring.look(job.expiring.first()) == lifetimes.LOOK_SECONDS and not job.expiring.notices()
        now[0] += 280 * DAY_SECONDS
        for _ in range(2):
            assert job.expiring.look(job.expiring.first()) == lifetimes.AGAIN_SECONDS
        (notice,) = job.expiring.notices()
        assert notice.code == CODE and "expires at" in notice.text and "launcher" in notice.remedy
        assert (tmp_path / "events.jsonl").read_text().count('"warning"') == 1

        asyncio.run(Renewing(certs, "job", print, lambda: now[0]).look())
        assert job.expiring.look(job.expiring.first()) == lifetimes.LOOK_SECONDS and not job.expiring.notices()
    finally:
        job.close()


# ------------------------------------------------------------------------------------------------ real servers


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Certificates made from now on live so long."""

    def live(count: float) -> None:
        monkeypatch.setattr(lifetimes, "CERTIFICATE_DAYS", count / DAY_SECONDS)

    return live


def test_one_that_has_expired_is_named_with_what_to_do_and_the_same_client_goes_on_with_a_new_one(
    tmp_path: Path, seconds: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds(-1.0)
    certs = authority.create_certificates(tmp_path / "certs", "job")

    async def main() -> None:
        server = grpc.aio.server(options=credentials.SERVER_OPTIONS)
        port = credentials.add_port(server, "127.0.0.1:0", "aimaster", str(certs))
        await server.start()
        try:
            async with JobClient(f"127.0.0.1:{port}", "job", certs) as client:
                with pytest.raises(UnreachableError, match=r"admin\.pem|aimaster\.pem") as found:
                    await client.status()
                assert "expired at 20" in str(found.value) and "--resume" in str(found.value)

                monkeypatch.setenv("DEEPREC_EXT_AIMASTER", f"127.0.0.1:{port}")
                monkeypatch.setenv("DEEPREC_EXT_JOB", "job")
                monkeypatch.setenv("DEEPREC_EXT_CERTS", str(certs))
                agent = Agent(Identity("ps", 0, "somewhere:1", "secret"), None)  # type: ignore[arg-type]
                with pytest.raises(UnreachableError, match=r"ps\.pem expired at 20"):
                    await asyncio.to_thread(agent._register, 1.0)

                seconds(1000.0)
                assert await Renewing(certs, "job", print).look()
                with pytest.raises(UnreachableError):  # with what it had; from then on with the new ones
                    await client.status()
                with pytest.raises(Exception, match="UNIMPLEMENTED"):  # it gets through
                    await client.status()
        finally:
            await server.stop(0)

    asyncio.run(main())


def test_of_a_directory_in_which_others_certificates_lie_only_the_own_are_renewed(tmp_path: Path) -> None:
    """A namespace's certificate says whose it is: renewed as one of the history it would be another namespace's."""
    from deeprec_ext.history import identities

    identities.create(tmp_path)
    identities.write_writer(tmp_path, "ads", tmp_path)
    before = (tmp_path / "aimaster.pem").read_bytes()
    own, later = (identities.SERVER, identities.ADMIN), time.time() + 300 * DAY_SECONDS
    old = {name: (tmp_path / f"{name}.pem").read_bytes() for name in own}
    asyncio.run(Renewing(tmp_path, identities.NAME, print, lambda: later, only=own).look())
    assert (tmp_path / "aimaster.pem").read_bytes() == before
    assert all((tmp_path / f"{name}.pem").read_bytes() != old[name] for name in own)


def test_an_authority_whose_key_is_encrypted_is_told_and_ends_nobody(tmp_path: Path) -> None:
    certs, said = authority.create_certificates(tmp_path / "certs", "job"), list[str]()
    key = certs / authority.CA_KEY
    good = key.read_bytes()
    hidden = serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(
        serialization.load_pem_private_key(good, None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden
        )
    )

    async def main() -> None:
        renewing = Renewing(certs, "job", said.append)
        assert await renewing.look() <= lifetimes.AGAIN_SECONDS
        (line,) = said
        assert "cannot be renewed: the authority cannot be read" in line
        key.write_bytes(good)
        await renewing.look()
        assert len(said) == 2

    asyncio.run(main())
