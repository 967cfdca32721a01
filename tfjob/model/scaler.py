"""The note that a ScaleOut or ScaleIn of the ET operator leaves on the TFJob whose size it has changed."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tfjob.model import names
from tfjob.model.kinds import Manifest

NAMED_MAX = 1000


@dataclass(frozen=True)
class Asked:
    """What one of them has asked for. Numbers of workers are as the TFJob counts them."""

    uid: str = ""
    before: int = 0
    after: int = 0
    leaving: tuple[str, ...] = ()
    """Workers that it has named, as the AIMaster calls them (`worker-1`): they leave before others."""

    by: str = ""
    """`ScaleIn:ns/name`, for people."""

    failed: bool = False
    """A ScaleOut that is over: its size is wanted no more."""

    @property
    def text(self) -> str:
        """As the annotation has it."""
        named = {"leaving": list(self.leaving)} if self.leaving else {}
        failed = {"failed": True} if self.failed else {}
        return json.dumps({"by": self.by, "uid": self.uid, "from": self.before, "to": self.after, **named, **failed})


def asked(manifest: Manifest) -> Asked:
    """Of a TFJob; an empty one where there is none, or what somebody has written is none."""
    text = (manifest["metadata"].get("annotations") or {}).get(names.SCALER_ANNOTATION) or "{}"
    try:
        value = json.loads(text)
        return Asked(
            str(value.get("uid", "")), int(value.get("from", 0)), int(value.get("to", 0)),
            tuple(str(name) for name in value.get("leaving", ())[:NAMED_MAX]), str(value.get("by", "")),
            value.get("failed") is True,
        )  # fmt: skip
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return Asked()
