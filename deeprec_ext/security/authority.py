"""The certificate authority of one job: made by the launcher (or the operator), kept in the job's `certs` directory.

One certificate for each process that the launcher starts (`issue`): it speaks for that process alone. Beside them one for each
*role*, which is what the pods of a cluster share: their certificates are made before anybody knows how many there will be.
`cryptography` is imported on first use: processes that only use certificates need not have it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deeprec_ext import wholefiles
from deeprec_ext.security.credentials import ROLES, SERVERS, server_name

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_DAYS = 3650
ROLE_DAYS = 365
"""Longer than jobs run; jobs that run longer call `renew`."""

_BACKDATE = datetime.timedelta(days=7)  # clocks of hosts differ, and are set back by days when somebody notices


def key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """As a PEM file has it, not encrypted."""
    from cryptography.hazmat.primitives import serialization as s

    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())


def names(common_name: str, job: str) -> x509.Name:
    """Of a subject."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, job[:64] or "job"),
        x509.NameAttribute(NameOID.COMMON_NAME, common_name),
    ])  # fmt: skip


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def new_authority(job: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate that may sign others, and its key. `job`: or whatever else it is the authority of."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = names("authority", job)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _builder(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def sign(
    authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey,
    subject: x509.Name, days: float, alternatives: Sequence[x509.GeneralName], usages: Sequence[x509.ObjectIdentifier],
) -> x509.Certificate:  # fmt: skip
    """A certificate of `key` that signs no others."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    return (
        _builder(subject, authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )  # fmt: skip


def create_certificates(directory: str | Path, job: str) -> Path:
    """Makes the authority and the certificates of the roles of `job` in `directory` (mode 0700); returns the directory.

    Files: `ca.pem`, `ca-key.pem`, and `<role>.pem`, `<role>-key.pem` for each role of `credentials.ROLES`. Keys have
    mode 0600. An authority that is there already is kept (a resumed run): then only the role certificates are made anew.
    """
    path = Path(directory)
    create_authority(path, job)
    renew(path, job)
    return path


def create_authority(path: Path, job: str) -> None:
    """In a directory (made, mode 0700) that has none yet. Raises OSError."""
    from cryptography.hazmat.primitives import serialization

    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    if not (path / "ca.pem").exists() or not (path / "ca-key.pem").exists():
        certificate, key = new_authority(job)
        wholefiles.write(path / "ca-key.pem", key_bytes(key), 0o600)
        wholefiles.write(path / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def renew(directory: str | Path, job: str, roles: Sequence[str] = ROLES, days: float = ROLE_DAYS) -> None:
    """Issues new certificates for `roles`, or single processes, from the authority in `directory`; who runs picks them up.

    Both files are whole on the disk before one of them is renamed: a disk that has no room for the second leaves the pair as it
    was. A handshake that falls between the two renames fails and is tried again. Raises OSError; ValueError where the authority
    is damaged.
    """
    path = Path(directory)
    authority, authority_key = (path / "ca.pem").read_bytes(), (path / "ca-key.pem").read_bytes()
    for role in roles:
        certificate, key = issued(authority, authority_key, job, role, days)
        wholefiles.write_together((path / f"{role}-key.pem", key, 0o600), (path / f"{role}.pem", certificate, 0o644))


def issued(authority: bytes, authority_key: bytes, job: str, role: str, days: float = ROLE_DAYS) -> tuple[bytes, bytes]:
    """A certificate of this authority and its key, as PEM files have them. Raises ValueError where the authority is damaged."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    loaded = serialization.load_pem_private_key(authority_key, None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)  # `create_authority` makes no other
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives: list[x509.GeneralName] = [x509.DNSName(server_name(role, job))]
    if role in SERVERS:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate = sign(
        x509.load_pem_x509_certificate(authority),
        loaded,
        key.public_key(),
        names(role, job),
        days,
        alternatives,
        usages,
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key_bytes(key)


def issue(directory: str | Path, job: str, name: str) -> None:
    """A certificate for the process `name`, e.g. `worker-1`; a new one at each of its starts. Raises OSError.

    One that is there already stays good where the new one cannot be written, or the authority's files are damaged.
    """
    try:
        renew(directory, job, (name,))
    except (OSError, ValueError) as error:
        if (Path(directory) / f"{name}.pem").exists():
            return
        if isinstance(error, OSError):
            raise
        line = f"no certificate of {name} can be made, the job's authority in {directory} is damaged: {error}"
        raise OSError(line) from error
