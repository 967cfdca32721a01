"""Pod templates with one mistake each: `submit --dry-run` tells it, and a server with our CRD refuses it (or drops the key)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfjob.model.kinds import Manifest

Change = Callable[[Any, Any, Any], Any]
"""Of the container `tensorflow`, the pod's spec and the template."""


@dataclass(frozen=True)
class Wrong:
    """`says`: what is told, path and text. `dropped`: the server does not refuse it, the key is gone without a word."""

    name: str
    change: Change
    says: str
    dropped: bool = False


def container(**values: Any) -> Change:
    return lambda container, spec, template: container.update(copy.deepcopy(values))


def pod(**values: Any) -> Change:
    return lambda container, spec, template: spec.update(copy.deepcopy(values))


def metadata(value: Any) -> Change:
    return lambda container, spec, template: template.update(metadata=copy.deepcopy(value))


def mount(**values: Any) -> Change:
    return container(volumeMounts=[{"name": "data", "mountPath": "/data", **values}])


def volume(**values: Any) -> Change:
    return pod(volumes=[{"name": "data", **values}])


def _renamed(container: Any, spec: Any, template: Any) -> None:
    spec["contianers"] = spec.pop("containers")


def _without_spec(container: Any, spec: Any, template: Any) -> None:
    template["sepc"] = template.pop("spec")


C = "containers[0]"
AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"

ISSUE = (
    Wrong("command is a text", container(command="python a.py"), f"{C}.command: is 'python a.py'; must be a list"),
    Wrong("env without a name", container(env=[{"value": "1"}]), f"{C}.env[0].name: is required"),
    Wrong("env with a number and no name", container(env=[{"value": 1}]), f"{C}.env[0].name: is required"),
    Wrong(
        "cpu many", container(resources={"requests": {"cpu": "many"}}), "requests[cpu]: is 'many', which is no quantity"
    ),
    Wrong("contianers", _renamed, "spec.containers: is required"),
    Wrong("ports is an object", container(ports={"containerPort": 2222}), f"{C}.ports: is {{"),
)
"""As those of which the job stayed blank."""

TYPES = (
    Wrong("args is a text", container(args="--steps 10"), f"{C}.args: is '--steps 10'; must be a list"),
    Wrong("args with a number", container(args=["--steps", 10]), f'{C}.args[1]: is 10; must be a text: write "10"'),
    Wrong("args with a flag", container(args=["--fast", True]), f'{C}.args[1]: is True; must be a text: write "true"'),
    Wrong("command with an object", container(command=[{"run": "x"}]), f"{C}.command[0]: is {{"),
    Wrong("env is an object", container(env={"A": "1"}), f"{C}.env: is {{"),
    Wrong("env value is a number", container(env=[{"name": "A", "value": 1}]), f"{C}.env[0].value: is 1; must be a text"),
    Wrong("env value is a flag", container(env=[{"name": "A", "value": False}]), f"{C}.env[0].value: is False; must be"),
    Wrong("env twice", container(env=[{"name": "A"}, {"name": "B"}, {"name": "A"}]), "env[2]: name A is there twice"),
    Wrong("env with an empty name", container(env=[{"name": "", "value": "1"}]), f"{C}.env[0].name: is empty"),
    Wrong("envFrom is an object", container(envFrom={"secretRef": {"name": "a"}}), f"{C}.envFrom: is {{"),
    Wrong("secretKeyRef without a key", container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
          "valueFrom.secretKeyRef.key: is required"),
    Wrong("image is a number", container(image=1.5), f"{C}.image: is 1.5; must be a text"),
    Wrong("image is a list", container(image=["a"]), f"{C}.image: is ['a']; must be a text"),
    Wrong("imagePullPolicy", container(imagePullPolicy="Sometimes"), "imagePullPolicy: is 'Sometimes'; write Always, IfNot"),
    Wrong("a name with a capital", container(name="Tensorflow"), f"{C}.name: is 'Tensorflow'; write lower case"),
    Wrong("a port as text", container(ports=[{"containerPort": "2222"}]), "containerPort: is '2222'; must be a whole number"),
    Wrong("a port above 65535", container(ports=[{"containerPort": 70000}]),
          "containerPort: is 70000; must be a number from 1"),
    Wrong("a port without a number", container(ports=[{"name": "http"}]), "ports[0].containerPort: is required"),
    Wrong("a port of no protocol", container(ports=[{"containerPort": 80, "protocol": "HTTP"}]),
          "protocol: is 'HTTP'; write TCP"),
    Wrong("a port twice", container(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]),
          "ports[1]: containerPort 80, protocol TCP is there twice"),
    Wrong("resources is a list", container(resources=[{"cpu": 1}]), f"{C}.resources: is ["),
    Wrong("limits is a text", container(resources={"limits": "4Gi"}), f"{C}.resources.limits: is '4Gi'; must be an object"),
    Wrong("memory in GB", container(resources={"limits": {"memory": "4 GB"}}),
          "limits[memory]: is '4 GB', which is no quantity"),
    Wrong("memory 4gb", container(resources={"limits": {"memory": "4gb"}}), "limits[memory]: is '4gb', which is no quantity"),
    Wrong("cpu is a fraction", container(resources={"requests": {"cpu": 0.5}}),
          'requests[cpu]: is 0.5, which the server does '),
    Wrong("cpu is empty", container(resources={"requests": {"cpu": ""}}), "requests[cpu]: is '', which is no quantity"),
    Wrong("cpu is a list", container(resources={"requests": {"cpu": [1]}}), "requests[cpu]: is [1]; write for example"),
    Wrong("workingDir is a number", container(workingDir=1), f"{C}.workingDir: is 1; must be a text"),
    Wrong("tty as text", container(tty="yes"), f"{C}.tty: is 'yes'; must be true or false"),
    Wrong("runAsUser as text", container(securityContext={"runAsUser": "1000"}), "securityContext.runAsUser: is '1000'; must"),
    Wrong("capabilities is a list", container(securityContext={"capabilities": ["ALL"]}),
          "capabilities: is ['ALL']; must be an"),
    Wrong("volumeMounts is an object", container(volumeMounts={"name": "a", "mountPath": "/a"}), f"{C}.volumeMounts: is {{"),
    Wrong("a mount without a path", container(volumeMounts=[{"name": "data"}]), "volumeMounts[0].mountPath: is required"),
    Wrong("a mount without a name", container(volumeMounts=[{"mountPath": "/a"}]), "volumeMounts[0].name: is required"),
    Wrong("readOnly as text", mount(readOnly="true"), "volumeMounts[0].readOnly: is 'true'; must be true or false"),
    Wrong("a path mounted twice", container(volumeMounts=[{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a"}]),
          "volumeMounts[1]: mountPath /a is there twice"),
    Wrong("a probe without numbers", container(livenessProbe={"tcpSocket": {"port": 1}, "periodSeconds": "10s"}),
          "livenessProbe.periodSeconds: is '10s'; must be a whole number"),
    Wrong("an exec probe with a text", container(readinessProbe={"exec": {"command": "true"}}),
          "exec.command: is 'true'; must"),
    Wrong("a hook as text", container(lifecycle={"preStop": "sleep 5"}), "lifecycle.preStop: is 'sleep 5'; must be an object"),
    Wrong("volumes is an object", pod(volumes={"data": {"emptyDir": {}}}), "spec.volumes: is {"),
    Wrong("a volume without a name", pod(volumes=[{"emptyDir": {}}]), "volumes[0].name: is required"),
    Wrong("a volume with a bad name", pod(volumes=[{"name": "my_data", "emptyDir": {}}]), "volumes[0].name: is 'my_data'"),
    Wrong("a volume twice", pod(volumes=[{"name": "a"}, {"name": "a"}]), "volumes[1]: name a is there twice"),
    Wrong("hostPath as text", volume(hostPath="/data"), "volumes[0].hostPath: is '/data'; must be an object"),
    Wrong("hostPath without a path", volume(hostPath={"type": "Directory"}), "hostPath.path: is required"),
    Wrong("a claim without a name", volume(persistentVolumeClaim={}), "persistentVolumeClaim.claimName: is required"),
    Wrong("sizeLimit", volume(emptyDir={"sizeLimit": "big"}), "emptyDir.sizeLimit: is 'big', which is no quantity"),
    Wrong("defaultMode as text", volume(secret={"secretName": "s", "defaultMode": "0644"}),
          "defaultMode: is '0644'; must be a"),
    Wrong("an item without a path", volume(configMap={"name": "c", "items": [{"key": "k"}]}), "items[0].path: is required"),
    Wrong("nodeSelector is a list", pod(nodeSelector=[{"a": "b"}]), "spec.nodeSelector: is ["),
    Wrong("nodeSelector with a flag", pod(nodeSelector={"gpu": True}),
          'nodeSelector[gpu]: is True; must be a text: write "true"'),
    Wrong("tolerations is an object", pod(tolerations={"key": "a"}), "spec.tolerations: is {"),
    Wrong("a toleration's operator", pod(tolerations=[{"key": "a", "operator": "Is"}]),
          "operator: is 'Is'; write Equal, Exists"),
    Wrong("a toleration's effect", pod(tolerations=[{"key": "a", "effect": "Never"}]), "effect: is 'Never'; write NoSchedule"),
    Wrong("affinity is a list", pod(affinity=[]), "spec.affinity: is []; must be an object"),
    Wrong("podAntiAffinity without topologyKey", pod(affinity={"podAntiAffinity": {AFFINITY: [{"labelSelector": {}}]}}),
          "topologyKey: is required"),
    Wrong("imagePullSecrets with texts", pod(imagePullSecrets=["secret"]),
          "imagePullSecrets[0]: is 'secret'; must be an object"),
    Wrong("imagePullSecrets is a text", pod(imagePullSecrets="secret"), "imagePullSecrets: is 'secret'; must be a list"),
    Wrong("serviceAccountName is an object", pod(serviceAccountName={"name": "a"}), "serviceAccountName: is {"),
    Wrong("hostNetwork as text", pod(hostNetwork="false"), "hostNetwork: is 'false'; must be true or false"),
    Wrong("grace period as text", pod(terminationGracePeriodSeconds="30s"),
          "terminationGracePeriodSeconds: is '30s'; must be"),
    Wrong("grace period of more than 64 bits", pod(terminationGracePeriodSeconds=1 << 70), "must fit into 64 bits"),
    Wrong("restartPolicy", pod(restartPolicy="ExitCode"), "spec.restartPolicy: is 'ExitCode'; write Always, OnFailure, Never"),
    Wrong("dnsPolicy", pod(dnsPolicy="Cluster"), "spec.dnsPolicy: is 'Cluster'; write ClusterFirst"),
    Wrong("initContainers is an object", pod(initContainers={"name": "a"}), "spec.initContainers: is {"),
    Wrong("an init container without a name", pod(initContainers=[{"image": "a"}]), "initContainers[0].name: is required"),
    Wrong("hostAliases without an address", pod(hostAliases=[{"hostnames": ["a"]}]), "hostAliases[0].ip: is required"),

            Wrong("spread without maxSkew",
          pod(topologySpreadConstraints=[{"topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]),
          "topologySpreadConstraints[0].maxSkew: is required"),
    Wrong("containers is an object", pod(containers={"name": "tensorflow", "image": "a"}), "spec.containers: is {"),
    Wrong("a container is a text", pod(containers=["tensorflow"]), "containers[0]: is 'tensorflow'; must be an object"),
    Wrong("a container of no name", pod(containers=[{"image": "a"}]), "containers[0].name: is required"),
    Wrong("a container twice", pod(containers=[{"name": "tensorflow", "image": "a"}] * 2), "name tensorflow is there twice"),
    Wrong("sepc", _without_spec, "template.spec: is required"),
    Wrong("labels is a list", metadata({"labels": ["a=b"]}), "metadata.labels: is ["),
    Wrong("a label is a number", metadata({"labels": {"a": 1}}), 'metadata.labels[a]: is 1; must be a text: write "1"'),
    Wrong("an annotation is a flag", metadata({"annotations": {"a": True}}),
          "metadata.annotations[a]: is True; must be a text"),
    Wrong("finalizers is a text", metadata({"finalizers": "a/b"}), "metadata.finalizers: is 'a/b'; must be a list"),
)  # fmt: skip
"""The server refuses each of them."""

CLIENT_ONLY = (
    Wrong(
        "priority of more than 32 bits", pod(priority=1 << 40), "spec.priority: is 1099511627776; must fit into 32 bits"
    ),
)
"""The server would have to look at what is a number's format."""

KEYS = (
    Wrong(
        "imagePulPolicy", container(imagePulPolicy="Always"), "there is no such field; is imagePullPolicy meant?", True
    ),
    Wrong("enviroment", container(enviroment=[]), f"{C}.enviroment: there is no such field", True),
    Wrong("resource", container(resource={}), "there is no such field; is resources meant?", True),
    Wrong("comand", container(comand=["a"]), "there is no such field; is command meant?", True),
    Wrong("request", container(resources={"request": {"cpu": 1}}), "there is no such field; is requests meant?", True),
    Wrong("volumeMount", container(volumeMount=[]), "there is no such field; is volumeMounts meant?", True),
    Wrong("nodeselector", pod(nodeselector={}), "there is no such field; is nodeSelector meant?", True),
    Wrong("toleration", pod(toleration=[]), "there is no such field; is tolerations meant?", True),
    Wrong("lables", metadata({"lables": {"a": "b"}}), "there is no such field; is labels meant?", True),
)
"""Keys that are misspelt beside all that is required: no server knows what was meant."""


def changed(job: Manifest, wrong: Wrong) -> Manifest:
    """The job with this mistake in the template of its workers."""
    made = copy.deepcopy(job)
    template = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    spec = template["spec"]
    wrong.change(spec["containers"][0], spec, template)
    return made
