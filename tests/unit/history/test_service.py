"""The service over real mTLS: who may do what, what is refused, what is bounded, and that it ends when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deeprec_ext.autoscaler.history.history import HistoryError
from deeprec_ext.cli.main import main
from deeprec_ext.errors import UsageError
from deeprec_ext.history import client, identities
from deeprec_ext.history.client import Service, service_at, within
from deeprec_ext.history.database import Database, Retention
from deeprec_ext.history.identities import SERVER_NAME, client_context
from deeprec_ext.history.service import BODY_BYTES_MAX, forget_all
from deeprec_ext.security.authority import create_certificates, renew
from tests.unit.history.jobs import FINISHED, job
from tests.unit.history.serving import Serving, serving


@pytest.fixture
def service(url: str, tmp_path: Path) -> Iterator[Serving]:
    with serving(url, tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """For what no row changes; SQLite."""
    directory = tmp_path_factory.mktemp("service")
    with serving(f"sqlite:///{directory}/history.db", directory) as found:
        yield found


def ask(to: Service, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    connection = client._Connection(to.host, to.port, timeout=20, context=client_context(to.certificates))
    with contextlib.closing(connection):
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def read(address: str) -> tuple[int, str, Any]:
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_what_aimasters_add_is_read_by_those_of_their_namespace_and_by_the_administrator(
    service: Serving, tmp_path: Path
) -> None:
    ads, search = service.writer("ads", tmp_path / "ads"), service.writer("search", tmp_path / "search")
    assert ads.add("u1", job(1)) and ads.add("u2", job(2, script="other")) and search.add("u1", job(3))
    assert not ads.add("u1", job(9)), "a job that is there stays as it is"
    assert [one.job for one in ads.jobs()[0]] == [job(2, script="other"), job(1)]
    assert [one.job for one in ads.jobs(script="train")[0]] == [job(1)]
    assert [(one.namespace, one.job.finished) for one in service.admin.jobs()[0]] == [
        ("search", FINISHED + 3), ("ads", FINISHED + 2), ("ads", FINISHED + 1),
    ]  # fmt: skip
    with pytest.raises(HistoryError, match="a certificate of namespace search reads the jobs of that one"):
        search.jobs(namespace="ads")
    with pytest.raises(HistoryError, match="by AIMasters"):
        service.admin.add("u", job())


def test_the_list_comes_in_pages(service: Serving, tmp_path: Path) -> None:
    ads = service.writer("ads", tmp_path / "ads")
    for number in range(5):
        ads.add(f"u{number}", job(number))
    first, following = service.admin.jobs(limit=3)
    second, end = service.admin.jobs(limit=3, before=following)
    assert [one.job.finished - FINISHED for one in [*first, *second]] == [4, 3, 2, 1, 0] and end == ""


def test_the_page_shows_what_ran_what_it_wasted_and_what_its_decisions_brought(
    service: Serving, tmp_path: Path
) -> None:
    ads = service.writer("ads", tmp_path / "ads")
    ads.add("u1", job(1, name="<script>alert(1)</script>"))
    ads.add("u2", job(2, script="rank & file"))
    status, text, headers = read(service.page)
    assert status == 200 and "default-src 'none'" in headers["content-security-policy"]
    assert "&lt;script&gt;alert(1)" in text and "<script" not in text
    assert "62%" in text and "1+0 → … → 2+3" in text and "15:00" in text  # idle, sizes, saved
    assert "ctr-2" in text and 'href="/?namespace=ads&amp;script=rank+%26+file"' in text
    confined = read(f"{service.page}?script=rank+%26+file")[1]
    assert "ctr-2" in confined and "alert" not in confined
    (number,) = [one.number for one in service.admin.jobs()[0] if one.job.name == "ctr-2"]
    status, one, _ = read(f"{service.page}jobs/{number}")
    assert status == 200 and "2 changes, saved 15:00 (+150.0% since the first one)" in one
    assert "1 more" not in one and "390" in one, "each size has its row"
    assert read(f"{service.page}jobs/{number + 99}")[0] == 404
    assert read(f"{service.page}healthz")[:2] == (200, "ok\n")


def test_the_page_cannot_be_written_to(shared: Serving) -> None:
    for path in ("api/jobs", ""):
        asked = urllib.request.Request(f"{shared.page}{path}", b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(asked, timeout=20)
        assert caught.value.code in (404, 405)


# ------------------------------------------------------------------------------------------------ who is refused


def test_who_has_no_certificate_of_the_history_is_refused_in_the_handshake(shared: Serving, tmp_path: Path) -> None:
    naked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    naked.load_verify_locations(shared.certificates / "ca.pem")
    job_certificates = create_certificates(tmp_path / "job", "ads.ctr")  # a job's own authority is another one
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    other.load_verify_locations(shared.certificates / "ca.pem")
    other.load_cert_chain(job_certificates / "aimaster.pem", job_certificates / "aimaster-key.pem")
    for context in (naked, other):
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            connection = client._Connection("127.0.0.1", shared.port, timeout=20, context=context)
            connection.request("GET", "/api/jobs")
            connection.getresponse()


def test_a_server_that_is_not_the_history_is_not_believed(shared: Serving, tmp_path: Path) -> None:
    """Not even where it has a certificate of the same authority: that of an AIMaster."""
    writer = shared.writer("ads", tmp_path / "ads")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "ads" / "aimaster.pem", tmp_path / "ads" / "aimaster-key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def accept() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with contextlib.suppress(OSError):
                    context.wrap_socket(connection, server_side=True).recv(1)

        thread = threading.Thread(target=accept)
        thread.start()
        with pytest.raises(HistoryError, match="cannot be asked"):
            dataclasses.replace(writer, port=listener.getsockname()[1]).jobs(seconds=20)
        thread.join(20)


@pytest.mark.parametrize("role", ["ps", "worker", "launcher", "history"])
def test_other_roles_of_the_same_authority_may_nothing(shared: Serving, tmp_path: Path, role: str) -> None:
    directory = tmp_path / "copy"
    directory.mkdir()
    for name in ("ca.pem", "ca-key.pem"):
        (directory / name).write_bytes((shared.certificates / name).read_bytes())
    renew(directory, "ads", (role,))
    for part in ("", "-key"):
        (directory / f"{role}{part}.pem").rename(directory / f"admin{part}.pem")
    assert ask(Service("127.0.0.1", shared.port, directory), "GET", "/api/jobs")[0] == 403


@pytest.mark.parametrize("namespace", ["", "Ads", "a.b", "-x", "x" * 64, "a b", "a/b"])
def test_there_is_no_certificate_for_what_is_no_namespace(tmp_path: Path, namespace: str) -> None:
    identities.create(tmp_path / "authority")
    with pytest.raises(UsageError, match="no namespace"):
        identities.write_writer(tmp_path / "authority", namespace, tmp_path / "it")
    assert not (tmp_path / "it").exists()


def test_an_administrator_of_a_job_is_none_of_the_history() -> None:
    def subject(role: str, whose: str) -> dict[str, Any]:
        return {"subject": ((("organizationName", whose),), (("commonName", role),))}

    assert identities.caller_of(subject("admin", "history")) == identities.Caller("admin")
    assert identities.caller_of(subject("admin", "ads")) is None
    assert identities.caller_of(subject("aimaster", "a.b")) is None
    assert identities.caller_of(None) is None and identities.caller_of({}) is None


def test_keys_are_their_owner_s_alone(shared: Serving, tmp_path: Path) -> None:
    shared.writer("ads", tmp_path / "ads")
    for path in (*shared.certificates.glob("*-key.pem"), *(tmp_path / "ads").glob("*-key.pem")):
        assert path.stat().st_mode & 0o077 == 0, path
    assert not (tmp_path / "ads" / "ca-key.pem").exists()


def test_what_was_made_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority, ads = tmp_path / "authority", tmp_path / "ads"
    assert main(["history", "--certs", str(authority), "--make", "--issue", "ads", "--to", str(ads)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{authority} has the authority, and new certificates of the service and of the administrator",
        f"{ads} has the certificate of namespace ads: --history-certs of its jobs",
    ]


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"[]", 400), (b"{", 400), (b'{"uid": "u"}', 400), (b'{"uid": "", "job": {}}', 400),
     (b'{"uid": 1, "job": {}}', 400), (b'{"uid": "u", "job": {"script": 1}}', 400), (b'{"uid": "\\u0000", "job": {}}', 400),
     (b"[" * 50_000, 400), (b"x" * (BODY_BYTES_MAX + 1), 413)],
)  # fmt: skip
def test_what_is_no_job_is_refused(shared: Serving, tmp_path: Path, body: bytes, status: int) -> None:
    got, told = ask(shared.writer("ads", tmp_path / "ads"), "POST", "/api/jobs", body)
    assert got == status and told["error"]
    assert shared.admin.jobs() == ([], "")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=101", f"limit={'9' * 5000}", "before=x", "limit=%C2%B2"]
)
def test_what_cannot_be_asked_is_refused(shared: Serving, query: str) -> None:
    assert ask(shared.admin, "GET", f"/api/jobs?{query}")[0] == 400


def test_figures_that_no_job_has_are_not_kept(shared: Serving, tmp_path: Path) -> None:
    values = dataclasses.asdict(job())
    values["windows"][0]["size"]["ps"] = 10**9
    body = json.dumps({"uid": "u", "job": values}).encode()
    assert ask(shared.writer("ads", tmp_path / "ads"), "POST", "/api/jobs", body)[0] == 400


# ------------------------------------------------------------------------------------------------ its life


def test_it_ends_in_order_and_what_it_kept_is_there_again(url: str, tmp_path: Path) -> None:
    with serving(url, tmp_path) as first:
        first.writer("ads", tmp_path / "ads").add("u", job())
        silent = socket.create_connection(("127.0.0.1", first.port), 10)  # somebody who never says anything
        first.process.terminate()
        assert first.process.wait(20) == 0
        silent.close()
    with serving(url, tmp_path) as second:
        assert [one.job for one in second.admin.jobs()[0]] == [job()]


def test_old_jobs_go(url: str, tmp_path: Path) -> None:
    with serving(url, tmp_path) as first:
        first.writer("ads", tmp_path / "ads").add("u", job(-40 * 86_400))
        assert len(first.admin.jobs()[0]) == 1
    with serving(url, tmp_path, "--keep", "30d") as second:
        deadline = time.monotonic() + 20
        while second.admin.jobs()[0]:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_what_is_too_much_goes_at_once_however_much_it_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeprec_ext.history.database.DELETED_AT_ONCE", 2)
    with contextlib.closing(Database(url)) as database:
        for number in range(12):
            database.add("ads", f"u{number}", job(number))
        assert asyncio.run(forget_all(database, Retention(jobs=3))) == 9
        assert [one.job.finished - FINISHED for one in database.jobs()[0]] == [11, 10, 9]


def test_a_job_cannot_have_ended_later_than_now(service: Serving, tmp_path: Path) -> None:
    """It would be the newest for ever, and those that end after it would be forgotten first."""
    ads = service.writer("ads", tmp_path / "ads")
    ads.add("u1", job(10 * 365 * 86_400))
    ads.add("u2", job(1))
    first, second = (one.job for one in service.admin.jobs()[0])
    assert time.time() - 60 < first.finished <= time.time() and second == job(1)


def test_certificates_of_a_new_authority_are_taken_without_a_restart(tmp_path: Path) -> None:
    context = identities.server_context(_made(tmp_path / "authority"))
    before = context.get_ca_certs()
    for name in ("ca.pem", "ca-key.pem"):
        (tmp_path / "authority" / name).unlink()
    identities.load(context, _made(tmp_path / "authority"))
    assert len(context.get_ca_certs()) == len(before) + 1


def _made(directory: Path) -> Path:
    identities.create(directory)
    return directory


# ------------------------------------------------------------------------------------------------ the client


class Liar:
    """A server with the right certificate that answers what it likes."""

    def __init__(self, certificates: Path, answer: bytes, *, drip: bool = False) -> None:
        self._context = identities.server_context(certificates)
        self._answer, self._drip = answer, drip
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> Liar:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)
        self._listener.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError):
                plain, _ = self._listener.accept()
                plain.settimeout(10)
                with self._context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(1 << 16)
                    for byte in (self._answer[at : at + 1] for at in range(len(self._answer))) if self._drip else ():
                        connection.sendall(byte)
                        if self._stop.wait(0.05):
                            break
                    if not self._drip:
                        connection.sendall(self._answer)


def answering(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d OK\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body


BROKEN = json.dumps(
    {"jobs": [{"number": 1, "namespace": "ads", "job": {"script": 5}}, 7, None, {"number": "x"}], "next": ""}
)


@pytest.mark.parametrize(
    ("answer", "match"),
    [(b"", "cannot be asked"), (b"SSH-2.0-x\r\n", "cannot be asked"), (answering(b"<html>"), "does not answer as one"),
     (answering(b"[]"), "does not answer as one"), (answering(b'{"jobs": 5}'), "does not answer as one"),
     (answering(b'{"jobs": [], "next": 5}'), "does not answer as one"), (answering(b'{"error": "no"}', 503), "refuses: no"),
     (answering(b"[" * 60_000), "does not answer as one")],
)  # fmt: skip
def test_a_service_that_answers_nonsense_is_an_error_in_one_sentence(tmp_path: Path, answer: bytes, match: str) -> None:
    with Liar(_made(tmp_path), answer) as liar, pytest.raises(HistoryError, match=match):
        Service("127.0.0.1", liar.port, tmp_path).jobs(seconds=20)


def test_rows_that_are_no_jobs_are_left_out(tmp_path: Path) -> None:
    with Liar(_made(tmp_path), answering(BROKEN.encode())) as liar:
        assert Service("127.0.0.1", liar.port, tmp_path).jobs(seconds=20) == ([], "")


def test_a_service_that_dribbles_keeps_nobody_longer_than_the_time_given(tmp_path: Path) -> None:
    began = time.monotonic()
    with Liar(_made(tmp_path), answering(b" " * 5000), drip=True) as liar:
        with pytest.raises(HistoryError, match=r"within 0\.5 s"):
            Service("127.0.0.1", liar.port, tmp_path).jobs(seconds=0.5)
        assert time.monotonic() - began < 5


def test_where_nobody_listens_and_where_there_are_no_certificates(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(HistoryError, match="cannot be asked"):
        Service("127.0.0.1", port, _made(tmp_path)).jobs(seconds=20)
    with pytest.raises(HistoryError, match=f"cannot be asked: no certificate can be read in {tmp_path}/none"):
        Service("127.0.0.1", port, tmp_path / "none").jobs(seconds=20)


@pytest.mark.parametrize(
    "text",
    ["https://", "https://x", "https://:5", "https://x:0", "https://x:70000", "https://x:5/a", "https://http://x:5"],
)
def test_what_is_no_address_of_a_service_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        service_at(text, tmp_path)


def test_addresses_of_services(tmp_path: Path) -> None:
    assert service_at("https://history.ns:7443/", tmp_path) == Service("history.ns", 7443, tmp_path)
    assert str(service_at("https://[::1]:7443", tmp_path)) == "https://[::1]:7443"
    with pytest.raises(UsageError, match="give --history-certs DIR"):
        service_at("https://x:1", None)
    with pytest.raises(UsageError, match=r"--history-certs .*/none: there is no such directory"):
        service_at("https://x:1", tmp_path / "none")
    assert SERVER_NAME == "history.history"


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0, "it")
