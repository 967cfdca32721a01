"""Which image the operator itself runs: AIMasters and init containers have the same unless something else is said.

So an installation names the image once, wherever kustomize or Helm puts it.
"""

from __future__ import annotations

from deeprec_ext.errors import UsageError
from tfjob.api.client import Api, ApiError
from tfjob.model.kinds import PODS

CONTAINER = "operator"


async def own_image(api: Api, namespace: str, pod: str) -> str:
    """Image of the container `operator` of this pod (its name is the host's). Raises UsageError outside a cluster."""
    try:
        found = await api.get(PODS, namespace, pod)
    except ApiError as error:
        raise UsageError(f"the image of the AIMaster is not known: give --package-image ({error})") from error
    for container in found["spec"]["containers"]:
        if container["name"] == CONTAINER:
            return str(container["image"])
    raise UsageError(f"pod {pod} has no container {CONTAINER}: give --package-image, the image of the AIMaster")
