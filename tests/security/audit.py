"""`python -m tests.security.audit`: known vulnerabilities of what is installed here, by pip-audit, and what to make of them.

It fails for a vulnerability that an upgrade mends which everybody's version limits allow: then there is something to do. One
that is mended only outside of them (TensorFlow 2.15 is the last with tf.estimator) is listed. Where no database can be reached
it says so: pip-audit itself calls that "no known vulnerabilities".
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

SERVICES = ("pypi", "osv")
LIMIT_SECONDS = 300
REQUEST_SECONDS = 15
EXIT_FOUND = 1


@dataclass(frozen=True)
class Vulnerability:
    package: str
    version: str
    identifier: str
    fixed_in: tuple[str, ...]

    def mended_by(self, limits: SpecifierSet) -> str:
        """The first version that mends it and that the limits allow; empty: none."""
        return next((version for version in self.fixed_in if limits.contains(version, prereleases=False)), "")

    def __str__(self) -> str:
        return f"{self.package} {self.version}: {self.identifier}"


def read(report: Mapping[str, Any]) -> tuple[int, list[Vulnerability]]:
    """What pip-audit's JSON says: how many packages were looked up, and what was found."""
    looked_up = [one for one in report.get("dependencies", ()) if "skip_reason" not in one]
    found = [
        Vulnerability(one["name"], one["version"], bad["id"], tuple(bad.get("fix_versions", ())))
        for one in looked_up
        for bad in one.get("vulns", ())
    ]
    return len(looked_up), found


def limits_of(package: str, distributions: Sequence[Sequence[str]]) -> SpecifierSet:
    """What all of them together allow of a package.

    Args:
      distributions: of each installed one, its requirements as its metadata has them.
    """
    limits = SpecifierSet()
    for requirements in distributions:
        for text in requirements:
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if canonicalize_name(requirement.name) == canonicalize_name(package):
                limits &= requirement.specifier
    return limits


def verdict(report: Mapping[str, Any], distributions: Sequence[Sequence[str]]) -> tuple[int, list[str]] | None:
    """Exit code and lines; None: nothing was looked up, so there is no database."""
    looked_up, found = read(report)
    if not looked_up:
        return None
    mended = {one: one.mended_by(limits_of(one.package, distributions)) for one in found}
    lines = [
        f"{one}: upgrade to {version}" if version else f"{one}: mended by no version that our limits allow"
        for one, version in mended.items()
    ]
    lines.append(f"pip-audit: {looked_up} packages looked up, {len(found)} vulnerabilities known")
    return (EXIT_FOUND if any(mended.values()) else 0), lines


def ask(service: str) -> dict[str, Any] | str:
    """pip-audit's report on this environment; a text that says why there is none."""
    words = [sys.executable, "-m", "pip_audit", "--local", "--progress-spinner", "off", "--format", "json",
             "--vulnerability-service", service, "--timeout", str(REQUEST_SECONDS)]  # fmt: skip
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        return dict(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return f"no answer within {LIMIT_SECONDS} s"
    except ValueError:
        return (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]


def main(words: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m tests.security.audit", description=__doc__).parse_args(words)
    distributions = [tuple(one.requires or ()) for one in importlib.metadata.distributions()]
    reasons = []
    for service in SERVICES:
        report = ask(service)
        answer = None if isinstance(report, str) else verdict(report, distributions)
        if answer is not None:
            print("\n".join(answer[1]))
            return answer[0]
        reasons.append(f"{service}: {report if isinstance(report, str) else 'it knows none of the packages'}")
    print(f"pip-audit: skipped, because no vulnerability database can be reached ({'; '.join(reasons)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
