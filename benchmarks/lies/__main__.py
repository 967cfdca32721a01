"""`python -m benchmarks.lies --messages 10000 --seed 1`: a trainer lies, and others lose nothing.

A job with two PS, a chief and a worker trains on a dataset of the ledger. Worker-1 is the liar (`benchmarks.lies.liar`): with
its own certificate it registers, tries to speak for everybody in the view, and sends every field of every message at its edges.
All the while status, metrics and the page are asked. Told is, by kind of message: how many were sent, how many were refused,
and what broke since the last time that all was well. Exit code 0: nothing did.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

from benchmarks.job import Job, end_on_signals, running, say
from benchmarks.lies.edges import kinds
from benchmarks.lies.liar import COUNT_NAME
from benchmarks.lies.script import BATCH, TABLE
from benchmarks.stock.cluster import ROOT
from deeprec_ext.proto import deeprec_ext_pb2 as pb

SCRIPT = str(ROOT / "benchmarks" / "lies" / "script.py")
LIAR = "worker-1"
HONEST = ("ps-0", "ps-1", "chief-0", "worker-0")
PAGES = ("metrics", "api/status", "api/events", "api/history", "api/series?subject=job&metric=step")
LOOK_SECONDS, PAGE_SECONDS = 0.5, 15.0
UNANSWERED_SECONDS = 30.0
"""Of an AIMaster that does not answer: longer than the launcher takes to end a job whose AIMaster has gone."""
GOES_ON_SECONDS = 10.0
BYTES_SANE = 1 << 32


class Watch:
    """What is not as it should be, with the kinds of lies told since all was well last."""

    def __init__(self, job: Job, records: int) -> None:
        self._job, self._records = job, records
        self.broke: dict[str, set[str]] = {}
        self._told: Counter[str] = Counter()
        self.liar: dict[str, Any] = {}
        self.suspect = ""
        self.looks = 0
        self._answered = time.monotonic()

    def look(self) -> None:
        before = Counter(self._told)
        try:
            self.liar = json.loads((self._job.workdir / COUNT_NAME).read_text())
        except (OSError, ValueError):
            return
        self._told = Counter(self.liar["kinds"])
        recent = sorted(kind for kind in self._told if self._told[kind] > before[kind]) or ["(nothing new)"]
        for trouble in self._troubles():
            self.broke.setdefault(trouble, set()).update(recent)
        self.looks += 1

    def _troubles(self) -> list[str]:
        status = self._job.status(PAGE_SECONDS)
        if status is None:  # the job may be ending
            silent = time.monotonic() - self._answered
            return ["no status"] if silent > UNANSWERED_SECONDS and self._job.process.poll() is None else []
        self._answered = time.monotonic()
        found = [*self._figures(status), *self._pages(status)]
        roles = {role.name: role for role in status.roles}
        self.suspect = roles[LIAR].suspect if LIAR in roles and roles[LIAR].suspect else self.suspect
        found += [f"{name} is suspect" for name in HONEST if name in roles and roles[name].suspect]
        found += [f"{name} was started again" for name in HONEST if name in roles and roles[name].restarts]
        if status.aimaster_incarnation > 1:
            found.append("the AIMaster was started again")
        return found

    def _figures(self, status: pb.StatusReply) -> list[str]:
        found = []
        if status.step > 100 * self._records or status.last_step > 2 * 10**9:
            found.append("step")
        if status.epoch > 10_000:
            found.append("epoch")
        for one in status.data:
            if one.name == "lies" and not (one.records == self._records and 0 <= one.trained <= self._records):
                found.append("data: trained")
            if one.repeated > 100 * self._records or one.leased > 2 * self._records:
                found.append("data: repeated or leased")
            if one.name != "lies" and one.purpose == "train":
                found.append("data: a dataset of nobody")
        sizes = [role.bytes for role in status.roles if role.role == pb.PS]
        if any(size > BYTES_SANE for size in sizes):
            found.append("bytes of the PS")
        if status.state in ("failed",):
            found.append("the job failed")
        return found

    def _pages(self, status: pb.StatusReply) -> list[str]:
        found = []
        for page in PAGES:
            try:
                with urllib.request.urlopen(status.dashboard.rstrip("/") + "/" + page, timeout=PAGE_SECONDS) as answer:
                    text = answer.read().decode()
                    if page.startswith("api") and answer.headers.get_content_type() == "application/json":
                        json.loads(text, parse_constant=_no_number)
            except urllib.error.HTTPError as error:
                found.append(f"/{page.partition('?')[0]}: {error.code}")
            except OSError as error:  # cut off: also by the end of the job, after which nobody answers any more
                if self._goes_on():
                    found.append(f"/{page.partition('?')[0]}: {type(error).__name__}")
            except ValueError as error:
                found.append(f"/{page.partition('?')[0]}: {type(error).__name__}")
        return found

    def _goes_on(self) -> bool:
        """Whether the AIMaster is still there a while later: its page should have been, too. One that died is told apart."""
        deadline = time.monotonic() + GOES_ON_SECONDS
        while time.monotonic() < deadline:
            if self._job.process.poll() is not None or self._job.status() is None:
                return False
            time.sleep(LOOK_SECONDS)
        return True


def _no_number(word: str) -> None:
    raise ValueError(f"{word} in JSON")


def summary_troubles(summary: dict[str, Any], records: int) -> list[str]:
    found = []
    if summary["status"] != "succeeded":
        found.append(f"the job {summary['status']}")
    if not 0 < summary["steps"] <= 10 * records:
        found.append(f"steps: {summary['steps']}")
    if not 0 <= summary["examples"] <= 100 * records:
        found.append(f"examples: {summary['examples']}")
    data = summary["data"] or dict.fromkeys(("records", "trained", "lost", "left", "repeated"), 0)
    if data["records"] != records or data["lost"] or data["left"] or data["trained"] != records:
        found.append(f"data: { ({key: data[key] for key in ('records', 'trained', 'lost', 'left')}) }")
    if not 0 <= data["repeated"] <= 10 * records:
        found.append(f"repeated: {data['repeated']}")
    found += [f"{one['role']}-{one['id']} {one['cause']}" for one in summary["failures"]
              if f"{one['role']}-{one['id']}" != LIAR]  # fmt: skip
    found += [f"{name} is suspect" for name in summary["suspects"] if name != LIAR]
    return found


def untrained(job: Job) -> int:
    """Records that the last checkpoint has never seen: what the liar said it had trained, or what was lost."""
    import tensorflow as tf

    table = tf.train.load_checkpoint(str(job.workdir / "model")).get_tensor(TABLE)
    return int((table[:, 0] < 0.5).sum())


def run(messages: int, seed: int, records: int, seconds: float) -> dict[str, Any]:
    """One job. Raises RuntimeError when it does not end in time."""
    command = (SCRIPT, "--records", str(records), "--messages", str(messages), "--seed", str(seed))
    flags = ("--dashboard", "0", "--setting", "gazer_seconds=1")
    began = time.monotonic()
    with running(command, ps=2, workers=2, flags=flags, label="lies") as job:
        watch = Watch(job, records)
        told = 0.0
        while job.process.poll() is None:
            watch.look()
            if time.monotonic() - told > 15:
                told = time.monotonic()
                say(f"{watch.liar.get('sent', 0)} of {messages} lies; broke: {sorted(watch.broke) or 'nothing'}")
            if time.monotonic() - began > seconds:
                raise RuntimeError(f"the job did not end within {seconds:g} s; see {job.base}")
            time.sleep(LOOK_SECONDS)
        watch.look()
        found = dict(watch.broke)
        for trouble in summary_troubles(job.summary(), records):
            found.setdefault(f"at the end: {trouble}", {"(all)"})
        if watch.liar.get("sent", 0) < messages:
            found.setdefault(f"at the end: {watch.liar.get('sent', 0)} lies were told", {"(all)"})
        if watch.liar.get("impersonated"):
            found.setdefault("somebody else was spoken for", {"(register, hello)"})
        if not watch.suspect and LIAR not in job.summary()["suspects"]:
            found.setdefault("the liar is not named", {"(all)"})
        missing = untrained(job)
        if missing:
            found.setdefault(f"at the end: {missing} records are in no variable", {"data"})
        return {
            "messages": watch.liar.get("sent", 0), "seed": seed, "kinds": watch.liar.get("kinds", {}),
            "refused": watch.liar.get("refused", {}), "processes": watch.liar.get("processes", 0),
            "broke": {what: sorted(by) for what, by in sorted(found.items())}, "looks": watch.looks,
            "suspect": watch.suspect, "seconds": round(time.monotonic() - began, 1), "summary": job.summary(),
        }  # fmt: skip


def table(result: dict[str, Any]) -> str:
    lines = [f"{'kind':<12} {'sent':>6} {'refused':>8}  broke"]
    for kind in kinds():
        refused = sum(result["refused"].get(kind, {}).values())
        broke = ", ".join(what for what, by in result["broke"].items() if kind in by) or "nothing"
        lines.append(f"{kind:<12} {result['kinds'].get(kind, 0):>6} {refused:>8}  {broke}")
    rest = [what for what, by in result["broke"].items() if not set(by) & set(kinds())]
    lines += [f"the job: {', '.join(rest) or 'nothing broke'}", f"the liar: {result['suspect']}"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", type=int, default=0, help=f"of the dataset, {BATCH} in a step; 0: eight a message")
    parser.add_argument("--seconds", type=float, default=1800.0, help="deadline")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    end_on_signals()
    records = arguments.records or max(20_000, 8 * arguments.messages)
    result = run(arguments.messages, arguments.seed, records, arguments.seconds)
    print(json.dumps(result, indent=1) if arguments.json else table(result))
    return 1 if result["broke"] else 0


if __name__ == "__main__":
    sys.exit(main())
