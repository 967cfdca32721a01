"""`jobs` of a cluster: asked in the pod of the history service, with the administrator's certificate that is there; shown here.

So the certificate never leaves the pod, and the service needs no way in from outside. What the caller needs is the right to run
commands in pods of the namespace of the operator, which is its administrator's: the history has jobs of everybody.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable
from typing import Any

from deeprec_ext.cli.cluster.forwarding import write_error
from deeprec_ext.cli.cluster.target import INSTALLED_IN
from deeprec_ext.errors import UsageError
from deeprec_ext.history.client import ANSWER_BYTES_MAX, PORT, SCHEME
from deeprec_ext.history.record import Kept, RecordError, from_values
from deeprec_ext.printable import printable
from tfjob.api.client import Api, ForbiddenError
from tfjob.api.exec import execute
from tfjob.api.finding import is_running, why_not_running
from tfjob.model.kinds import PODS, Manifest

LABELS = "app.kubernetes.io/name=deeprec-ext,app.kubernetes.io/component=history"
CONTAINER = "history"

Show = Callable[[list[Kept], str], None]
"""What tells of jobs, and of where the next page begins: the command's, which imports this."""


async def run(show: Show, arguments: argparse.Namespace, api: Api, namespace: str) -> int:
    """Raises UsageError, ApiError, UnreachableError."""
    installed_in, pod = await _service(api, arguments.installed_in, namespace)
    words = [*_command(pod), f"--limit={arguments.limit}", "--json"]
    given = {
        "--namespace": "" if arguments.all_namespaces else namespace, "--script": arguments.script,
        "--before": arguments.before,
    }  # fmt: skip
    words += [f"{flag}={value}" for flag, value in given.items() if value]
    parts: list[bytes] = []
    size = 0

    def keep(data: bytes) -> None:
        nonlocal size
        size += len(data)
        if size > ANSWER_BYTES_MAX:
            raise UsageError(
                f"the history answers with more than {ANSWER_BYTES_MAX:,} bytes; ask for less with --limit"
            )
        parts.append(data)

    try:
        code = await execute(api, installed_in, pod["metadata"]["name"], CONTAINER, words, keep, write_error)
    except ForbiddenError as error:
        raise UsageError(
            f"{error}; this command runs in the pod of the history: it needs the verbs get and create on pods/exec in "
            f"namespace {installed_in}"
        ) from error
    text = b"".join(parts).decode(errors="replace")
    if not code:
        _tell(text, None if arguments.json else show)
    elif arguments.json:
        print(text, end="")  # what the command there says of its error
    return code


async def _service(api: Api, installed_in: str | None, namespace: str) -> tuple[str, Manifest]:
    """Its namespace and a pod of it that runs. An operator with a Role alone has it beside the jobs. Raises UsageError."""
    places = [installed_in] if installed_in else list(dict.fromkeys([namespace, INSTALLED_IN]))
    refused: list[str] = []
    for place in places:
        try:
            found, _ = await api.list_all(PODS, place, labels=LABELS)
        except ForbiddenError as error:
            refused.append(str(error))
            continue
        pods = sorted(found, key=lambda pod: str(pod["metadata"]["name"]))
        running = next((pod for pod in pods if is_running(pod, CONTAINER)), None)
        if running is not None:
            return place, running
        if pods:
            raise UsageError(
                f"the history does not run (pod {pods[0]['metadata']['name']}: {why_not_running(pods[0])}); try again"
            )
    if refused:
        raise UsageError(
            f"{refused[0]}; this command looks for the history's pod: it needs the verb list on pods where that is, and "
            "--installed-in says where"
        )
    raise UsageError(
        f"namespace {' and '.join(places)} {'has' if len(places) == 1 else 'have'} no history of jobs; --installed-in says "
        "where else, and Helm's value `history` installs one"
    )


def _command(pod: Manifest) -> list[str]:
    """`deeprec-ext jobs` there, asking the service beside it. Raises UsageError."""
    container = next(one for one in pod["spec"]["containers"] if one.get("name") == CONTAINER)
    words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    with contextlib.suppress(ValueError, IndexError):
        program, certificates = words[: words.index("history")], words[words.index("--certs") + 1]
        listen = words[words.index("--listen") + 1] if "--listen" in words else f":{PORT}"
        address = f"{SCHEME}127.0.0.1:{listen.rpartition(':')[2]}"
        if program:
            return [*program, "jobs", "--history", address, "--history-certs", certificates]
    raise UsageError(f"pod {pod['metadata']['name']} does not run `deeprec-ext history --certs DIR`")


def _tell(text: str, show: Show | None) -> None:
    """As it is, without `show`. Raises UsageError for what is no list of jobs. Jobs that cannot be read are left out."""
    try:
        values: dict[str, Any] = json.loads(text)
        rows, following = list(values["jobs"]), str(values["next"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"the history does not answer as one: {printable(text[:200])}") from error
    if show is None:
        print(text, end="")
        return
    found = []
    for row in rows:
        with contextlib.suppress(RecordError, KeyError, TypeError, ValueError):
            found.append(Kept(int(row["number"]), str(row["namespace"]), from_values(row)))
    show(found, following)
