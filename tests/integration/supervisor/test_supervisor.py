"""The supervisor with small parts in place of the real ones: restarts, refusals, take-over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.settings.environment import Settings, SettingsError
from holdfast.supervisor import home_lock, logs, ports, process, run_file
from holdfast.supervisor.part import EXIT_MISCONFIGURED, Part, Verdict
from holdfast.supervisor.plan import make_plan
from tests.support.waiting import wait_for

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER) as child:
        yield child
        child.kill()


def make_part(tmp_path: Path, code: str) -> Part:
    command = [sys.executable, "-c", code]
    return Part("worker", command, {}, tmp_path / "logs" / "worker.log", tmp_path)


def run_to_its_end(part: Part) -> int:
    part.start()
    ends: list[int] = []

    def has_ended() -> bool:
        if (code := part.ended()) is not None:
            ends.append(code)
        return bool(ends)

    wait_for(has_ended, "the part to end")
    return ends[0]


def test_a_recycled_pid_is_not_mistaken_for_ours(sleeper: subprocess.Popen[bytes]) -> None:
    born = process.birth(sleeper.pid)
    assert process.is_running(sleeper.pid, born)
    assert not process.is_running(sleeper.pid, "another boot:1")
    process.stop(sleeper.pid, "another boot:1", grace_s=1.0)
    assert sleeper.poll() is None


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    sign = tmp_path / "deaf"
    code = (
        "import signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"pathlib.Path({str(sign)!r}).touch(); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        wait_for(sign.exists, "the child to ignore SIGTERM")
        # Reaped by a thread of its own, as its parent would.
        reaper = threading.Thread(target=child.wait)
        reaper.start()
        process.stop(child.pid, process.birth(child.pid), grace_s=0.1)
        reaper.join(timeout=120.0)
        assert child.returncode == -signal.SIGKILL


def test_a_failing_part_starts_again_more_and_more_slowly_and_is_then_given_up(
    tmp_path: Path,
) -> None:
    part = make_part(tmp_path, "pass")
    delays = []
    for _ in range(5):
        part.started_at = time.monotonic()
        assert part.judge(1) is Verdict.RESTART
        assert part.start_at is not None
        delays.append(part.start_at - part.started_at)
    assert delays == sorted(delays)
    assert part.judge(1) is Verdict.GIVE_UP


def test_a_part_that_lived_long_may_fail_again_and_again(tmp_path: Path) -> None:
    part = make_part(tmp_path, "pass")
    for _ in range(20):
        part.started_at = time.monotonic() - 60
        assert part.judge(1) is Verdict.RESTART


def test_a_part_killed_from_outside_is_never_given_up(tmp_path: Path) -> None:
    part = make_part(tmp_path, "pass")
    for _ in range(50):
        part.started_at = time.monotonic()
        assert part.judge(-signal.SIGKILL) is Verdict.RESTART


def test_a_misconfigured_part_is_not_started_again_and_its_words_are_kept(tmp_path: Path) -> None:
    part = make_part(tmp_path, "import sys; sys.stderr.write('no such key\\n'); sys.exit(78)")
    code = run_to_its_end(part)
    assert code == EXIT_MISCONFIGURED
    assert part.judge(code) is Verdict.MISCONFIGURED
    assert part.last_words() == ["no such key"]


def test_only_the_words_since_the_last_start_are_shown(tmp_path: Path) -> None:
    part = make_part(tmp_path, "import os; print(os.getpid())")
    run_to_its_end(part)
    first = part.last_words()
    run_to_its_end(part)
    assert len(part.last_words()) == 1
    assert part.last_words() != first


def test_a_second_supervisor_in_the_same_home_is_refused(tmp_path: Path) -> None:
    lock = home_lock.HomeLock(tmp_path)
    run = run_file.RunFile(api_url="http://127.0.0.1:1")
    run.record("supervisor", os.getpid())
    run.write(tmp_path / "run.json")
    with pytest.raises(home_lock.HomeInUse, match=f"supervisor pid {os.getpid()}"):
        home_lock.HomeLock(tmp_path)
    lock.release()
    home_lock.HomeLock(tmp_path).release()


def test_leftovers_of_a_killed_supervisor_are_stopped_but_strangers_are_not(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    with subprocess.Popen(SLEEPER) as ours:
        reaper = threading.Thread(target=ours.wait)
        reaper.start()
        run = run_file.RunFile()
        run.record("worker", ours.pid)
        run.pids["api"] = sleeper.pid
        run.births["api"] = "another boot:1"
        run.write(tmp_path / "run.json")
        assert home_lock.clear_leftovers(tmp_path / "run.json") == ["worker"]
        reaper.join(timeout=120.0)
    assert sleeper.poll() is None
    assert not (tmp_path / "run.json").exists()


def test_run_json_is_private_and_comes_back_as_written(tmp_path: Path) -> None:
    run = run_file.RunFile(api_url="http://127.0.0.1:1", temporal_address="127.0.0.1:2")
    run.record("supervisor", os.getpid())
    run.write(tmp_path / "run.json")
    assert (tmp_path / "run.json").stat().st_mode & 0o777 == 0o600
    assert run_file.read(tmp_path / "run.json") == run
    assert run.is_running("supervisor")
    assert not run.is_running("worker")


@pytest.mark.parametrize("text", ["", "[]", '{"pids": 3}', '{"pids": {"api": "x"}}'])
def test_a_damaged_run_json_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert run_file.read(tmp_path / "run.json") is None
    assert home_lock.clear_leftovers(tmp_path / "run.json") == []


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = Settings(home=tmp_path, bind=f"127.0.0.1:{port}")
        with pytest.raises(SettingsError, match=f"port {port} on 127.0.0.1 is in use"):
            make_plan(settings)


def test_two_supervisors_never_choose_the_same_port() -> None:
    first, second = ports.Ports(), ports.Ports()
    try:
        usual = ports.free_port()
        assert first.claim(usual) == usual
        assert second.claim(usual) != usual
    finally:
        first.release()
        second.release()


def test_an_outside_temporal_is_used_and_none_is_started(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, bind="127.0.0.1:0", temporal_address="temporal:7233")
    plan = make_plan(settings)
    assert "temporal" not in plan.parts
    assert plan.parts["worker"].environment["HOLDFAST_TEMPORAL_ADDRESS"] == "temporal:7233"


def test_the_embedded_server_is_told_what_was_measured(tmp_path: Path) -> None:
    plan = make_plan(Settings(home=tmp_path, bind="127.0.0.1:0"))
    plan.claimed.release()
    command = " ".join(plan.parts["temporal"].command)
    for flag in (
        "--sqlite-pragma journal_mode=WAL",
        "--sqlite-pragma synchronous=NORMAL",
        "history.transferProcessorMaxPollRPS=200",
        "history.timerProcessorMaxPollRPS=200",
        "frontend.WorkerCommandsEnabled=true",
        "system.enableCancelActivityWorkerCommand=true",
        "matching.numTaskqueueReadPartitions=1",
        "matching.numTaskqueueWritePartitions=1",
        "--search-attribute SessionState=Keyword",
        f"--db-filename {tmp_path / 'temporal.db'}",
    ):
        assert flag in command


def test_a_full_log_is_moved_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    descriptor = logs.open_for_append(path)
    for number in range(6):
        os.write(descriptor, f"{number}\n".encode() * 10)
        logs.rotate(path, bytes_max=10)
    os.write(descriptor, b"last\n")
    os.close(descriptor)
    assert path.read_text() == "last\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "worker.log",
        "worker.log.1",
        "worker.log.2",
        "worker.log.3",
    ]
