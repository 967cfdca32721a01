"""The webhook's certificates: an authority and a serving certificate of our own, in a Secret that all operators share.

Whoever comes first makes it; whoever first sees that the serving certificate has less than a third of its time left makes a
new one. The authority lasts ten years; when it is made anew, the file of authorities keeps the old one, so that operators that
still serve with the old certificate are believed meanwhile.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deeprec_ext.security import authority as shared
from tfjob.api.client import Api, ConflictError, NotFoundError
from tfjob.model.kinds import SECRETS, Manifest

if TYPE_CHECKING:
    from cryptography import x509

SECRET = "deeprec-ext-webhook"
SERVICE = "deeprec-ext-webhook"
AUTHORITIES, AUTHORITY_KEY, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"

SERVING_DAYS = 365
LEFT_SHARE = 1 / 3
TRIES = 5

Files = Mapping[str, bytes]


async def ensure(api: Api, namespace: str, hosts: list[str], now: datetime.datetime) -> Files:
    """What is to be served with: as it is in the Secret, made or renewed where that is due. Raises ApiError.

    Args:
        hosts: names and addresses by which the webhook is called.
    """
    for _ in range(TRIES):
        try:
            found = await api.get(SECRETS, namespace, SECRET)
        except NotFoundError:
            found = None
        files = _files(found) if found is not None else {}
        if not due(files, hosts, now):
            return files
        made = issue(files, hosts, now)
        data = {name: base64.b64encode(content).decode("ascii") for name, content in sorted(made.items())}
        try:
            if found is None:
                metadata = {"name": SECRET, "labels": {"app.kubernetes.io/name": "deeprec-ext"}}
                body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
                await api.create(SECRETS, namespace, body)
            else:
                await api.replace(SECRETS, namespace, {**found, "data": data})
            return made
        except ConflictError:  # another operator was faster: its certificate is as good
            continue
    raise ConflictError(409, "Conflict", f"Secret {namespace}/{SECRET} changes all the time")


def _files(secret: Manifest) -> dict[str, bytes]:
    return {name: base64.b64decode(text) for name, text in (secret.get("data") or {}).items()}


def due(files: Files, hosts: list[str], now: datetime.datetime) -> bool:
    """Whether a new certificate has to be made; also of files that somebody has damaged."""
    from cryptography import x509

    if not {AUTHORITIES, AUTHORITY_KEY, CERTIFICATE, KEY} <= set(files):
        return True
    try:
        certificate = x509.load_pem_x509_certificate(files[CERTIFICATE])
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return True
    known = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    return not set(hosts) <= known or _aging(certificate, now)


def _aging(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - now < (end - begin) * LEFT_SHARE


def issue(files: Files, hosts: list[str], now: datetime.datetime) -> dict[str, bytes]:
    """A new serving certificate, by the authority that there is, or by a new one where that is about to end."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        authorities = x509.load_pem_x509_certificates(files[AUTHORITIES])
        key = serialization.load_pem_private_key(files[AUTHORITY_KEY], None)
    except (KeyError, ValueError):
        authorities, key = [], None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not authorities or _aging(authorities[0], now):
        authority, key = shared.new_authority(SERVICE)
        authorities = [authority, *authorities[:1]]
    own = ec.generate_private_key(ec.SECP256R1())
    certificate = shared.sign(
        authorities[0], key, own.public_key(), shared.names("serving", SERVICE), SERVING_DAYS,
        [_alternative(host) for host in hosts], [ExtendedKeyUsageOID.SERVER_AUTH],
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    return {
        AUTHORITIES: b"".join(one.public_bytes(pem) for one in authorities), AUTHORITY_KEY: shared.key_bytes(key),
        CERTIFICATE: certificate.public_bytes(pem), KEY: shared.key_bytes(own),
    }  # fmt: skip


def _alternative(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
