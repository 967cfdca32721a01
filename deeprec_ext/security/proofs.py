"""Proof that an AIMaster of this job has had an incarnation: what an agent claims of newer ones is believed with it alone.

It is an HMAC with a key made of the AIMaster's private key, so AIMasters of one job can check each other's, also when their
store is lost, and nobody else can make one. Its certificate is renewed with the same key (`renewing`). A run that is resumed
has another, and then old proofs prove nothing, which harms nobody.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path


class Proofs:
    """Args:
    certs: directory of the AIMaster's certificates; None: no TLS (tests), then there is no secret in it.
    """

    def __init__(self, job: str, certs: str | Path | None) -> None:
        self._job, self._certs = job.encode(), certs

    def _key(self) -> bytes:
        if self._certs is None:
            return b"no TLS"
        return hashlib.sha256((Path(self._certs) / "aimaster-key.pem").read_bytes()).digest()

    def make(self, incarnation: int) -> bytes:
        """32 bytes. Empty when the key cannot be read at the moment."""
        try:
            return hmac.new(self._key(), b"%s\0%d" % (self._job, incarnation), hashlib.sha256).digest()
        except OSError:
            return b""

    def holds(self, incarnation: int, proof: bytes) -> bool:
        """Whether an AIMaster of the job has given this proof for this incarnation."""
        expected = self.make(incarnation)
        return bool(expected) and hmac.compare_digest(expected, proof)
