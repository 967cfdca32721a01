"""`python -m tests.cluster.e2e` (`make e2e`): a census TFJob with real pods, taken through what happens to real jobs.

A node is started in this machine (`tests/cluster/tool/cluster`, full root). The job is annotated; PS go 2→3 and workers 1→2 by
`deeprec-ext scale`, PS 3→2 by `replicas`, then a PS pod is deleted by force, then the AIMaster's pod, then the operator
is killed and started again. The job has to succeed with its AUC, and the data ledger has to balance. With `--strategy
allreduce` it is a job without PS: workers go 1→2 by `deeprec-ext scale`, pods of a worker, of the AIMaster and of the chief are
deleted by force, and workers go 2→1 by `replicas`. With `--autoscale`, of such a job, they come by decisions, as many as there
may be, over the loss of the AIMaster's pod, and go by `replicas`. Pods see this machine's Python by host paths: no image is
built.

With `--package inject` there are two (`images.py`), and nothing of this machine is mounted: the AIMaster's pod and the init
containers run ours, which has no TensorFlow, and the job's own containers one that has TensorFlow and not this package.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from benchmarks.job import say
from tests.cluster import images
from tests.cluster.kube import NAMESPACES, Operator, install_crd, pods_of
from tfjob.api.client import Api
from tfjob.model.kinds import CONFIG_MAPS, PODS, TFJOBS, Manifest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tests" / "cluster" / "tool" / "cluster"
NAMESPACE, JOB = "e2e", "census"
AUC_AT_LEAST, ACCURACY_AT_LEAST = 0.90, 0.8
LIMIT_SECONDS = 300.0
PS_SCRIPT, IN_STEP_SCRIPT = "examples/census_wide_deep/train.py", "examples/allreduce_own_loop/train.py"
AUTOSCALED_SCRIPT = "tests/behaviour/scripts/summing.py"
SCRIPTS = (PS_SCRIPT, IN_STEP_SCRIPT, AUTOSCALED_SCRIPT)

AUTOSCALED_RECORDS, MOST_WORKERS = 60_000, 2
"""Each is 20 ms of sleep: a worker trains 50 a second. So many that trying a worker pays though pods start slowly."""


class Failed(Exception):
    """The message says what was not as it should be."""


def cluster(*words: str, run: str = "", timeout: float = 900.0) -> str:
    environment = {**os.environ, **({"CLUSTER_RUN": run} if run else {})}
    done = subprocess.run([TOOL, *words], env=environment, stdout=subprocess.PIPE, text=True, timeout=timeout)
    if done.returncode:
        raise Failed(f"cluster {' '.join(words)} failed")
    return done.stdout


def pod_spec(*directories: Path) -> Manifest:
    """A pod of this machine's Python; its container sees `directories`."""
    text = cluster("pod", "--name", "x", sys.prefix, str(ROOT), *map(str, directories), "--", "python")
    spec: Manifest = yaml.safe_load(text)["spec"]
    # The machine's whole /etc, read-only, would leave no place for the certificates that an elastic pod gets there.
    (etc,) = [volume for volume in spec["volumes"] if volume["name"] == "etc"]
    (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "etc"]
    etc["hostPath"]["path"] = mount["mountPath"] = "/etc/ssl"
    return spec


def job(data: Path, steps: int, *, in_step: bool = False, autoscale: bool = False, inject: bool = False) -> Manifest:
    script, options = PS_SCRIPT, ["--steps", str(steps), "--model", "/data/model"]
    if in_step:
        script, options = IN_STEP_SCRIPT, ["--steps", str(steps)]
    if autoscale:
        script, options = AUTOSCALED_SCRIPT, ["--records", str(AUTOSCALED_RECORDS), "--batch", "6"]

    def template() -> Manifest:
        spec = pod_spec()
        (container,) = spec["containers"]
        container.update(
            name="tensorflow",
            command=["python", str(ROOT / script), *options],
            ports=[{"name": "tfjob-port", "containerPort": 2222}],
        )
        container["env"].append({"name": "PYTHONPATH", "value": str(ROOT)})
        if inject:
            command = ["python", f"{images.SCRIPTS_AT}/{script}", *options]
            container.update(image=images.TRAINING, command=command, env=[], volumeMounts=[])
            spec["volumes"] = []
        container["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        spec["volumes"].append({"name": "data", "hostPath": {"path": str(data)}})
        return {"spec": {"containers": [container], "volumes": spec["volumes"]}}

    def replicas(count: int) -> Manifest:
        return {"replicas": count, "restartPolicy": "Never", "template": template()}

    how = {"strategy": "allreduce"} if in_step else {"max-ps": "4"}
    given = {"enabled": "true", "max-workers": "3", "package": "inject" if inject else "image", **how}
    given |= {"autoscale": "true", "max-workers": str(MOST_WORKERS)} if autoscale else {}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": "TFJob",
        "metadata": {"name": JOB, "annotations": {f"aimaster.deeprec.io/{key}": value for key, value in given.items()}},
        "spec": {"tfReplicaSpecs": {
            **({} if in_step else {"PS": replicas(2)}), "Chief": replicas(1),
            "Worker": replicas(0 if autoscale else 1),
        }},
    }  # fmt: skip


def aimaster_overlay() -> Manifest:
    """What makes a pod of ours run without an image of ours: the machine's Python, and the rights to read it."""
    spec = pod_spec()
    (container,) = spec["containers"]
    return {"spec": {
        "volumes": spec["volumes"],
        "containers": [{
            "name": "aimaster", "imagePullPolicy": "IfNotPresent", "volumeMounts": container["volumeMounts"],
            "env": [*container["env"], {"name": "PYTHONPATH", "value": str(ROOT)}],
        }],
    }}  # fmt: skip


class Story:
    def __init__(self, api: Api) -> None:
        self._api = api
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        say(f"{time.monotonic() - self.began:6.1f} s  {text}")

    async def until(self, what: str, condition: Callable[[], Awaitable[Any]], seconds: float = LIMIT_SECONDS) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            await self._ended_badly(what)
            found = await condition()
            if found:
                self.say(what)
                return found
            if time.monotonic() > deadline:
                raise Failed(f"not within {seconds:.0f} s: {what}; {await self.status()}")
            await asyncio.sleep(0.5)

    async def _ended_badly(self, what: str) -> None:
        conditions = await self.conditions()
        if "Failed" in conditions:
            raise Failed(f"while waiting for {what!r}: {conditions['Failed']}")

    async def job(self) -> Manifest:
        return await self._api.get(TFJOBS, NAMESPACE, JOB)

    async def conditions(self) -> dict[str, str]:
        found = ((await self.job()).get("status") or {}).get("conditions") or []
        return {one["type"]: one["message"] for one in found if one["status"] == "True"}

    async def status(self) -> str:
        """The AIMaster's line."""
        return str((await self.job())["metadata"].get("annotations", {}).get("aimaster.deeprec.io/status", ""))

    async def step(self) -> int:
        match = re.search(r"step ([\d,]+)", await self.status())
        return int(match[1].replace(",", "")) if match else 0

    async def steps_more(self, count: int) -> None:
        before = await self.step()

        async def more() -> bool:
            return await self.step() >= before + count

        await self.until(f"{count} steps more than {before}", more)

    async def scale(self, role: str, count: int) -> None:
        """By our command, which runs in the AIMaster's pod; how soon the new pod was asked for is told as well."""
        before, began, asked = set(await pods_of(self._api, NAMESPACE, JOB)), time.monotonic(), ""
        ended = asyncio.ensure_future(ours("scale", "-n", NAMESPACE, JOB, f"--{role}", str(count), "--wait"))
        while not ended.done():
            if not asked and set(await pods_of(self._api, NAMESPACE, JOB)) - before:
                asked = f"; its pod was asked for {time.monotonic() - began:.1f} s after the command was started"
            await asyncio.sleep(0.05)
        self.say(f"{count} {role}: {ended.result().strip()}{asked}")

    async def by_hand(self, type_: str, count: int) -> None:
        await self._api.patch(TFJOBS, NAMESPACE, JOB, {"spec": {"tfReplicaSpecs": {type_: {"replicas": count}}}})

        async def scaled() -> bool:
            return (await self.scaled_to()).get(type_) == count

        await self.until(f"{count} {type_} by `replicas`", scaled)

    async def scaled_to(self) -> dict[str, int]:
        """As the AIMaster has noted it."""
        annotations = (await self.job())["metadata"]["annotations"]
        return dict(json.loads(annotations.get("aimaster.deeprec.io/scaled-to", "{}")))

    async def lose(self, pod: str, steps: int) -> None:
        await self._api.delete(PODS, NAMESPACE, pod, grace_seconds=0)
        self.say(f"the pod {pod} is deleted by force")
        await self.steps_more(steps)

    async def told(self, *words: str, has: str) -> None:
        """What one of our commands says of the job, as a regular expression. Raises Failed."""
        try:
            output = await ours(words[0], "-n", NAMESPACE, JOB, *words[1:])
        except Failed as error:
            if "has ended meanwhile" not in str(error):  # the AIMaster was about to end: then what it has left tells
                raise
            output = await ours(words[0], "-n", NAMESPACE, JOB, *words[1:])
        if not re.search(has, output):
            raise Failed(f"deeprec-ext {' '.join(words)} does not say {has!r}: {output[-2000:]}")
        self.say(f"deeprec-ext {' '.join(words)}: {len(output.splitlines())} lines")


async def ours(*words: str) -> str:
    """Output of a command of `deeprec-ext`. Raises Failed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "deeprec_ext.cli.main",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode()
    if process.returncode:
        raise Failed(f"deeprec-ext {' '.join(words)}: {output[-2000:]}")
    return output


async def play(
    kubeconfig: str, base: Path, steps: int, *, in_step: bool, autoscale: bool, inject: bool
) -> dict[str, Any]:
    data = base / "data"
    data.mkdir(exist_ok=True)
    data.chmod(0o777)
    overlay = base / "overlay.yaml"
    overlay.write_text(yaml.safe_dump(aimaster_overlay()))
    words = ("--lease-namespace", "default", "--image")
    words += (images.OURS,) if inject else ("localhost/busybox:1", "--aimaster-overlay", str(overlay))
    operators = [Operator(kubeconfig, base / "operator.log", *words)]

    def another_operator() -> None:
        operators[-1].kill()
        operators.append(Operator(kubeconfig, base / "operator.log", *words))

    try:
        async with Api.from_environment() as api:
            await api.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
            seen = await has_what(api) if inject else {}
            manifest = job(data, steps, in_step=in_step, autoscale=autoscale, inject=inject)
            await api.create(TFJOBS, NAMESPACE, manifest)
            story = Story(api)

            async def trains() -> bool:
                return await story.step() > 50

            async def succeeded() -> bool:
                return "Succeeded" in await story.conditions()

            await story.until("the job trains", trains)
            if inject:
                await story.until("each pod has its package from another image", lambda: two_images(api), 60.0)
            told = in_step_by_itself if autoscale else in_step_all_of_it if in_step else all_of_it
            await told(api, story, another_operator)
            await story.until("the job has succeeded", succeeded, 900.0)
            found = await result(api, story)
            await story.told("status", has="Succeeded")
            # times from the job's start, not from the second AIMaster's
            await story.told("report", "--markdown", has=r"\| S1 \| [0-4]:")
            found = autoscaled_checked(found) if autoscale else in_step_checked(found) if in_step else checked(found)
            return {**found, **({"images": seen} if inject else {})}
    finally:
        operators[-1].stop()


HAS = """
import importlib, json
def has(name):
    try:
        return bool(importlib.import_module(name))
    except ModuleNotFoundError as error:
        assert error.name == name, error
        return False
with open("/dev/termination-log", "w") as told:
    json.dump({name: has(name) for name in ("deeprec_ext", "tensorflow")}, told)
"""


async def has_what(api: Api) -> dict[str, Any]:
    """What can be imported in a pod of each image alone. Raises Failed where that is not what makes the test one."""
    wanted = {
        images.OURS: {"deeprec_ext": True, "tensorflow": False},
        images.TRAINING: {"deeprec_ext": False, "tensorflow": True},
    }
    found: dict[str, Any] = {}
    for name, image in (("ours", images.OURS), ("training", images.TRAINING)):
        container = {"name": "main", "image": image, "command": ["python", "-c", HAS]}
        spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False}
        await api.create(PODS, "default", {"metadata": {"name": name}, "spec": spec})
        deadline = time.monotonic() + 120.0
        while not (ended := _terminated(await api.get(PODS, "default", name))):
            if time.monotonic() > deadline:
                raise Failed(f"a pod of {image} does not end")
            await asyncio.sleep(0.2)
        found[image] = json.loads(ended["message"]) if ended["exitCode"] == 0 else ended
        say(f"{image} has {found[image]}")
        await api.delete(PODS, "default", name, grace_seconds=0)
    if found != wanted:
        raise Failed(f"the images have {found}, not {wanted}")
    return found


def _terminated(pod: Manifest) -> Manifest:
    (status,) = (pod.get("status") or {}).get("containerStatuses") or [{}]
    found: Manifest = (status.get("state") or {}).get("terminated") or {}
    return found


async def two_images(api: Api) -> bool:
    """Whether the pods that train have one image, which is not the one from which their package was copied."""
    pods = [pod for name, pod in (await pods_of(api, NAMESPACE, JOB)).items() if name != f"{JOB}-aimaster"]
    pairs = set()
    for pod in pods:
        (init,), (own,) = (
            pod["status"].get("initContainerStatuses") or [{}],
            pod["status"].get("containerStatuses") or [{}],
        )
        pairs.add((init.get("image"), own.get("image"), init.get("imageID") != own.get("imageID")))
    return pairs == {(images.OURS, images.TRAINING, True)}


async def all_of_it(api: Api, story: Story, another_operator: Callable[[], None]) -> None:
    await story.scale("ps", 3)
    await story.steps_more(100)
    await story.scale("workers", 2)
    await story.told("status", has="ps-2")
    await story.told("logs", "worker-1", has="INFO")
    await story.steps_more(100)
    await story.by_hand("PS", 2)  # as any user of kubectl would
    await story.steps_more(100)
    names = sorted(name for name in await pods_of(api, NAMESPACE, JOB) if "-ps-" in name)
    await story.lose(names[0], 200)
    await story.lose(f"{JOB}-aimaster", 200)
    another_operator()
    story.say("the operator is killed and started again")


async def in_step_all_of_it(api: Api, story: Story, another_operator: Callable[[], None]) -> None:
    await story.scale("workers", 2)
    await story.told("status", has="in step")
    await story.steps_more(200)
    await story.lose(f"{JOB}-worker-0", 200)
    await story.lose(f"{JOB}-aimaster", 200)
    await story.lose(f"{JOB}-chief-0", 400)
    await story.by_hand("Worker", 1)
    another_operator()
    story.say("the operator is killed and started again")


async def in_step_by_itself(api: Api, story: Story, another_operator: Callable[[], None]) -> None:
    async def grown() -> bool:
        return (await story.scaled_to()).get("Worker") == MOST_WORKERS

    await story.until(f"{MOST_WORKERS} Worker by decisions", grown)
    workers = [name for name in await pods_of(api, NAMESPACE, JOB) if "-worker-" in name]
    written = (await story.job())["spec"]["tfReplicaSpecs"]["Worker"]["replicas"]
    if len(workers) != MOST_WORKERS or written != MOST_WORKERS:
        raise Failed(f"there are {sorted(workers)}, and the TFJob says {written}")
    await story.told("decisions", "--json", has="of it the sum")
    await story.lose(f"{JOB}-aimaster", 50)
    await story.by_hand("Worker", 1)
    await story.steps_more(50)
    another_operator()
    story.say("the operator is killed and started again")


async def result(api: Api, story: Story) -> dict[str, Any]:
    """What the AIMaster says of the run at its end."""

    async def kept() -> dict[str, Any]:
        """Shortly after the chief has ended: the AIMaster waits for the workers first."""
        state = await api.get(CONFIG_MAPS, NAMESPACE, f"{JOB}-aimaster-state")
        return dict(json.loads((state.get("data") or {}).get("summary.json", "{}")))

    summary = await story.until("its summary is kept", kept, 150.0)
    status = await story.status()
    return {"status": status, "seconds": round(time.monotonic() - story.began, 1), "summary": summary}


def in_step_checked(found: dict[str, Any]) -> dict[str, Any]:
    accuracy = found["summary"].get("metrics", {}).get("accuracy", 0.0)
    if accuracy < ACCURACY_AT_LEAST:
        raise Failed(f"accuracy {accuracy} is below {ACCURACY_AT_LEAST}: {found}")
    return found


def autoscaled_checked(found: dict[str, Any]) -> dict[str, Any]:
    summary = found["summary"]
    ledger, made = summary.get("data") or {}, [one for one in summary["scaling"] if one["outcome"] == "committed"]
    if ledger.get("trained") != AUTOSCALED_RECORDS or ledger.get("lost"):
        raise Failed(f"the data ledger does not balance: {ledger}")
    if not made or made[-1]["to"] != 1 or any(one["to"] > MOST_WORKERS or one["role"] != "worker" for one in made):
        raise Failed(f"its size was not what it was to be: {summary['scaling']}")
    return found


def checked(found: dict[str, Any]) -> dict[str, Any]:
    summary = found["summary"]
    auc, ledger = (summary.get("metrics") or {}).get("auc", 0.0), summary.get("data") or {}
    if auc < AUC_AT_LEAST:
        raise Failed(f"AUC {auc} is below {AUC_AT_LEAST}: {found}")
    parts = [ledger.get(name, 0) for name in ("trained", "lost", "left", "set_aside")]
    if not ledger or ledger["lost"] != 0 or sum(parts) != ledger["records"]:  # `left`: the job ends after its steps
        raise Failed(f"the data ledger does not balance: {ledger}")
    return found


def load_images(base: Path, run: str) -> None:
    made = images.make(base, SCRIPTS)
    say(f"two images of {made.stat().st_size >> 20:,} MB are made")
    cluster("load", str(made), run=run)
    made.unlink()
    say("the node has them")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=("ps", "allreduce"), default="ps")
    parser.add_argument(
        "--steps", type=int, help="default 12000; of --strategy allreduce, whose steps are longer, 2000"
    )
    parser.add_argument("--autoscale", action="store_true", help="of --strategy allreduce: by decisions")
    parser.add_argument(
        "--package", choices=("image", "inject"), default="image", help="inject: with two images, which are built first"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end")
    arguments = parser.parse_args()
    in_step = arguments.strategy == "allreduce"
    if arguments.autoscale and not in_step:
        parser.error("--autoscale: goes with --strategy allreduce")
    steps = arguments.steps or (2_000 if in_step else 12_000)
    cluster("build", "--node", timeout=3600)
    lines = cluster("up").splitlines()
    values = dict(word.split("=", 1) for line in lines for word in shlex.split(line) if "=" in word)
    run, kubeconfig = values["CLUSTER_RUN"], values["KUBECONFIG"]
    base = Path(run) / "e2e"
    base.mkdir()
    try:
        cluster("node-up", run=run)
        os.environ["KUBECONFIG"] = kubeconfig
        install_crd(kubeconfig)
        inject = arguments.package == "inject"
        if inject:
            load_images(base, run)
        played = play(kubeconfig, base, steps, in_step=in_step, autoscale=arguments.autoscale, inject=inject)
        print(json.dumps(asyncio.run(played), indent=1))
        return 0
    except Failed as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1
    finally:
        if arguments.keep:
            print(f"export KUBECONFIG={kubeconfig} CLUSTER_RUN={run}", file=sys.stderr)
        else:
            cluster("down", "--purge", run=run)


if __name__ == "__main__":
    sys.exit(main())
