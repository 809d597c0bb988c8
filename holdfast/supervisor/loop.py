"""The supervisor itself: one loop that starts, watches, restarts and stops the parts."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time

from holdfast.settings import private_home
from holdfast.settings.config import load_config
from holdfast.settings.environment import Settings, SettingsError
from holdfast.settings.part_environments import machine_environment
from holdfast.supervisor import (
    home_lock,
    launch,
    logs,
    ports,
    process,
    readiness,
    temporal,
    terminal_host,
)
from holdfast.supervisor.part import EXIT_MISCONFIGURED, Part, Verdict
from holdfast.supervisor.plan import Plan, make_plan
from holdfast.supervisor.run_file import RunFile

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_FAILED = 1
STOP_GRACE_S = 12.0
TEMPORAL_GRACE_S = 5.0
READY_POLL_S = 0.05
TICK_S = 1.0
SLOW_START_S = 20.0


def run_supervisor(settings: Settings) -> int:
    """Run the product in the foreground until it is told to stop, or cannot go on."""
    try:
        settings.make_home()
        opened = private_home.tighten(settings.home)
        if opened:
            say(f"{opened} files and folders of the home were open to others; they no longer are")
        load_config(settings.home)
        lock = home_lock.HomeLock(settings.home)
    except home_lock.HomeInUse as error:
        complain(f"holdfast: {error}")
        return EXIT_FAILED
    except (SettingsError, OSError) as error:
        complain(f"holdfast: {error}")
        return EXIT_MISCONFIGURED
    try:
        for name in home_lock.clear_leftovers(settings.run_file):
            say(f"stopped the {name} that an earlier supervisor left behind")
        return Supervisor(make_plan(settings)).run()
    except SettingsError as error:
        complain(f"holdfast: {error}")
        return EXIT_MISCONFIGURED
    finally:
        lock.release()


class Supervisor:
    """Owns the parts as children; the terminal host only as an acquaintance that may outlive it."""

    def __init__(self, plan: Plan) -> None:
        self.settings = plan.settings
        self.parts = plan.parts
        self.claimed = plan.claimed
        self.terminal = plan.terminal
        self.run_file = RunFile(
            api_url=plan.settings.api_url,
            temporal_address=plan.settings.temporal_address,
            temporal_ui_url=plan.temporal_ui_url,
        )
        self.began_at = time.monotonic()
        self.ready = False
        self.warned = False
        self.exit_code: int | None = None
        self.upkeep_left = [] if plan.temporal_ui_url is None else [1]
        self.upkeep: list[subprocess.Popen[bytes]] = []

    def run(self) -> int:
        """Until a stop signal, or until a part cannot be kept alive."""
        wakeup = self._listen_for_signals()
        self.run_file.record("supervisor", os.getpid())
        say(f"holdfast: starting in {self.settings.home}")
        try:
            for part in self.parts.values():
                self._start(part)
            self._start_terminal()
            while self.exit_code is None:
                self._wait(wakeup)
                self._look_after_parts()
                self._announce()
            return self.exit_code
        finally:
            self._stop_all()

    # Waiting ------------------------------------------------------------------------------------

    def _listen_for_signals(self) -> socket.socket:
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._writer = writer  # kept open: the wake-up descriptor is this socket's
        return reader

    def _wait(self, wakeup: socket.socket) -> None:
        timeout = TICK_S if self.ready else READY_POLL_S
        pending = [part.start_at for part in (*self.parts.values(), self.terminal) if part.start_at]
        if pending:
            timeout = min(timeout, max(0.0, min(pending) - time.monotonic()))
        select.select([wakeup], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            if any(byte in STOP_SIGNALS for byte in wakeup.recv(4096)):
                say("holdfast: stopping")
                self.exit_code = 0

    # Parts --------------------------------------------------------------------------------------

    def _start(self, part: Part) -> None:
        pid = part.start()
        self.run_file.record(part.name, pid)
        self.run_file.write(self.settings.run_file)

    def _start_terminal(self) -> None:
        pid = terminal_host.living_pid(self.settings.terminal_socket)
        if pid is None:
            self._start(self.terminal)
            return
        self.terminal.start_at = None
        self.run_file.record("terminal", pid)
        self.run_file.write(self.settings.run_file)

    def _look_after_parts(self) -> None:
        for part in self.parts.values():
            if (code := part.ended()) is not None:
                self._after_end(part, code)
            if part.start_at is not None and part.start_at <= time.monotonic():
                self._start(part)
                say(f"holdfast: {part.name} runs again (pid {self.run_file.pids[part.name]})")
            logs.rotate(part.log)
        self._look_after_terminal()
        self._look_after_temporal()

    def _after_end(self, part: Part, code: int) -> None:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        verdict = part.judge(code)
        if self.exit_code is not None:
            return
        self.run_file.forget(part.name)
        if verdict is Verdict.RESTART:
            say(f"holdfast: {part.name} ended ({how}); starting it again")
            return
        self._show_last_words(part)
        if verdict is Verdict.MISCONFIGURED:
            complain(f"holdfast: {part.name} cannot run with this configuration; see above")
            self.exit_code = EXIT_MISCONFIGURED
        else:
            complain(
                f"holdfast: gave up on {part.name}: it ended {part.quick_failures} times in a row "
                f"right after its start (last: {how}). Its log: {part.log}"
            )
            self.exit_code = EXIT_FAILED

    def _show_last_words(self, part: Part) -> None:
        for line in part.last_words():
            complain(f"{part.name}: {line}")

    def _look_after_terminal(self) -> None:
        code = self.terminal.ended()
        if code is not None and self.terminal.judge(code) is not Verdict.RESTART:
            # Terminals are one feature of many: the rest goes on, and a new try follows.
            self._show_last_words(self.terminal)
            self.terminal.quick_failures = 0
            self.terminal.start_at = time.monotonic() + 30.0
        if self.terminal.start_at is not None:
            if self.terminal.start_at <= time.monotonic():
                self._start_terminal()
        elif not self.run_file.is_running("terminal"):
            say("holdfast: the terminal host is gone; its terminals are lost, starting a new one")
            self._start_terminal()
        logs.rotate(self.terminal.log)

    def _look_after_temporal(self) -> None:
        """Once the server listens, give an older file what it lacks; nobody waits for it."""
        self.upkeep = [child for child in self.upkeep if child.poll() is None]
        if not self.upkeep_left or not ports.accepts(self.settings.temporal_address):
            return
        self.upkeep_left.clear()
        log = logs.open_for_append(self.settings.logs_dir / "temporal.log")
        for command in temporal.upkeep_commands(self.settings):
            self.upkeep.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=machine_environment(os.environ),
                )
            )
        os.close(log)

    # Words --------------------------------------------------------------------------------------

    def _announce(self) -> None:
        if self.ready or self.exit_code is not None:
            return
        url = self.settings.api_url
        if readiness.is_ready(url):
            self.ready = True
            self._say_where()
        elif not self.warned and time.monotonic() - self.began_at > SLOW_START_S:
            self.warned = True
            say(
                f"holdfast: still waiting: {readiness.why_not(url)}; logs: {self.settings.logs_dir}"
            )

    def _say_where(self) -> None:
        if (url := launch.launch_url(self.settings)) is not None:
            say(f"Launch URL:   {url}")
        if self.run_file.temporal_ui_url:
            say(f"Temporal UI:  {self.run_file.temporal_ui_url}")
        say(f"Token file:   {self.settings.token_file}")
        for warning in readiness.warnings(self.settings.api_url):
            say(f"holdfast: warning: {warning}")
        took_s = time.monotonic() - self.began_at
        say(f"holdfast: ready at {self.settings.api_url} after {took_s:.1f} s; Ctrl-C stops it")

    # Stop ---------------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        deadline = time.monotonic() + STOP_GRACE_S
        first = [part for name, part in self.parts.items() if name != "temporal"]
        for part in first:
            part.ask_to_stop()
        for part in first:
            part.wait_or_kill(deadline)
        # Last, because a worker that stops tells Temporal so.
        if (server := self.parts.get("temporal")) is not None:
            server.ask_to_stop()
            server.wait_or_kill(time.monotonic() + TEMPORAL_GRACE_S)
        for child in self.upkeep:
            child.kill()
            child.wait()
        self.settings.run_file.unlink(missing_ok=True)
        self.claimed.release()
        if (pid := self.run_file.pids.get("terminal")) and process.birth(pid):
            say(f"holdfast: stopped; terminals live on (pid {pid}), `holdfast down` ends them")
        else:
            say("holdfast: stopped")


def say(line: str) -> None:
    """One whole line on standard output; no error when nobody reads it."""
    _write(1, line)


def complain(line: str) -> None:
    """One whole line on standard error; no error when nobody reads it."""
    _write(2, line)


def _write(descriptor: int, line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, (line + "\n").encode("utf-8", "replace"))
