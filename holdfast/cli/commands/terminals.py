"""A terminal of a session in this terminal."""

from __future__ import annotations

import base64
import shutil
import signal
import sys
import threading
import time
from typing import Annotated, Any

import typer

from holdfast.cli.output import AsJson, SessionName, emit_table
from holdfast.client.errors import ClientError

SHOWN_WITHIN_S = 10.0


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(term)
    app.command()(terms)


def term(
    session: SessionName,
    pty: Annotated[str | None, typer.Argument(help="An open terminal; without, a new one.")] = None,
    command: Annotated[str | None, typer.Option(help="Run this instead of a shell.")] = None,
) -> None:
    """Work in one of the session's terminals; Ctrl-] leaves it running and comes back here."""
    from holdfast.cli.connection import connect

    columns, rows = shutil.get_terminal_size()
    with connect() as client:
        found = client.session(session)
        if pty is None:
            body: dict[str, Any] = {"cols": columns, "rows": rows}
            if command is not None:
                body["command"] = command
            pty = client.post(f"/sessions/{found['id']}/ptys", body)["pty_id"]
        view = _Terminal(client.stream(found["id"], observe=False), pty)
        reason = view.run()
    typer.echo(f"\r\n[{reason}]", err=True)


def terms(session: SessionName, as_json: AsJson = False) -> None:
    """List a session's terminals."""
    from holdfast.cli.connection import connect

    with connect() as client:
        answer = client.get(f"/sessions/{client.session(session)['id']}/ptys")
    found = answer["items"] if isinstance(answer, dict) else answer
    rows = [(one["pty_id"], str(one.get("state", "-")), str(one.get("command"))) for one in found]
    emit_table(found, as_json=as_json, columns=("pty", "state", "command"), rows=rows)


class _Terminal:
    """Bytes from the socket to the screen in a thread, bytes of the keyboard in the foreground."""

    def __init__(self, stream: Any, pty_id: str) -> None:
        self.stream = stream
        self.pty_id = pty_id
        self.reason = f"detached from {pty_id}"
        self.trouble: Exception | None = None
        self.shown = threading.Event()
        self.over = threading.Event()

    def run(self) -> str:
        """Until Ctrl-], or until the terminal closes."""
        from holdfast.cli.keyboard import chunks, raw_mode

        reader = threading.Thread(target=self._show, daemon=True)
        signal.signal(signal.SIGWINCH, lambda *_: self._resize())
        with raw_mode():
            reader.start()
            self._wait_until_shown()
            for data in chunks(self.over.is_set):
                self._send("stdin", {"data": base64.b64encode(data).decode("ascii")})
        self.stream.close()
        reader.join(timeout=5.0)
        if self.trouble is not None:
            raise self.trouble
        return self.reason

    def _wait_until_shown(self) -> None:
        """Keys typed before the terminal is there would be lost."""
        deadline = time.monotonic() + SHOWN_WITHIN_S
        while not self.shown.wait(0.05) and not self.over.is_set():
            if time.monotonic() > deadline:
                self.stream.close()
                raise ClientError(f"there is no open terminal {self.pty_id} in this session")

    def _show(self) -> None:
        try:
            for frame in self.stream:
                if frame.channel != "pty" or frame.payload.get("pty_id") != self.pty_id:
                    continue
                if frame.type in {"stdout", "snapshot"}:
                    self._write(frame.payload)
                    if not self.shown.is_set():
                        self._resize()
                        self.shown.set()
                elif frame.type == "closed":
                    self.reason = f"closed, exit code {frame.payload.get('exit_code')}"
                    return
        except Exception as error:  # noqa: BLE001 - raised again in the foreground
            self.trouble = error
        finally:
            self.over.set()

    def _write(self, payload: dict[str, Any]) -> None:
        raw = base64.b64decode(payload.get("data") or "")
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()

    def _resize(self) -> None:
        columns, rows = shutil.get_terminal_size()
        self._send("resize", {"cols": columns, "rows": rows})

    def _send(self, kind: str, payload: dict[str, Any]) -> None:
        self.stream.send("pty", kind, {"pty_id": self.pty_id, **payload})
