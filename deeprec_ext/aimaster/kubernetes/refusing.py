"""A pod or service of an elastic job that the server refuses: a Warning of the TFJob, as the operator tells it of others."""

from __future__ import annotations

import datetime
import logging

from deeprec_ext.errors import DeepRecError
from tfjob.api.client import Api, ApiError
from tfjob.model.kinds import EVENTS, Manifest

log = logging.getLogger(__name__)
MESSAGE_MAX = 1024
TOLD_MAX = 1000


class Refusals:
    """What has been told once is not told again."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._told: set[str] = set()

    async def tell(self, body: Manifest, error: ApiError) -> None:
        """`body`: what was refused. Raises nothing: who made it hears the error itself."""
        message = f"Error creating: {body['metadata']['name']}: {error}"[:MESSAGE_MAX]
        owner = next(iter(body["metadata"].get("ownerReferences") or []), None)
        if owner is None or message in self._told or len(self._told) >= TOLD_MAX:
            return
        self._told.add(message)
        when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = body["metadata"]["name"]
        about = {key: owner[key] for key in ("apiVersion", "kind", "name", "uid") if key in owner}
        event = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": f"{owner.get('name', name)}."},
            "involvedObject": {**about, "namespace": self._namespace}, "type": "Warning",
            "reason": f"FailedCreate{body['kind']}", "message": message, "source": {"component": "deeprec-aimaster"},
            "firstTimestamp": when, "lastTimestamp": when, "count": 1,
        }  # fmt: skip
        try:
            await self._api.create(EVENTS, self._namespace, event)
        except DeepRecError as failed:
            log.warning("that %s was refused was not told: %s", body["metadata"]["name"], failed)
