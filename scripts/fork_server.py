"""One pytest that collects once, learns which test reaches which line, and forks per mutant."""

from __future__ import annotations

import contextlib
import gc
import importlib.machinery
import importlib.util
import os
import shutil
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from scripts.mutations import Mutant

KILLED, SURVIVED, TIMED_OUT, UNREACHED = "killed", "survived", "timed out", "not reached"
# Servers that run in threads of the parent or cost seconds: a forked child cannot use them.
EXCLUDED = {"stub_server", "shared_product", "temporal", "rolling_temporal", "spare_host"}
ARGUMENTS = ["-s", "-q", "-o", "timeout=0", "-m", "not slow and not bench"]
SLOWER, SPARE_S = 10, 5.0  # how long a test may take: so many times its unmutated time, and more
FAILED_EXIT = 3

Line = tuple[str, int]


class Tracer:
    """Which lines of the mutated files run; other code costs one look at its file's name."""

    def __init__(self, files: set[str]) -> None:
        self._files = files
        self.reached: set[Line] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if file not in self._files:
            return None
        reached = self.reached

        def line(frame: FrameType, event: str, argument: object) -> Any:
            reached.add((file, frame.f_lineno))
            return line

        return line(frame, event, argument)

    def start(self) -> None:
        """Begin with an empty set."""
        self.reached = set()
        threading.settrace(self)
        sys.settrace(self)

    def stop(self) -> set[Line]:
        """The lines since the start."""
        sys.settrace(None)
        threading.settrace(None)
        return self.reached


class CheapTests:
    """A pytest plugin: leaves out tests that need Postgres or a server of the parent."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not self._is_costly(item)]

    def _is_costly(self, item: pytest.Item) -> bool:
        fixtures = set(getattr(item, "fixturenames", ()))
        return "postgres" in item.nodeid or bool(fixtures & (EXCLUDED | {"postgres"}))


class ForkServer(CheapTests):
    """A pytest plugin: its run loop is the unmutated run, then one child for each mutant."""

    def __init__(
        self,
        root: Path,
        mutants: Sequence[Mutant],
        tell: Callable[[Mutant, str], None],
        deadline: float,
    ) -> None:
        self.root, self.mutants, self.tell, self.deadline = root, mutants, tell, deadline
        self.broken: list[str] = []  # tests that fail unmutated
        self._tracer = Tracer({str(root / mutant.file) for mutant in mutants})
        self._lines: dict[str, set[Line]] = {}
        self._seconds: dict[str, float] = {}
        self._functions: dict[Line | tuple[str, str], list[FunctionType]] = defaultdict(list)
        self._killers: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._learn(session.items)
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self._functions[one.__code__.co_filename, one.__code__.co_qualname].append(one)
        gc.freeze()
        self._leave_out_what_fails_in_a_child()
        for mutant in self.mutants:
            if time.monotonic() < self.deadline:
                self.tell(mutant, self._try(mutant))
        return True

    def _run(self, item: pytest.Item, following: object) -> bool:
        """Whether the item passed."""
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._failed

    def _learn(self, items: Sequence[pytest.Item]) -> None:
        for item, following in _pairs(items, self._session):
            self._tracer.start()
            begun = time.monotonic()
            passed = self._run(item, following)
            self._seconds[item.nodeid] = time.monotonic() - begun
            reached = self._tracer.stop()
            if passed:
                self._lines[item.nodeid] = reached
            else:
                self.broken.append(item.nodeid)

    def _leave_out_what_fails_in_a_child(self) -> None:
        tests = [test for test, reached in self._lines.items() if reached]
        while tests:
            verdict, culprit = self._fork(tests, None)
            if verdict == SURVIVED or not culprit:
                return
            self.broken.append(culprit)
            del self._lines[culprit]
            tests = tests[tests.index(culprit) + 1 :]

    def _try(self, mutant: Mutant) -> str:
        file = str(self.root / mutant.file)
        wanted = {(file, line) for line in mutant.lines}
        tests = [test for test, reached in self._lines.items() if wanted & reached]
        if not tests:
            return UNREACHED
        before = self._killers[mutant.file, mutant.function]
        tests.sort(key=lambda test: (test not in before[-3:], self._seconds[test]))
        verdict, culprit = self._fork(tests, mutant)
        if verdict == KILLED and culprit:
            before.append(culprit)
        return verdict

    def _fork(self, tests: Sequence[str], mutant: Mutant | None) -> tuple[str, str]:
        """The verdict, and the test that gave it."""
        told, tell = os.pipe()
        temporary = Path(self._session.config._tmp_path_factory.mktemp("mutant"))  # type: ignore[attr-defined]
        child = os.fork()
        if child == 0:
            os.close(told)
            self._live(tests, mutant, tell, temporary)
        os.close(tell)
        status = _wait(child, sum(self._limit(test) for test in tests) + 60)
        with os.fdopen(told, "rb") as pipe:
            culprit = pipe.read().decode().strip().rpartition("\n")[2]
        shutil.rmtree(temporary, ignore_errors=True)
        return _verdict(status), culprit

    def _limit(self, test: str) -> float:
        return SPARE_S + SLOWER * self._seconds[test]

    def _live(
        self, tests: Sequence[str], mutant: Mutant | None, tell: int, temporary: Path
    ) -> None:
        """The child: never returns, never tears down what the parent set up."""
        code = FAILED_EXIT
        try:
            os.setsid()
            self._session.config._tmp_path_factory._basetemp = temporary  # type: ignore[attr-defined]
            if mutant is not None:
                self._apply(mutant)
            code = self._first_failure(tests, tell)
        finally:
            os._exit(code)

    def _apply(self, mutant: Mutant) -> None:
        """Swap the code of the live function."""
        code = _find_code(mutant.compiled(self.root), mutant.function)
        assert code is not None
        for function in self._functions[code.co_filename, mutant.function]:
            function.__code__ = code

    def _first_failure(self, tests: Sequence[str], tell: int) -> int:
        for item, following in _pairs([self._items[test] for test in tests], self._session):
            os.write(tell, f"{item.nodeid}\n".encode())
            # The kernel ends a child that hangs, in whatever code it hangs.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, self._limit(item.nodeid))
            if not self._run(item, following):
                return FAILED_EXIT
        return 0


def serve(server: ForkServer, tests: Sequence[str]) -> None:
    """Collect the tests and run the server over them."""
    pytest.main([*ARGUMENTS, *tests], plugins=[server])


def try_at_import(mutant: Mutant, root: Path, tests: Sequence[str], allowance_s: float) -> str:
    """The verdict on a mutant of code that runs at import: a child imports everything anew."""
    child = os.fork()
    if child == 0:
        code = FAILED_EXIT
        try:
            os.setsid()
            sys.meta_path.insert(0, _MutatedFinder(mutant, root))
            answer = pytest.main([*ARGUMENTS, "-x", *tests], plugins=[CheapTests()])
            nothing_failed = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
            code = 0 if answer in nothing_failed else FAILED_EXIT
        finally:
            os._exit(code)
    return _verdict(_wait(child, allowance_s))


class _MutatedFinder:
    """Finds the mutated module; all others are found by the finders behind it."""

    def __init__(self, mutant: Mutant, root: Path) -> None:
        self._mutant, self._root = mutant, root
        self._name = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != self._name:
            return None
        file = str(self._root / self._mutant.file)
        loader = _MutatedLoader(name, file)
        loader.code = self._mutant.compiled(self._root)
        return importlib.util.spec_from_file_location(name, file, loader=loader)


class _MutatedLoader(importlib.machinery.SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class _Floor:
    """A next item that needs nothing but the session: fixtures of modules end, no others do."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def listchain(self) -> list[Any]:
        return [self._session]


def _pairs(
    items: Sequence[pytest.Item], session: pytest.Session
) -> Iterator[tuple[pytest.Item, object]]:
    """Each item with its next one."""
    yield from zip(items, [*items[1:], _Floor(session)], strict=True)


def _find_code(code: CodeType, name: str) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == name:
                return constant
            if (inner := _find_code(constant, name)) is not None:
                return inner
    return None


def _wait(child: int, allowance_s: float) -> int:
    """The child's status; a child that outlives the allowance is killed, with all it started."""
    deadline = time.monotonic() + allowance_s
    ended = 0
    while not ended and time.monotonic() < deadline:
        time.sleep(0.005)
        ended, status = os.waitpid(child, os.WNOHANG)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status if ended else os.waitpid(child, 0)[1]


def _verdict(status: int) -> str:
    if os.WIFSIGNALED(status):
        return TIMED_OUT if os.WTERMSIG(status) in {signal.SIGALRM, signal.SIGKILL} else KILLED
    return SURVIVED if os.WEXITSTATUS(status) == 0 else KILLED
