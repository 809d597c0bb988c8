"""Audits the dependencies offline: pinned, hashed, without an address, none known to be bad.

It cannot know of advisories that nobody wrote into scripts/known_bad.txt.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
WANTED = (ROOT / "requirements.in", ROOT / "requirements-dev.in")
KNOWN_BAD = ROOT / "scripts" / "known_bad.txt"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
ELSEWHERE = re.compile(
    r"https?://|git\+|file:|--(extra-)?index-url|--find-links|^-e\b", re.MULTILINE
)
# Licences that would bind whoever ships Holdfast; the Lesser one does not.
STRICT = re.compile(
    r"affero|\bagpl|(?<!lesser )general public|(?<![al])gpl[ -]?v?[23]", re.IGNORECASE
)


def problems() -> list[str]:
    """Everything that is wrong, in plain words."""
    text = LOCK.read_text(encoding="utf-8")
    pinned = versions(text)
    found = [f"requirements.lock: an address: {one.group()}" for one in ELSEWHERE.finditer(text)]
    found += unhashed(text)
    found += [f"{name} is wanted and not locked" for name in wanted() - set(pinned)]
    found += known_bad(pinned)
    return found + strict_licences(set(pinned))


def versions(text: str) -> dict[str, set[str]]:
    """Locked packages and their versions; there may be one for each platform."""
    found: dict[str, set[str]] = {}
    for one in map(PINNED.match, text.splitlines()):
        if one:
            found.setdefault(str(canonicalize_name(one.group(1))), set()).add(one.group(2))
    return found


def unhashed(text: str) -> list[str]:
    """Entries without a version or without a hash."""
    found = []
    for entry in re.split(r"\n(?=[A-Za-z0-9])", text):
        first = entry.lstrip().splitlines()[0].rstrip(" \\") if entry.strip() else ""
        if not first or first.startswith("#"):
            continue
        if PINNED.match(first) is None:
            found.append(f"requirements.lock: not pinned: {first}")
        elif "--hash=sha256:" not in entry:
            found.append(f"requirements.lock: no hash: {first}")
    return found


def wanted() -> set[str]:
    """What the .in files ask for, on any platform."""
    lines = [
        line.split("#")[0].strip() for path in WANTED for line in path.read_text().splitlines()
    ]
    chosen = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {str(canonicalize_name(one.name)) for one in chosen}


def known_bad(pinned: dict[str, set[str]]) -> list[str]:
    """Locked versions that are older than the first good one."""
    found = []
    for line in KNOWN_BAD.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        package, _, rest = line.partition("<")
        good, _, why = rest.partition("  ")
        for locked in pinned.get(str(canonicalize_name(package)), ()):
            if Version(locked) < Version(good):
                found.append(f"{package} {locked}: {why}; {good} is the first good one")
    return found


def strict_licences(names: set[str]) -> list[str]:
    """Installed packages whose licence would bind whoever ships Holdfast."""
    found = []
    for package in metadata.distributions():
        if str(canonicalize_name(package.name)) not in names:
            continue
        kinds = [one for one in package.metadata.get_all("Classifier") or [] if "License" in one]
        short = package.metadata.get_all("License-Expression") or []
        said = " ".join([*short, *kinds])
        if STRICT.search(said):
            found.append(f"{package.name}: licence {said}")
    return found


def main() -> int:
    """Say what is wrong; 1 when something is."""
    found = problems()
    for problem in found:
        sys.stderr.write(f"audit: {problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
