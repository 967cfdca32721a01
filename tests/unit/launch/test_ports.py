"""Ports that are chosen for a job."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deeprec_ext.launch import ports


def test_a_free_port_is_none_that_the_kernel_gives_to_somebody_else(tmp_path: Path) -> None:
    low, _ = ports._kernel_range()
    found = {ports.free_port() for _ in range(50)}
    assert len(found) > 25 and all(ports.FIRST <= port < low for port in found)
    for port in found:
        assert ports.check_free(port, "--port") == port


def test_a_port_that_is_in_use_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind((ports.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "FIRST", port)
        monkeypatch.setattr(ports, "_kernel_range", lambda: (port + 1, 65535))
        assert ports.free_port() != port


def test_where_the_kernel_gives_out_all_ports_it_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    everything = tmp_path / "range"
    everything.write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_RANGE", everything)
    assert ports.free_port() >= 1024
    monkeypatch.setattr(ports, "_RANGE", tmp_path / "missing")
    assert ports._kernel_range() == (32_768, 60_999)
