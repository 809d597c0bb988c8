"""A systematic mutation tester: small edits of a package, tried against the tests that reach it.

Code in functions is swapped in a child of a pytest that collected once (`fork_server`); code that
runs at import is imported anew. Mutants judged equivalent stand in `tests/mutants/equivalent.txt`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts import fork_server
from scripts.fork_server import KILLED, SURVIVED, TIMED_OUT, UNREACHED, ForkServer
from scripts.mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "tests" / "mutants" / "equivalent.txt"
TESTS = ("tests/unit", "tests/integration/storage", "tests/integration/memory")
IMPORT_ALLOWANCE_S = 600
LISTED = "equivalent"


def read_equivalent(path: Path = EQUIVALENT) -> dict[tuple[str, str, str], str]:
    """Why each listed mutant changes nothing a test could see; a line without why is an error."""
    listed: dict[tuple[str, str, str], str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" :: ")]
        if len(parts) != 4 or not parts[3]:
            raise ValueError(f"{path.name}:{number}: file :: function :: mutation :: why")
        listed[parts[0], parts[1], parts[2]] = parts[3]
    return listed


def generate(targets: Sequence[str], root: Path = ROOT) -> list[Mutant]:
    """Every mutant of the files and folders."""
    files = [file for target in targets for file in _python_files(root / target)]
    return [mutant for file in files for mutant in mutants_of(file, root)]


def sample(mutants: list[Mutant], size: int | None, seed: int = 0) -> list[Mutant]:
    """`size` of the mutants, for each seed the same ones each time, in their order."""
    if size is None or size >= len(mutants):
        return mutants
    chosen = random.Random(seed).sample(range(len(mutants)), size)
    return [mutants[position] for position in sorted(chosen)]


class Verdicts:
    """What became of the mutants so far; says each that someone must look at."""

    def __init__(self, equivalent: dict[tuple[str, str, str], str], total: int) -> None:
        self.given: list[tuple[Mutant, str]] = []
        self._equivalent, self._total = equivalent, total
        self._out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")

    def tell(self, mutant: Mutant, verdict: str) -> None:
        """Keep one verdict."""
        if mutant.key in self._equivalent and verdict in {SURVIVED, UNREACHED}:
            verdict = LISTED
        self.given.append((mutant, verdict))
        if verdict in {SURVIVED, UNREACHED}:
            self.say(f"{verdict}: {mutant}")
        if len(self.given) % 50 == 0:
            self.say(f"… {len(self.given)} of {self._total}")

    def say(self, words: str) -> None:
        """To the terminal, whatever became of the standard output."""
        print(words, file=self._out)

    def report(self) -> int:
        """The numbers; 1 if a mutant survived."""
        counted = Counter(verdict for _, verdict in self.given)
        order = (KILLED, TIMED_OUT, SURVIVED, UNREACHED, LISTED)
        numbers = ", ".join(f"{name} {counted[name]}" for name in order)
        self.say(f"chosen {self._total}, tried {len(self.given)}: {numbers}")
        return 1 if counted[SURVIVED] or counted[UNREACHED] else 0


def try_all(
    mutants: Sequence[Mutant],
    verdicts: Verdicts,
    *,
    root: Path = ROOT,
    tests: Sequence[str] = TESTS,
    deadline: float = float("inf"),
) -> None:
    """Those of code run at import first: their children must find nothing of ours imported."""
    for mutant in mutants:
        if not mutant.function and time.monotonic() < deadline:
            verdicts.tell(mutant, _try_at_import(mutant, root, tests))
    if inside := [mutant for mutant in mutants if mutant.function]:
        server = ForkServer(root, inside, verdicts.tell, deadline)
        fork_server.serve(server, tests)
        for test in server.broken:
            verdicts.say(f"left out, it fails unmutated: {test}")


def _try_at_import(mutant: Mutant, root: Path, tests: Sequence[str]) -> str:
    """First the test files that name what is changed, then the others."""
    names = "|".join(map(re.escape, sorted(mutant.names))) or "$^"
    module = re.escape(mutant.file.removesuffix(".py").replace("/", "."))
    pattern = re.compile(rf"\b(?:{names}|{module})\b")
    files = [file for test in tests for file in _python_files(root / test, "test_*.py")]
    naming = [file for file in files if pattern.search(file.read_text(encoding="utf-8"))]
    verdict = SURVIVED
    for chosen in (naming, [file for file in files if file not in naming]):
        if chosen and verdict == SURVIVED:
            verdict = fork_server.try_at_import(
                mutant, root, [str(file) for file in chosen], IMPORT_ALLOWANCE_S
            )
    return verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants of the targets; 1 if one is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+", help="files or folders below the repository's root")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="the tests to run")
    parser.add_argument("--sample", type=int, help="so many mutants, the same ones each time")
    parser.add_argument("--seed", type=int, default=0, help="which ones the sample takes")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--only", choices=("functions", "imports"), help="one half of the mutants")
    parser.add_argument("--words", nargs="+", help="only mutants whose name holds one of these")
    options = parser.parse_args(arguments)
    mutants = generate(options.targets)
    if options.only:
        mutants = [one for one in mutants if bool(one.function) == (options.only == "functions")]
    if options.words:
        mutants = [one for one in mutants if any(word in str(one) for word in options.words)]
    chosen = sample(mutants, options.sample, options.seed)
    verdicts = Verdicts(read_equivalent(), len(chosen))
    verdicts.say(f"generated {len(mutants)}, chosen {len(chosen)}")
    deadline = time.monotonic() + options.minutes * 60
    with _quiet(), tempfile.TemporaryDirectory(prefix="holdfast-mutate-") as cache:
        # Bytecode of what children import anew, whatever the environment forbids.
        sys.dont_write_bytecode, sys.pycache_prefix = False, cache
        try_all(chosen, verdicts, tests=options.tests, deadline=deadline)
    return verdicts.report()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What pytest and the tests print goes nowhere."""
    kept = os.dup(1), os.dup(2)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - a device
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)


def _python_files(target: Path, pattern: str = "*.py") -> list[Path]:
    return sorted(target.rglob(pattern)) if target.is_dir() else [target]


if __name__ == "__main__":
    sys.exit(main())
