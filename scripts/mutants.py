"""The mutants of `tests/mutants/*.toml`: edits that remove a behaviour, and tests that must fail.

A requirement is proven when at least one mutant stands for it. `make test` checks that every mutant
still fits the source; `make mutants` applies each in a copy of the tree and runs its tests.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "tests" / "mutants"
KEYS = {"requirements", "file", "before", "after", "tests"}
TIMEOUT_S = 600
FAILED_TESTS = 1  # what pytest answers when tests failed; 2 and more: it did not get that far


@dataclass(frozen=True)
class Mutant:
    """One edit of one file: `before` stands there exactly once and becomes `after`."""

    area: str
    requirements: tuple[str, ...]
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        line = self.before.strip().splitlines()[0] if self.before.strip() else "?"
        return f"{self.area}: {','.join(self.requirements)} {self.file}: {line[:60]}"

    def mutated(self, source: str) -> str:
        """The source with this edit, or ValueError where it does not fit."""
        if (found := source.count(self.before)) != 1:
            raise ValueError(f"`before` stands {found} times in {self.file}")
        if self.before == self.after:
            raise ValueError("`before` and `after` are the same")
        changed = source.replace(self.before, self.after)
        if self.file.endswith(".py"):
            ast.parse(changed)
        return changed


def read_catalogue(folder: Path = CATALOGUE) -> list[Mutant]:
    """All mutants, file by file; an unknown or missing key is an error."""
    return [mutant for path in sorted(folder.glob("*.toml")) for mutant in _read(path)]


def _read(path: Path) -> Iterator[Mutant]:
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []):
        if set(entry) != KEYS:
            raise ValueError(f"{path.name}: a mutant has {sorted(KEYS)}, not {sorted(entry)}")
        yield Mutant(
            area=path.stem,
            requirements=tuple(entry["requirements"]),
            file=entry["file"],
            before=entry["before"],
            after=entry["after"],
            tests=tuple(entry["tests"]),
        )


class Copy:
    """A copy of the tree in which one mutant at a time lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Bytecode is found by its source's time: each edit gets a time that no other edit had.
        self._times = itertools.count(int(time.time()) + 1000)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file() or (ROOT / name).is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def try_mutant(self, mutant: Mutant) -> str:
        """`killed` if a test fails with the mutant, `survived` if none does, else the trouble."""
        path = self.folder / mutant.file
        original, status = path.read_text(encoding="utf-8"), path.stat()
        try:
            path.write_text(mutant.mutated(original), encoding="utf-8")
            os.utime(path, (moment := next(self._times), moment))
            return self._run(mutant.tests)
        except (SyntaxError, ValueError) as error:
            return f"does not fit: {error}"
        finally:
            path.write_text(original, encoding="utf-8")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _run(self, tests: Sequence[str]) -> str:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no"]
        command += [f"tests/{test}" for test in tests]
        pytest = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that a test that hangs is ended with all it started
        )
        try:
            words, _ = pytest.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(pytest.pid, signal.SIGKILL)
            pytest.communicate()
            return "killed"
        if pytest.returncode == FAILED_TESTS:
            return "killed"
        return "survived" if pytest.returncode == 0 else f"not run: {words.strip()[-300:]}"


def try_all(mutants: Sequence[Mutant], *, jobs: int) -> list[tuple[Mutant, str]]:
    """Each mutant with its verdict, as they come; at most `jobs` at once."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    verdicts: list[tuple[Mutant, str]] = []

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as folder:
            copy = Copy(Path(folder))
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                verdict = copy.try_mutant(mutant)
                verdicts.append((mutant, verdict))
                print(f"{len(verdicts)}/{len(mutants)} {verdict}: {mutant}", flush=True)

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return verdicts


def cheapest(mutants: Sequence[Mutant]) -> list[Mutant]:
    """One mutant for each requirement: that whose tests start least of the product."""
    order = ("unit/", "replay/", "integration/storage", "integration/memory", "integration/", "")
    ranked = sorted(
        mutants,
        key=lambda mutant: (
            max(
                next(place for place, prefix in enumerate(order) if test.startswith(prefix))
                for test in mutant.tests
            ),
            len(mutant.tests),
        ),
    )
    chosen: dict[str, Mutant] = {}
    for mutant in ranked:
        for requirement in mutant.requirements:
            chosen.setdefault(requirement, mutant)
    return list(dict.fromkeys(chosen.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the chosen mutants; 1 if one of them is not killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "words", nargs="*", help="only mutants whose area, id or file is one of these"
    )
    parser.add_argument("--cheapest", action="store_true", help="one mutant for each requirement")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    words = set(options.words)
    mutants = [
        mutant
        for mutant in read_catalogue()
        if not words or words & {mutant.area, mutant.file, *mutant.requirements}
    ]
    verdicts = try_all(cheapest(mutants) if options.cheapest else mutants, jobs=options.jobs)
    left = [(mutant, verdict) for mutant, verdict in verdicts if verdict != "killed"]
    for mutant, verdict in left:
        print(f"LEFT {verdict}: {mutant}")
    print(f"{len(verdicts) - len(left)} of {len(verdicts)} mutants were killed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
