"""What the pod security standard "restricted" asks of the pods and containers that we make ourselves."""

from __future__ import annotations

from typing import Any

from tfjob.model.kinds import Manifest

USER = 65532
"""Nobody's: our images are made for it, and any other works, too."""


def pod_context() -> Manifest:
    """With a group for mounted files (Secrets, claims), which else belong to root."""
    return {
        "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip


def container_context(**more: Any) -> Manifest:
    """Also where the pod itself says nothing; the root file system is read-only."""
    return {
        "runAsNonRoot": True, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}, **more,
    }  # fmt: skip
