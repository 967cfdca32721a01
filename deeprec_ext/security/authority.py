"""The certificate authority of one job: made by the launcher (or the operator), kept in the job's `certs` directory.

One certificate for each process that the launcher starts (`issue`): it speaks for that process alone. Beside them one for each
*role*, which is what the pods of a cluster share: their certificates are made before anybody knows how many there will be.
`ca.pem` has the authorities that are believed, the newest first, and `ca-key.pem` their keys: there are two while one is
followed by another (`lifetimes` says when). `cryptography` is imported on first use: processes that only use certificates need
not have it.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deeprec_ext import wholefiles
from deeprec_ext.security import lifetimes
from deeprec_ext.security.credentials import ROLES, SERVERS, server_name

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA, CA_KEY = "ca.pem", "ca-key.pem"
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----\s*", re.DOTALL)


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


def _utc(when: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(when, datetime.timezone.utc)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: float, ends: float
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_utc(begins - lifetimes.BACKDATE_SECONDS))
        .not_valid_after(_utc(ends))
    )


def new_authority(job: str, now: float | None = None) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate that may sign others, and its key.

    Args:
        job: or whatever else it is the authority of.
        now: Unix seconds; None: by the clock.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name, begins = names("authority", job), time.time() if now is None else now
    ends = begins + lifetimes.AUTHORITY_DAYS * lifetimes.DAY_SECONDS
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _builder(name, name, key.public_key(), begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def sign(
    authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey,
    subject: x509.Name, alternatives: Sequence[x509.GeneralName], usages: Sequence[x509.ObjectIdentifier],
    now: float | None = None,
) -> x509.Certificate:  # fmt: skip
    """A certificate of `key` that signs no others."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    begins = time.time() if now is None else now
    ends = begins + lifetimes.CERTIFICATE_DAYS * lifetimes.DAY_SECONDS
    return (
        _builder(subject, authority.subject, key, begins, min(ends, authority.not_valid_after_utc.timestamp()))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )  # fmt: skip


@dataclass(frozen=True)
class Signer:
    """An authority; without a key it is believed, and signs nothing any more."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None

    @property
    def life(self) -> lifetimes.Life:
        return lifetimes.Life.of(self.certificate)


def authorities(certificates: bytes, keys: bytes) -> list[Signer]:
    """Of the two files, the newest first. Raises ValueError where they are damaged, or have what we cannot read."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        loaded = [serialization.load_pem_private_key(found[0], None) for found in _KEY.finditer(keys)]
        usable = [key for key in loaded if isinstance(key, ec.EllipticCurvePrivateKey)]
        return [
            Signer(one, next((key for key in usable if key.public_key() == one.public_key()), None))
            for one in x509.load_pem_x509_certificates(certificates)
        ]
    except (TypeError, UnsupportedAlgorithm) as error:  # a key that is encrypted, or of a kind that is not known here
        raise ValueError(f"the authority cannot be read: {error}") from error


def signer(found: Sequence[Signer], now: float) -> Signer:
    """Who signs now: the newest that everybody has had the time to read. Raises ValueError: there is none."""
    able = [one for one in found if one.key is not None and one.life.ends > now]
    if not able:
        raise ValueError("no authority is left that could sign: its key is not there, or it has expired")
    return next((one for one in able if one.life.ripe <= now), able[-1])


def continued(certificates: bytes, keys: bytes, job: str, now: float) -> tuple[bytes, bytes] | None:
    """Both files of the authority with a successor, where one is due, and without those that have ended; None: they are good.

    Raises ValueError where they are damaged: who knows the authority would not know another.
    """
    from cryptography.hazmat.primitives import serialization

    found = authorities(certificates, keys)
    living = [one for one in found if one.life.ends > now]
    if not any(one.key is not None and one.life.due > now for one in living):
        living = [Signer(*new_authority(job, now)), *living]
    if living == found:
        return None
    pem = serialization.Encoding.PEM
    known = [one.key for one in living if one.key is not None]
    return b"".join(one.certificate.public_bytes(pem) for one in living), b"".join(map(key_bytes, known))


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
    """In a directory (made, mode 0700) that has none yet, or one that needs a successor. Raises OSError, ValueError."""
    from cryptography.hazmat.primitives import serialization

    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    if not (path / CA).exists() or not (path / CA_KEY).exists():
        certificate, key = new_authority(job)
        wholefiles.write(path / CA_KEY, key_bytes(key), 0o600)
        wholefiles.write(path / CA, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    else:
        renew_authority(path, job, time.time())


def renew_authority(path: Path, job: str, now: float) -> None:
    """Gives it a successor, where one is due. Raises OSError; ValueError where it is damaged."""
    both = continued((path / CA).read_bytes(), (path / CA_KEY).read_bytes(), job, now)
    if both is not None:
        wholefiles.write_together((path / CA_KEY, both[1], 0o600), (path / CA, both[0], 0o644))


def renew(directory: str | Path, job: str, roles: Sequence[str] = ROLES) -> None:
    """Issues new certificates with new keys for `roles`, or single processes, from the authority in `directory`; who runs picks
    them up.

    Both files are whole on the disk before one of them is renamed: a disk that has no room for the second leaves the pair as it
    was. A handshake that falls between the two renames fails and is tried again. Raises OSError; ValueError where the authority
    is damaged.
    """
    path = Path(directory)
    authority, authority_key = (path / CA).read_bytes(), (path / CA_KEY).read_bytes()
    for role in roles:
        certificate, key = issued(authority, authority_key, job, role)
        wholefiles.write_together((path / f"{role}-key.pem", key, 0o600), (path / f"{role}.pem", certificate, 0o644))


def issued(
    authority: bytes, authority_key: bytes, job: str, role: str, *, key: bytes = b"", now: float | None = None
) -> tuple[bytes, bytes]:
    """A certificate and its key, as PEM files have them.

    Args:
        authority, authority_key: what `ca.pem` and `ca-key.pem` have.
        key: the certificate is one of this key; empty, or no key of ours: of a new one.
        now: Unix seconds; None: by the clock.

    Raises:
        ValueError: the authority is damaged, or has ended.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    now = time.time() if now is None else now
    chosen = signer(authorities(authority, authority_key), now)
    assert chosen.key is not None
    own = _private_key(key) or ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    alternatives: list[x509.GeneralName] = [x509.DNSName(server_name(role, job))]
    if role in SERVERS:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate = sign(
        chosen.certificate, chosen.key, own.public_key(), names(role, job), alternatives, usages, now
    )  # fmt: skip
    return certificate.public_bytes(serialization.Encoding.PEM), key_bytes(own)


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    """None: it is damaged, or not of our kind."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


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
