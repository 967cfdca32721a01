"""The webhook's certificates: an authority and a serving certificate of our own, in a Secret that all operators share.

How long they last is said in `deeprec_ext.security.lifetimes`. When the authority is made anew, the file of authorities keeps
the old one, so that operators that still serve with the old certificate are believed meanwhile.
"""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING

from deeprec_ext.security import authority as shared
from tfjob.api.client import Api
from tfjob.operator.certificates import shared_secrets
from tfjob.operator.certificates.shared_secrets import Files, aging

if TYPE_CHECKING:
    from cryptography import x509

SECRET = "deeprec-ext-webhook"
SERVICE = "deeprec-ext-webhook"
AUTHORITIES, AUTHORITY_KEY, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


async def ensure(api: Api, namespace: str, hosts: list[str], now: datetime.datetime) -> Files:
    """What is to be served with: as it is in the Secret, made or renewed where that is due. Raises ApiError.

    Args:
        hosts: names and addresses by which the webhook is called.
    """
    return await shared_secrets.ensure(
        api, namespace, SECRET, lambda files: due(files, hosts, now), lambda files: issue(files, hosts, now)
    )


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
    return not set(hosts) <= known or aging(certificate, now)


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
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not authorities or aging(authorities[0], now):
        authority, key = shared.new_authority(SERVICE)
        authorities = [authority, *authorities[:1]]
    own = ec.generate_private_key(ec.SECP256R1())
    certificate = shared.sign(
        authorities[0], key, own.public_key(), shared.names("serving", SERVICE),
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
