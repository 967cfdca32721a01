"""What a TrainingJob's launcher runs, as each pod is to run it."""

from __future__ import annotations

import re

import pytest

from tfjob.model.spec import InvalidError
from tfjob.reconciling.et.command import LAUNCHERS, script_of

EXAMPLE = (
    "horovodrun --log-level DEBUG --verbose -np 2 --min-np 1 --max-np 9 --host-discovery-script "
    "/etc/edl/discover_hosts.sh python /examples/elastic/train.py"
)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["sh", "-c", EXAMPLE], ["sh", "-c", "python /examples/elastic/train.py"]),
        (EXAMPLE.split(), ["python", "/examples/elastic/train.py"]),
        (["python3.8", "-u", "train.py"], ["python3.8", "-u", "train.py"]),
        (["/usr/bin/mpirun", "-np", "4", "-mca", "btl", "tcp,self", "python", "a.py"], ["python", "a.py"]),
        (["sh", "-c", "cd /x && mpirun --allow-run-as-root \\\n -np=2 python a.py --text 'x; y' 2>&1 | tee log"],
         ["sh", "-c", "cd /x && python a.py --text 'x; y' 2>&1 | tee log"]),
        (["bash", "-lc", 'pip install "a b"; exec mpirun -np $N -x A="$B c" -x PATH python -m pkg.train > log &'],
         ["bash", "-lc", 'pip install "a b"; exec env A="$B c" python -m pkg.train > log &']),
        (["sh", "-c", "horovodrun -np 2 bash -c 'python a.py'"], ["sh", "-c", "bash -c 'python a.py'"]),
        (["sh", "-c", "# horovodrun --nonsense\nFLAG=1 horovodrun -np 2 python a.py"],
         ["sh", "-c", "# horovodrun --nonsense\nFLAG=1 python a.py"]),
        (["sh", "-ec", "mpiexec -n 2 -genv A 1 python a.py", "name", "$1"],
         ["sh", "-ec", "env A=1 python a.py", "name", "$1"]),
    ],
)  # fmt: skip
def test_the_launcher_and_its_flags_are_cut_out_and_the_rest_stays(words: list[str], command: list[str]) -> None:
    assert list(script_of(words).command) == command


def test_what_the_flags_of_a_launcher_say_is_kept() -> None:
    found = script_of(["sh", "-c", EXAMPLE])
    assert (found.launcher, found.least, found.most) == ("horovodrun", 1, 9)
    found = script_of("mpirun -np 2 -x A=1 -x PATH -wdir /work python a.py".split())
    assert (found.environment, found.directory, found.least) == ((("A", "1"),), "/work", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "is empty"),
        (["deepspeed", "a.py"], "runs deepspeed: .*Python script"),
        (["torchrun", "a.py"], "runs torchrun"),
        (["mpirun", "-np", "2", "./a.out"], r"runs a\.out"),
        (["bash", "run.sh"], r"shell script run\.sh, which cannot be looked into"),
        (["sh"], "a shell without a command"),
        (["sh", "-c", "echo a; ls"], "runs echo, ls"),
        (["horovodrun", "--foo", "python", "a.py"], "horovodrun is given --foo, which is not known here"),
        (["horovodrun", "-np", "2"], "horovodrun is given no script"),
        (["sh", "-c", "horovodrun -np && python a.py"], "-np of horovodrun is given nothing"),
        (["sh", "-c", "horovodrun -np 2 python a.py; horovodrun -np 2 python b.py"], "a second time"),
        (["sh", "-c", "horovodrun -np 2 python 'a.py"], "a quote that does not close"),
        (["mpirun", "-np", "4", "-N", "2", "python", "a.py"], "-N 2: a pod has one process"),
        (["horovodrun", "--min-np", "x", "python", "a.py"], "--min-np is x"),
        (["python", "-m", "horovod.runner", "-np", "2", "python", "a.py"], "write horovodrun"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(words: list[str], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        script_of(words)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_flag_is_known_with_as_many_words_as_it_takes(launcher: str) -> None:
    each = {"-N", "-npernode", "--npernode", "-ppn", "--slots", "--slots-per-host"}
    for flag, count in LAUNCHERS[launcher].items():
        assert re.fullmatch(r"--?[A-Za-z][\w-]*", flag)
        given = ["1" if flag in each or "min" in flag or "max" in flag else "python"] * count
        assert script_of([launcher, flag, *given, "python", "a.py"]).command == ("python", "a.py")
