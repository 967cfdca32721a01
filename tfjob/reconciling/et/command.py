"""What the launcher of a TrainingJob runs: the script, without `horovodrun` or `mpirun` before it.

A launcher starts one process in each worker; here each pod runs the script itself. So from the command the launcher and its
own flags are cut out, and the rest stays as it is written: what a shell does before and behind it, quotes, and redirections.
Flags of launchers are as `horovodrun --help` and the manual pages of Open MPI and MPICH list them; one that is not known here
is refused, since nobody could say where the script begins.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfjob.model.spec import InvalidError

WHERE = "spec.etReplicaSpecs.launcher.template.spec.containers[0].command"

_HOROVODRUN: Mapping[str, int] = {
    **dict.fromkeys("""-np --num-proc -p --ssh-port -i --ssh-identity-file --start-timeout --network-interface
        --network-interfaces --output-filename --log-level --config-file -H --hosts -hostfile --hostfile
        --min-np --min-num-proc --max-np --max-num-proc --slots --slots-per-host --host-discovery-script
        --elastic-timeout --reset-limit --fusion-threshold-mb --cycle-time-ms --cache-capacity
        --timeline-filename --autotune-log-file --autotune-warmup-samples --autotune-steps-per-sample
        --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise
        --stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --mpi-args --num-nccl-streams
        --thread-affinity --gloo-timeout-seconds --binding-args""".split(), 1),
    **dict.fromkeys("""--verbose --disable-cache --autotune --no-autotune --hierarchical-allreduce
        --no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather
        --timeline-mark-cycles --no-timeline-mark-cycles --stall-check --no-stall-check --gloo --mpi --jsrun
        --tcp --mpi-threads-disable --no-mpi-threads-disable --log-with-timestamp --log-without-timestamp
        --prefix-output-with-timestamp""".split(), 0),
    "--cooldown-range": 2, "--blacklist-cooldown-range": 2,
}  # fmt: skip
_MPIRUN: Mapping[str, int] = {
    **dict.fromkeys("""-np --np -n --n -c -H -host --host -hosts -hostfile --hostfile -machinefile --machinefile -f -x
        -bind-to --bind-to -map-by --map-by -rank-by --rank-by -N -npernode --npernode -ppn -prefix --prefix
        -wd -wdir --wdir -output-filename --output-filename -timeout --timeout -tune --tune -iface -path
        --path""".split(), 1),
    **dict.fromkeys("""-allow-run-as-root --allow-run-as-root -tag-output --tag-output -oversubscribe --oversubscribe
        -nooversubscribe --nooversubscribe -v --verbose -q --quiet -report-bindings --report-bindings
        -display-map --display-map -display-allocation --display-allocation -merge-stderr-to-stdout
        --merge-stderr-to-stdout -enable-recovery --enable-recovery -l -use-hwthread-cpus
        --use-hwthread-cpus -bynode --bynode -byslot --byslot -pernode --pernode -genvall -timestamp-output
        --timestamp-output""".split(), 0),
    "-mca": 2, "--mca": 2, "-gmca": 2, "--gmca": 2, "-genv": 2, "-env": 2,
}  # fmt: skip
LAUNCHERS: Mapping[str, Mapping[str, int]] = {
    "horovodrun": _HOROVODRUN, "mpirun": _MPIRUN, "mpiexec": _MPIRUN, "mpiexec.hydra": _MPIRUN, "orterun": _MPIRUN,
}  # fmt: skip
"""Launcher → its flags, and how many words each takes."""

_LEAST, _MOST = ("--min-np", "--min-num-proc"), ("--max-np", "--max-num-proc")
_EACH = ("-N", "-npernode", "--npernode", "-ppn", "--slots", "--slots-per-host")
_SHELLS, _BEFORE = ("sh", "bash", "dash", "ash", "zsh"), ("exec", "env", "time", "nohup", "command")
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_SPACE = re.compile(r"(?:[ \t\r]|\\\n|#[^\n]*)+")
_WORD = re.compile(r"""(?:[^\s'"\\;&|<>()]|\\.|'[^']*'|"(?:\\.|[^"\\])*")+""", re.DOTALL)
_OPERATOR = re.compile(r"&&|\|\||[;|()\n]|&(?!>)")
_REDIRECTION = re.compile(r"\d?(?:&>>?|>>?|<<?<?)&?\d?-?")
HOROVOD_RUNNERS = ("horovod.runner", "horovod.run", "horovod.runner.launch")


@dataclass(frozen=True)
class Script:
    """What each pod runs. Numbers of processes are the launcher's; None: it does not say."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    directory: str = ""
    launcher: str = ""
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class _Word:
    """A word, or an operator (`value` is empty), at its place in the text."""

    raw: str
    value: str
    start: int
    operator: bool = False


def script_of(words: Sequence[str], where: str = WHERE) -> Script:
    """`command` and `args` of the launcher's container → what each pod is to run. Raises InvalidError, which names what
    cannot be."""
    if not words:
        raise InvalidError(
            where, "is empty: a launcher that runs its image's own entry point cannot be looked into; write it here"
        )
    at = _text_at(words, where)
    if at is None:
        tokens = [_Word(word, word, index) for index, word in enumerate(words)]
        found = _cut(tokens, where)
        if found is None:
            _check_programs(tokens, where)
            return Script(tuple(words))
        return _plain(words, found)
    text = words[at]
    tokens = _tokens(text, where)
    found = _cut(tokens, where)
    if found is None:
        _check_programs(tokens, where)
        return Script(tuple(words))
    given = "".join(f"{raw} " for raw in found.assignments)
    after = text[: found.start] + (f"env {given}" if given else "") + text[found.end :]
    return Script((*words[:at], after, *words[at + 1 :]), (), found.directory, found.launcher, found.least, found.most)


def _plain(words: Sequence[str], found: _Cut) -> Script:
    """Without a shell: variables of ranks become the container's."""
    environment = tuple((name, value) for name, _, value in (one.partition("=") for one in found.assignments))
    command = (*words[: found.start], *words[found.end :])
    return Script(command, environment, found.directory, found.launcher, found.least, found.most)


def _text_at(words: Sequence[str], where: str) -> int | None:
    """Which word is a shell's text; None: there is no shell."""
    if os.path.basename(words[0]) not in _SHELLS:
        return None
    for index, word in enumerate(words[1:], 1):
        if not word.startswith(("-", "+")):
            raise InvalidError(
                where, f"runs the shell script {word}, which cannot be looked into: name the launcher or Python here"
            )
        if re.fullmatch(r"-[a-z]*c[a-z]*", word) and index + 1 < len(words):
            return index + 1
    raise InvalidError(where, f"is a shell without a command: {' '.join(words)}")


@dataclass(frozen=True)
class _Cut:
    """From `start` to `end` stand the launcher and its flags."""

    start: int
    end: int
    launcher: str
    assignments: tuple[str, ...] = ()  # as they are written
    directory: str = ""
    least: int | None = None
    most: int | None = None


def _cut(tokens: Sequence[_Word], where: str) -> _Cut | None:
    """None: there is no launcher. Raises InvalidError."""
    there = [index for index in _programs(tokens) if os.path.basename(tokens[index].value) in LAUNCHERS]
    if not there:
        return None
    if len(there) > 1:
        raise InvalidError(where, f"runs {tokens[there[1]].value} a second time: one launcher, one script")
    at = there[0]
    launcher = os.path.basename(tokens[at].value)
    given, index = _flags(tokens, at + 1, launcher, where)
    if index >= len(tokens) or tokens[index].operator:
        raise InvalidError(where, f"{launcher} is given no script")
    _check_programs(tokens[index:], where, first_only=True)
    values = {name: [pair[1:] for pair in given if pair[0] == name] for name in {pair[0] for pair in given}}
    for name in _EACH:
        for each in values.get(name, ()):
            if each[0].value != "1":
                raise InvalidError(
                    where, f"{name} {each[0].value}: a pod has one process here; write 1, or more workers"
                )
    assignments = [one[0].raw for one in values.get("-x", ()) if "=" in one[0].value]
    assignments += [f"{one[0].raw}={one[1].raw}" for name in ("-genv", "-env") for one in values.get(name, ())]
    directories = [one[0].value for name in ("-wd", "-wdir", "--wdir") for one in values.get(name, ())]
    return _Cut(
        tokens[at].start, tokens[index].start, launcher, tuple(assignments), "".join(directories[-1:]),
        _number(values, _LEAST, where), _number(values, _MOST, where),
    )  # fmt: skip


def _flags(
    tokens: Sequence[_Word], index: int, launcher: str, where: str
) -> tuple[list[tuple[str, _Word, _Word]], int]:
    """[(flag, first word, last word)], and where what is no flag begins."""
    known, found = LAUNCHERS[launcher], list[tuple[str, _Word, _Word]]()
    while index < len(tokens) and not tokens[index].operator and tokens[index].value.startswith("-"):
        token = tokens[index]
        name, joined, value = token.value.partition("=")
        if name not in known:
            raise InvalidError(where, f"{launcher} is given {name}, which is not known here: leave it out")
        count = known[name] - bool(joined)
        words = tokens[index + 1 : index + 1 + count]
        if len(words) < count or any(word.operator for word in words):
            raise InvalidError(where, f"{name} of {launcher} is given nothing")
        both = ([_Word(token.raw.partition("=")[2], value, token.start)] if joined else []) + list(words)
        if both:
            found.append((name, both[0], both[-1]))
        index += 1 + count
    return found, index


def _number(values: Mapping[str, Sequence[tuple[_Word, ...]]], flags: Sequence[str], where: str) -> int | None:
    for name in flags:
        for one in values.get(name, ()):
            if not one[0].value.isdecimal() or not int(one[0].value):
                raise InvalidError(where, f"{name} is {one[0].value}; must be a whole number, 1 or more")
            return int(one[0].value)
    return None


def _programs(tokens: Sequence[_Word]) -> list[int]:
    """Where a program is named: first, behind an operator, and behind what only comes before a program."""
    found, expected = [], True
    for index, token in enumerate(tokens):
        if token.operator:
            expected = True
        elif expected and not _ASSIGNMENT.match(token.value) and token.value not in _BEFORE:
            found.append(index)
            expected = False
    return found


def _check_programs(tokens: Sequence[_Word], where: str, *, first_only: bool = False) -> None:
    """That a Python script is run. Raises InvalidError with the name of what is run instead."""
    programs = _programs(tokens)[: 1 if first_only else None]
    for index in programs:
        name = os.path.basename(tokens[index].value)
        rest = [token.value for token in tokens[index + 1 :]]
        if _PYTHON.fullmatch(name):
            module = rest[rest.index("-m") + 1 :][:1] if "-m" in rest else []
            if module and module[0] in HOROVOD_RUNNERS:
                raise InvalidError(where, f"{name} -m {module[0]}: write horovodrun, whose flags are known here")
            return
        if name in _SHELLS:
            words = [tokens[index].value, *rest]
            at = _text_at(words, where)
            if at is not None:
                _check_programs(_tokens(words[at], where), where)
                return
    names = ", ".join(dict.fromkeys(os.path.basename(tokens[index].value) for index in programs)) or "nothing"
    raise InvalidError(
        where, f"runs {names}: run elastic can be a Python script of TensorFlow, or of Horovod behind horovodrun or mpirun"
    )  # fmt: skip


def _tokens(text: str, where: str) -> list[_Word]:
    """Of a shell's text. Raises InvalidError where quotes do not close."""
    found, at = list[_Word](), 0
    while at < len(text):
        if space := _SPACE.match(text, at):
            at = space.end()
        elif operator := _OPERATOR.match(text, at):
            found.append(_Word(operator[0], "", at, operator=True))
            at = operator.end()
        elif (redirection := _REDIRECTION.match(text, at)) and redirection.end() > at:
            found.append(_Word(redirection[0], redirection[0], at))
            at = redirection.end()
        elif word := _WORD.match(text, at):
            found.append(_Word(word[0], "".join(shlex.split(word[0], comments=False)) or word[0], at))
            at = word.end()
        else:
            raise InvalidError(where, f"cannot be read at {text[at : at + 20]!r}: a quote that does not close?")
    return found
