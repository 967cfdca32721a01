"""The AIMaster under load: a real process with mTLS, and a thousand agents that heartbeat and send Gazer's reports.

    python -m benchmarks.control [--agents 1000] [--heartbeat 2] [--gazer 2] [--seconds 30] [--views 10] [--json]
    python -m benchmarks.control --scalings 50          # and then so many scalings, of workers and of PS in turn

Measured: the AIMaster's CPU as a fraction of one core while nothing happens, and the time from the moment it decides to
publish a view until each agent has it (p50 and p99 over agents and views). Views are caused by worker scaling, which is
what causes them in a job. Agents, their launcher and the AIMaster share this host's cores, so the figures are upper
bounds. Targets: at most 0.5 core, p99 at most 2 s.

With `--scalings`: 20 workers more, 2 PS more, one PS replaced, 20 workers less, 2 PS less, and again; every trainer prepares,
stops and commits, the PS copy and guard (at once: nothing is there). The time of each from the request to its end, the
AIMaster's processor time and memory along the way, what grew, what an agent sends and gets, and every error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import grpc.aio
import psutil

from benchmarks.agents import JOB, PS, SLOTS, START_SECONDS, Agent, FakeLauncher, client, told
from deeprec_ext.aimaster.main import raise_file_limit
from deeprec_ext.launch.ports import free_port
from deeprec_ext.options import specification
from deeprec_ext.proto import deeprec_ext_pb2 as pb
from deeprec_ext.proto import deeprec_ext_pb2_grpc as rpc
from deeprec_ext.security import authority, credentials

CLIENTS = 2
TARGET_CORES, TARGET_P99_SECONDS = 0.5, 2.0
SCALING_LIMIT_SECONDS = 120.0
UNANSWERED_MAX = 10
"""Questions for the status that may fail; how many did is part of the result."""
WORKERS_STEP, PS_STEP = 20, 2


# ------------------------------------------------------------------------------------------------------ the measurement


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextlib.contextmanager
def process(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as output:
        child = subprocess.Popen(arguments, env=environment, stdout=output, stderr=output)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


async def wait_for(what: str, condition: Any, seconds: float = START_SECONDS, every: float = 0.25) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not happen within {seconds:.0f} s")
        await asyncio.sleep(every)


async def measure(options: argparse.Namespace, workdir: Path) -> dict[str, Any]:
    certs = str(authority.create_certificates(workdir / "certs", JOB))
    names = [f"ps-{i}" for i in range(PS)] + ["chief-0"] + [f"worker-{i}" for i in range(options.agents - PS - 1)]
    workers = options.agents - PS - 1
    launcher = FakeLauncher(set(names))
    server = grpc.aio.server(options=credentials.SERVER_OPTIONS)
    rpc.add_LauncherServicer_to_server(launcher, server)
    launcher_port = credentials.add_port(server, "127.0.0.1:0", "launcher", certs)
    await server.start()
    address = f"127.0.0.1:{free_port()}"
    launcher.make_agent = lambda name: Agent(name, address, certs, options.heartbeat, options.gazer)
    master = [
        sys.executable, "-m", "deeprec_ext.aimaster", "--spec", str(workdir / "specification.json"), "--listen", address,
        "--workdir", str(workdir), "--launcher", f"127.0.0.1:{launcher_port}", "--certs", certs,
    ]  # fmt: skip
    settings = {
        "heartbeat_seconds": options.heartbeat, "ps_heartbeat_limit_seconds": 30, "worker_heartbeat_limit_seconds": 60,
        "gazer_seconds": options.gazer,
    }  # fmt: skip
    (workdir / "specification.json").write_text(
        specification(
            ((name, str(value)) for name, value in settings.items()), name=JOB, ps=PS, workers=workers, slots=SLOTS,
            max_ps=PS + PS_STEP, max_workers=workers + WORKERS_STEP,
        )
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        aimaster = stack.enter_context(process(master, workdir / "aimaster.log"))
        outputs = []
        for number in range(CLIENTS):
            outputs.append(workdir / f"client-{number}.json")
            arguments = [
                sys.executable, __file__, "--client", "--address", address, "--certs", certs, "--output",
                str(outputs[-1]), "--names", ",".join(names[number::CLIENTS]), "--heartbeat", str(options.heartbeat),
                "--gazer", str(options.gazer),
            ]  # fmt: skip
            stack.enter_context(process(arguments, workdir / f"client-{number}.log"))
        started = time.monotonic()
        result = await _observe(options, address, certs, aimaster.pid, started, len(names), workers)
    reports = [*(json.loads(output.read_text()) for output in outputs), json.loads(json.dumps(told(launcher.made)))]
    await server.stop(None)
    seen = [seen for report in reports[:-1] for seen in report["epochs"]]
    views = _views(workdir / "events.jsonl", seen, result.pop("after_epoch"), result.pop("before_epoch"))
    return {**result, **views, **_traffic(reports, len(names), result.pop("talked_seconds")), **_warnings(workdir)}


async def _observe(
    options: argparse.Namespace, address: str, certs: str, pid: int, started: float, agents: int, workers: int
) -> dict[str, Any]:
    name = credentials.server_name("aimaster", JOB)
    async with credentials.open_aio_channel(address, name, "admin", certs) as channel:
        admin = rpc.AdminStub(channel)

        unanswered: Counter[str] = Counter()

        async def status() -> pb.StatusReply:
            while True:
                try:
                    return await admin.Status(pb.StatusRequest(), wait_for_ready=True, timeout=120)
                except grpc.aio.AioRpcError as error:
                    unanswered[error.code().name] += 1
                    if sum(unanswered.values()) > UNANSWERED_MAX:
                        raise

        async def all_here() -> bool:
            roles = (await status()).roles
            return sum(role.heartbeat.step > 0 for role in roles) >= agents

        await wait_for("the start of all agents", all_here)
        startup = time.monotonic() - started
        await asyncio.sleep(2 * options.heartbeat)
        master = psutil.Process(pid)
        before, began = master.cpu_times(), time.monotonic()
        await asyncio.sleep(options.seconds)
        after, elapsed = master.cpu_times(), time.monotonic() - began
        cores = (after.user + after.system - before.user - before.system) / elapsed
        memory = own_memory(pid)
        epoch = (await status()).epoch
        for number in range(options.views):
            reply = await admin.Scale(pb.ScaleRequest(workers=workers + (number + 1) % 2), timeout=30)

            async def ended(identifier: int = reply.scaling_id) -> bool:
                records = (await status()).scalings
                return any(record.id == identifier and record.outcome for record in records)

            await wait_for(f"scaling {reply.scaling_id}", ended, 60)
        await asyncio.sleep(3)
        last_epoch = (await status()).epoch
        scaled = await _scalings(options.scalings, workers, pid, admin, status) if options.scalings else {}
    return {
        **scaled, "unanswered": unanswered, "talked_seconds": time.monotonic() - began, "before_epoch": last_epoch,
        "agents": agents, "heartbeat_seconds": options.heartbeat, "gazer_seconds": options.gazer,
        "startup_seconds": round(startup, 1),
        "aimaster_cores": round(cores, 3), "aimaster_own_mb": round(memory / 1e6, 1), "after_epoch": epoch,
    }  # fmt: skip


def own_memory(pid: int) -> int:
    """Bytes that are no pages of files."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


async def _scalings(
    count: int, workers: int, pid: int, admin: rpc.AdminStub, status: Callable[[], Awaitable[pb.StatusReply]]
) -> dict[str, Any]:
    """One after the other; what each took, and what the AIMaster had used after it."""
    master, began, each = psutil.Process(pid), time.monotonic(), []
    cpu, memory = sum(master.cpu_times()[:2]), own_memory(pid)

    async def last_ps() -> str:
        return max(role.name for role in (await status()).roles if role.role == pb.PS and role.slots)

    for number in range(count):
        kind = ("workers+", "ps+", "replace", "workers-", "ps-")[number % 5]
        request = {
            "workers+": {"workers": workers + WORKERS_STEP}, "workers-": {"workers": workers},
            "ps+": {"ps": PS + PS_STEP}, "ps-": {"ps": PS}, "replace": {},
        }[kind] or {"replace": await last_ps()}  # fmt: skip
        asked, used = time.monotonic(), sum(master.cpu_times()[:2])
        reply = await admin.Scale(pb.ScaleRequest(**request), timeout=SCALING_LIMIT_SECONDS)
        found: list[pb.ScalingStatus] = []

        async def ended(identifier: int = reply.scaling_id, found: list[pb.ScalingStatus] = found) -> bool:
            found[:] = [one for one in (await status()).scalings if one.id == identifier and one.outcome]
            return bool(found)

        await wait_for(f"scaling {reply.scaling_id} ({kind})", ended, SCALING_LIMIT_SECONDS, 0.5)
        each.append({
            "kind": kind, "seconds": time.monotonic() - asked, "outcome": found[0].outcome, "reason": found[0].reason,
            "cpu": sum(master.cpu_times()[:2]) - used, "own_mb": own_memory(pid) / 1e6, "at": time.monotonic() - began,
            "threads": master.num_threads(), "fds": master.num_fds(),
        })  # fmt: skip
        print(f"scaling {number + 1}: {each[-1]}", file=sys.stderr, flush=True)
    minutes = (time.monotonic() - began) / 60
    kinds = sorted({one["kind"] for one in each})
    took = {kind: [one["seconds"] for one in each if one["kind"] == kind] for kind in kinds}
    everything = [one["seconds"] for one in each]
    return {
        "scalings": len(each), "outcomes": Counter(one["outcome"] for one in each), "minutes": round(minutes, 2),
        "scaling_median_seconds": statistics.median(everything), "scaling_p90_seconds": percentile(everything, 0.9),
        "scaling_kinds": {kind: {"median": statistics.median(v), "max": max(v),
                                 "cpu": statistics.median(one["cpu"] for one in each if one["kind"] == kind)}
                          for kind, v in took.items()},
        "cpu_seconds_a_minute": (sum(master.cpu_times()[:2]) - cpu) / minutes,
        "own_mb_start": memory / 1e6, "own_mb_end": own_memory(pid) / 1e6,
        "own_mb_each": [round(one["own_mb"], 1) for one in each], "each": each,
    }  # fmt: skip


def _traffic(reports: list[dict[str, Any]], agents: int, seconds: float) -> dict[str, Any]:
    """Bytes of one message by kind, and of one agent in a second; before gRPC's framing and TLS."""
    total: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for report in reports:
        total += Counter(report["bytes"])
        errors += Counter(report["errors"])
    counts = {name.removeprefix("n:"): number for name, number in total.items() if name.startswith("n:")}
    return {
        "bytes_a_message": {name: round(total[name] / number, 1) for name, number in sorted(counts.items())},
        "messages": counts,
        "agent_bytes_a_second": {way: sum(total[name] for name in counts if name.startswith(way)) / agents / seconds
                                 for way in ("up", "down")},
        "agent_errors": errors,
    }  # fmt: skip


def _warnings(workdir: Path) -> dict[str, Any]:
    """What the AIMaster complained of, and how large its files are."""
    events = [json.loads(line) for line in (workdir / "events.jsonl").read_text().splitlines()]
    sizes = {path.name: path.stat().st_size for path in workdir.iterdir() if path.is_file()}
    return {
        "event_types": Counter(event["type"] for event in events), "file_bytes": sizes,
        "warnings": [one for one in events if one["type"] in ("warning", "failure") or
                     (one["type"] == "exited" and one["cause"] != "exited with code 0")],
    }  # fmt: skip


def _views(events: Path, seen: list[dict[str, float]], after_epoch: int, until_epoch: int) -> dict[str, Any]:
    """Delays of every view after `after_epoch` that was not overtaken by the next before it could be sent."""
    published = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["type"] == "view_published" and after_epoch < event["epoch"] <= until_epoch:
            published[str(event["epoch"])] = event["time"]
    delays, missing = [], 0
    for epoch, moment in published.items():
        got = [epochs[epoch] - moment for epochs in seen if epoch in epochs]
        delays += got
        missing += len(seen) - len(got)
    return {
        "views": len(published), "deliveries": len(delays), "not_delivered_or_overtaken": missing,
        "view_p50_seconds": round(percentile(delays, 0.5), 4), "view_p99_seconds": round(percentile(delays, 0.99), 4),
        "view_max_seconds": round(max(delays), 4),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--heartbeat", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument(
        "--gazer", type=float, default=2.0, metavar="SECONDS", help="between two reports of Gazer; 0: none"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the steady window")
    parser.add_argument("--views", type=int, default=10, help="worker scalings, each publishes a view")
    parser.add_argument("--scalings", type=int, default=0, help="further scalings, of workers and PS, after that")
    parser.add_argument("--workdir", help="keeps the logs there; default: a temporary directory")
    parser.add_argument("--json", action="store_true")
    for name in ("--address", "--certs", "--output", "--names"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    raise_file_limit()
    if options.client:
        asyncio.run(client(options))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the children are ended
    with contextlib.ExitStack() as stack:
        workdir = options.workdir or stack.enter_context(tempfile.TemporaryDirectory(prefix="deeprec-control-"))
        result = asyncio.run(measure(options, Path(workdir)))
    result["targets"] = {
        f"AIMaster at most {TARGET_CORES} core": result["aimaster_cores"] <= TARGET_CORES,
        f"p99 of a view at most {TARGET_P99_SECONDS:g} s": result["view_p99_seconds"] <= TARGET_P99_SECONDS,
    }
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{result['agents']} agents, heartbeat {result['heartbeat_seconds']:g} s, mTLS")
    print(f"  AIMaster          {result['aimaster_cores']:.3f} core, {result['aimaster_own_mb']:.0f} MB of its own")
    print(f"  all registered in {result['startup_seconds']:.1f} s")
    print(f"  a view reaches    p50 {result['view_p50_seconds']:.3f} s, p99 {result['view_p99_seconds']:.3f} s,"
          f" max {result['view_max_seconds']:.3f} s ({result['views']} views, {result['deliveries']} deliveries)")  # fmt: skip
    if options.scalings:
        print(f"  {result['scalings']} scalings   {dict(result['outcomes'])}, median {result['scaling_median_seconds']:.2f} s,"
              f" p90 {result['scaling_p90_seconds']:.2f} s; AIMaster {result['cpu_seconds_a_minute']:.1f} s of CPU a minute,"
              f" {result['own_mb_start']:.1f} MB -> {result['own_mb_end']:.1f} MB")  # fmt: skip
        for kind, one in result["scaling_kinds"].items():
            print(f"    {kind:10} median {one['median']:.2f} s, worst {one['max']:.2f} s, CPU {one['cpu']:.2f} s")
    beat, agent = result["bytes_a_message"].get("up heartbeat", 0), result["agent_bytes_a_second"]
    print(f"  an agent          {beat:.0f} bytes a heartbeat, {agent['up']:.0f} B/s up, {agent['down']:.0f} B/s down;"
          f" errors {dict(result['agent_errors'])}, warnings {len(result['warnings'])}")  # fmt: skip
    for target, reached in result["targets"].items():
        print(f"  {'reached' if reached else 'MISSED '}  {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
