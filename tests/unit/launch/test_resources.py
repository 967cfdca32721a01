from __future__ import annotations

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.launch.resources import Requests, Resources, check, parse_requests


def requests(**given: str) -> Requests:
    return parse_requests(given)


def test_what_is_not_given_is_not_limited():
    assert not requests()
    assert requests().of("ps") == requests().of("worker") == Resources()


def test_flags_are_read_as_kubernetes_writes_them():
    read = requests(ps_cpu="0.5", worker_cpu="250m", ps_memory="1GiB", worker_memory="512Mi")
    assert read == Requests(Resources(0.5, 1 << 30), Resources(0.25, 512 << 20))
    assert requests(ps_cpu=".5").ps.cpu == 0.5
    assert requests(worker_memory="1.5 GB").worker.memory_bytes == 1_500_000_000


def test_chief_and_evaluator_have_what_a_worker_has_and_the_aimaster_is_not_limited():
    read = requests(ps_cpu="2", worker_cpu="1")
    assert read.of("chief") == read.of("evaluator") == read.of("worker") == Resources(cpu=1)
    assert read.of("aimaster") == Resources()


@pytest.mark.parametrize(
    "text", ["", "zero", "-1", "0", "0.001", "5m", "1e3", "nan", "inf", "1 core", "0.5.5", "9999999"]
)
def test_what_is_no_cpu_is_refused_with_its_flag(text):
    with pytest.raises(UsageError, match=r"--worker-cpu|cores") as error:
        requests(worker_cpu=text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "Mi", "GiB", "-1GiB", "lots", "1XB", "1KiB", "0MB", "1e9B", "nan"])
def test_what_is_no_memory_is_refused_with_its_flag(text):
    with pytest.raises(UsageError, match="--ps-memory"):
        requests(ps_memory=text)


@pytest.mark.parametrize("text", ["1", "512", "1.5", " 2 "])
def test_memory_without_a_unit_is_refused_because_it_may_mean_anything(text):
    with pytest.raises(UsageError, match=r"Write the unit, for example .*GiB"):
        requests(ps_memory=text)


@pytest.mark.parametrize(
    "wanted", [Resources(cpu=-1), Resources(cpu=float("nan")), Resources(0, 5), Resources(0, 1 << 62)]
)
def test_what_comes_by_the_protocol_is_checked_too(wanted):
    with pytest.raises(UsageError):
        check(wanted)


def test_a_change_leaves_what_it_does_not_name():
    assert Resources(1, 1 << 30).changed(Resources(cpu=2)) == Resources(2, 1 << 30)
    assert Resources(1, 1 << 30).changed(Resources(memory_bytes=2 << 30)) == Resources(1, 2 << 30)
