"""The service in a process of its own, as `deeprec-ext history` starts it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deeprec_ext.history import identities
from deeprec_ext.history.client import Service

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60.0


@dataclass(frozen=True)
class Serving:
    port: int
    page: str
    certificates: Path
    process: subprocess.Popen[str]

    def writer(self, namespace: str, directory: Path) -> Service:
        """An AIMaster of this namespace."""
        identities.write_writer(self.certificates, namespace, directory)
        return Service("127.0.0.1", self.port, directory)

    @property
    def admin(self) -> Service:
        return Service("127.0.0.1", self.port, self.certificates)


@contextlib.contextmanager
def serving(url: str, directory: Path, *flags: str) -> Iterator[Serving]:
    """Two free ports; its log is `directory`/service.log."""
    certificates, log = directory / "authority", directory / "service.log"
    identities.create(certificates)
    words = [sys.executable, "-m", "deeprec_ext.cli.main", "history", "--certs", str(certificates), "--listen",
             "127.0.0.1:0", "--http", "127.0.0.1:0", *flags]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DEEPREC_EXT_HISTORY_DATABASE": url}
    with log.open("w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=environment, text=True)
    try:
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(r"served at https://[\d.]+:(\d+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        (page,) = re.findall(r"the page is at (\S+)", log.read_text())
        yield Serving(int(found[1]), page, certificates, process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
