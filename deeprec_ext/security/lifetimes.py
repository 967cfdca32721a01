"""How long certificates live and when they are renewed: of jobs, of the history and of the webhook. Nobody else says so.

    authority      10 years; when a third is left it gets a successor, and both are believed from then on (`ca.pem` has both).
                   Certificates are made by the successor once it has had a hundredth of its time: by then everybody has read it
    certificate    1 year, and never longer than its authority; renewed when a third is left
    late           when a quarter is left and nobody has renewed it, that is told as a warning: three months before the end

Whoever has issued a certificate renews it: the launcher, the operator that leads, the service of the history.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

DAY_SECONDS = 86_400.0
AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650.0, 365.0
BACKDATE_SECONDS = 7 * DAY_SECONDS
"""Clocks of hosts differ, and are set back by days when somebody notices: certificates begin before they are made."""

LEFT_SHARE, LATE_SHARE, RIPE_SHARE = 1 / 3, 1 / 4, 1 / 100

LOOK_SECONDS, AGAIN_SECONDS, LEAST_SECONDS = 3600.0, 60.0, 1.0
"""How often it is looked at least (clocks are set, files are replaced), again after an error, and never sooner than."""

REMEDY = (
    "who started the job renews it: its launcher within a minute once it can write the run directory (or stop the job and go "
    "on with --resume), the operator once it may update Secrets (`kubectl describe tfjob` says why it did not)"
)


@dataclass(frozen=True)
class Life:
    """Of one certificate, from when it was made; Unix seconds."""

    begins: float
    ends: float

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Life:
        ends = certificate.not_valid_after_utc.timestamp()
        return cls(min(certificate.not_valid_before_utc.timestamp() + BACKDATE_SECONDS, ends), ends)

    def _when_left(self, share: float) -> float:
        return self.ends - (self.ends - self.begins) * share

    @property
    def due(self) -> float:
        """From when on it is renewed."""
        return self._when_left(LEFT_SHARE)

    @property
    def late(self) -> float:
        """From when on it should have been renewed long ago."""
        return self._when_left(LATE_SHARE)

    @property
    def ripe(self) -> float:
        """Of an authority: from when on it signs."""
        return self._when_left(1 - RIPE_SHARE)


def read(data: bytes) -> Life:
    """Of a PEM file; of several certificates in it that of the first. Raises ValueError for what is none, ImportError."""
    from cryptography import x509

    return Life.of(x509.load_pem_x509_certificate(data))


def pause(when: float, now: float) -> float:
    """Seconds to wait until `when`, within the bounds of a look."""
    return min(max(when - now, LEAST_SECONDS), LOOK_SECONDS)


def shown(when: float) -> str:
    """Unix seconds as a date that is the same everywhere."""
    return datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def earliest(certs: str | Path, names: Iterable[str]) -> tuple[Life, Path] | None:
    """Whichever of these (`ca`, `admin`) ends first, with its file. None: there is none, or nobody can say: what only uses
    certificates need not have `cryptography`."""
    found: list[tuple[float, Life, Path]] = []
    for name in names:
        path = Path(certs) / f"{name}.pem"
        try:
            life = read(path.read_bytes())
        except (OSError, ValueError, ImportError):
            continue
        found.append((life.ends, life, path))
    return min(found, key=lambda one: one[0])[1:] if found else None


def expired(certs: str | Path | None, names: Iterable[str], now: float, remedy: str = REMEDY) -> str:
    """What to say of those that have ended, with what to do; empty: none has."""
    first = earliest(certs, names) if certs is not None else None
    if first is None or first[0].ends > now:
        return ""
    return f"the certificate {first[1]} expired at {shown(first[0].ends)}: {remedy}"
