"""The certificates of a job on Kubernetes: made by the operator, kept in one Secret, and mounted in parts.

The Secret `<job>-aimaster-certs` has the files of `deeprec_ext.security.authority`, the authority's own key among them (for
renewal) and the token of the web page. A pod mounts the files of its role and no other. Kubernetes refreshes mounted files
(no `subPath`, which it would not), all of a Secret at once, and both sides read them again.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping

from deeprec_ext.history import identities
from deeprec_ext.security.authority import create_certificates
from deeprec_ext.security.credentials import ROLES
from deeprec_ext.security.renewing import is_due, next_due, renewed
from deeprec_ext.security.tokens import NAME as TOKEN
from deeprec_ext.security.tokens import make_token, new_token
from tfjob.model.kinds import Manifest

DIRECTORY = "/etc/deeprec-ext/certs"
VOLUME = "deeprec-ext-certs"

HISTORY_DIRECTORY = "/etc/deeprec-ext/history"
HISTORY_VOLUME = "deeprec-ext-history"
HISTORY = {
    "history-ca.pem": "ca.pem",
    "history-aimaster.pem": "aimaster.pem",
    "history-aimaster-key.pem": "aimaster-key.pem",
}
"""Key of the Secret → file. The history service has an authority of its own."""


def secret_name(job: str) -> str:
    return f"{job}-aimaster-certs"


def role_files(role: str) -> tuple[str, ...]:
    """What a process needs that acts with the certificate `role`.

    The AIMaster serves the web page as well, and users' commands are run in its pod (`tfjob.api.exec`), as its administrator.
    """
    files = ("ca.pem", f"{role}.pem", f"{role}-key.pem")
    return (*files, "admin.pem", "admin-key.pem", TOKEN) if role == "aimaster" else files


def issue(namespace: str, job: str) -> dict[str, bytes]:
    """New ones, with a new authority: file name → content."""
    with tempfile.TemporaryDirectory(prefix="deeprec-ext-certs-") as directory:
        path = create_certificates(directory, f"{namespace}.{job}")
        make_token(path)
        return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def issue_history(authority: Mapping[str, bytes], namespace: str, now: float | None = None) -> dict[str, bytes]:
    """What an AIMaster of the namespace needs to ask the history service: key of the Secret → content. Raises ValueError."""
    files = identities.writer(authority, namespace, now)
    return {key: files[name] for key, name in HISTORY.items()}


def has_history(files: Mapping[str, bytes]) -> bool:
    return set(HISTORY) <= set(files)


def renewed_files(files: Mapping[str, bytes], namespace: str, job: str, now: float) -> dict[str, bytes]:
    """What has to be written of a Secret's own files: what is due, and what an earlier operator has not made. Raises ValueError
    where the authority is damaged."""
    changed = renewed(files, f"{namespace}.{job}", ROLES, now)
    return changed if TOKEN in files else {**changed, TOKEN: f"{new_token()}\n".encode()}


def renewed_history(
    files: Mapping[str, bytes], authority: Mapping[str, bytes], namespace: str, now: float
) -> dict[str, bytes]:
    """The same of what the history service knows the AIMaster by, also when its authority has a successor. Raises
    ValueError."""
    ca, certificate, key = (files[name] for name in HISTORY)
    good = ca == authority["ca.pem"] and not is_due(certificate, key, now)
    return {} if good else issue_history(authority, namespace, now)


def next_look(files: Mapping[str, bytes]) -> float:
    """Unix seconds from when on something in a Secret is due. Raises ValueError for what is damaged."""
    names = [*ROLES, *(["history-aimaster"] if has_history(files) else [])]
    return next_due(files, names)


def history_volume(job: str) -> Manifest:
    """Optional: without these files a job starts as well, and says so."""
    items = [{"key": key, "path": name} for key, name in HISTORY.items()]
    secret = {"secretName": secret_name(job), "defaultMode": 0o440, "optional": True, "items": items}
    return {"name": HISTORY_VOLUME, "secret": secret}


def history_mount() -> Manifest:
    return {"name": HISTORY_VOLUME, "mountPath": HISTORY_DIRECTORY, "readOnly": True}


def lacking(data: Mapping[str, str]) -> list[str]:
    """Files that pods of this version mount, and a Secret that an earlier operator has made does not have."""
    wanted = {name for role in ROLES for name in role_files(role)}
    return sorted(wanted - set(data))


def secret_data(files: Mapping[str, bytes]) -> dict[str, str]:
    """As a Secret holds it."""
    return {name: base64.b64encode(content).decode("ascii") for name, content in sorted(files.items())}


def volume(job: str, role: str, *, group_readable: bool) -> Manifest:
    """The files of one certificate role.

    Args:
        group_readable: the pod has an fsGroup, so its group is enough. Without one the files belong to root, and who runs
            in the container is unknown (the image says so): then everybody in it may read them, and nobody outside can.
    """
    items = [{"key": name, "path": name} for name in role_files(role)]
    mode = 0o440 if group_readable else 0o444
    return {"name": VOLUME, "secret": {"secretName": secret_name(job), "defaultMode": mode, "items": items}}


def mount() -> Manifest:
    return {"name": VOLUME, "mountPath": DIRECTORY, "readOnly": True}
