"""Being there: attach to one session and talk to it, or watch all of them live."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Annotated, Any

import typer

from holdfast.cli import approving
from holdfast.cli.output import AsJson, SessionName, ago, clean

WATCH_ROWS = 30
REFRESH_S = 2.0


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(attach)
    app.command()(watch)


def attach(
    session: SessionName,
    observe: Annotated[bool, typer.Option(help="Only look; others may be attached.")] = False,
    history: Annotated[int, typer.Option(min=0, help="Show so many earlier messages.")] = 20,
    as_json: AsJson = False,
) -> None:
    """See a session live: history, text as it comes, tool calls, states. What you type is sent.

    A line is said in the run of a session at work; a paused one goes on with it as the answer.
    Ctrl-D or Ctrl-] detaches; the session goes on. After a lost connection it goes on by itself
    where it was.
    """
    from holdfast.cli.connection import connect
    from holdfast.client.errors import Refused

    with connect() as client:
        found = client.session(session)
        stream = client.stream(found["id"], observe=observe)
        view = _View(client, found, stream, history=history, as_json=as_json)
        try:
            view.run(observe=observe)
        except Refused as error:
            if error.status != 409:
                raise
            raise Refused(
                409, error.code, "somebody is attached to this session; look on with --observe"
            ) from error


def watch(
    as_json: AsJson = False,
    once: Annotated[bool, typer.Option("--once", help="Print the list once and leave.")] = False,
) -> None:
    """Show all your sessions live; Ctrl-C leaves."""
    from rich.console import Console
    from rich.live import Live

    from holdfast.cli.connection import connect
    from holdfast.client.system_stream import system_frames

    with connect() as client:
        if as_json:
            for frame in system_frames(client.url, client.token, wait_s=None):
                typer.echo(json.dumps(frame))
                if once:
                    return
            return
        if once:
            Console().print(_table(client, None))
            return
        with Live(_table(client, None), refresh_per_second=4, screen=sys.stdout.isatty()) as live:
            counts: dict[str, Any] | None = None
            for frame in system_frames(client.url, client.token, wait_s=REFRESH_S):
                counts = frame if "total" in frame["payload"] else counts
                live.update(_table(client, counts))


class _View:
    """One attached session: frames in a thread, the keyboard in the foreground."""

    def __init__(
        self, client: Any, session: Any, stream: Any, *, history: int, as_json: bool
    ) -> None:
        from holdfast.cli.rendering import Renderer

        self.client = client
        self.session = session
        self.stream = stream
        self.history = history
        self.as_json = as_json
        self.renderer = Renderer()
        self.approvals: dict[str, Any] = {}  # those that wait, by id, oldest first
        self.welcomed = threading.Event()
        self.trouble: Exception | None = None

    def run(self, *, observe: bool) -> None:
        """Until the keyboard detaches or the session is over."""
        from holdfast.cli.keyboard import line_mode, lines

        reader = threading.Thread(target=self._show_frames, daemon=True)
        reader.start()
        self.welcomed.wait(timeout=30.0)
        if self.trouble is None:
            with line_mode():
                for line in lines(lambda: not reader.is_alive()):
                    if line.strip() and not observe:
                        self._say(line)
                if not sys.stdin.isatty():
                    self._wait_until_idle()
        self.stream.close()
        reader.join(timeout=5.0)
        if self.trouble is not None:
            raise self.trouble

    def _show_frames(self) -> None:
        try:
            for frame in self.stream:
                if self.as_json:
                    typer.echo(json.dumps(vars(frame), ensure_ascii=False))
                elif frame.type == "welcome" and not self.welcomed.is_set():
                    self._show_history(frame.payload)
                else:
                    self.renderer.show(frame)
                self._look_at_approvals(frame)
                self.welcomed.set()
        except Exception as error:  # noqa: BLE001 - raised again in the foreground
            self.trouble = error
        finally:
            self.welcomed.set()

    def _show_history(self, welcome: dict[str, Any]) -> None:
        from holdfast.cli.rendering import history_line, plain_text

        said = self.client.messages(self.session["id"])
        for message in said[-self.history :] if self.history else []:
            typer.echo(history_line(message))
        for message in said:
            self.renderer.streamed[message["id"]] = plain_text(message["content"])
        state = (welcome.get("session") or self.session)["state"]
        self.renderer.note(f"· {self.session['id']} is {state}; Ctrl-D or Ctrl-] detaches")

    def _look_at_approvals(self, frame: Any) -> None:
        """Show what waits for a word: when it is asked, and once at the beginning."""
        if frame.type == "welcome":
            found = self.client.approvals(session_id=self.session["id"])
            open_now = {one["id"] for one in found}
            self.approvals = {key: one for key, one in self.approvals.items() if key in open_now}
        elif frame.type == "approval.requested":
            found = [self.client.approval(frame.payload["approval_id"])]
        elif frame.type == "approval.decided":
            self.approvals.pop(frame.payload["approval_id"], None)
            return
        else:
            return
        for one in found:
            if one["state"] == "pending" and one["id"] not in self.approvals:
                self.approvals[one["id"]] = one
                if not self.as_json:
                    self.renderer.note(f"{approving.description(one)}\n  {approving.HELP}")

    def _say(self, line: str) -> None:
        """Answer the oldest call that waits, if the line is an answer; else send it."""
        from holdfast.client.errors import ClientError

        waiting = next(iter(self.approvals.values()), None)
        answer = approving.read(line) if waiting is not None else None
        if answer is not None and waiting is not None:
            self.renderer.note(approving.answered(self.client, waiting, answer))
            return
        try:
            found = self.client.session(self.session["id"])
            if found["state"] == "paused" and found["active_run"]:
                self.client.resume(found["id"], found["current_checkpoint"], message=line)
                return
            accepted = self.client.send(found["id"], line, when_busy=_way_in(found))
        except ClientError as error:
            self.renderer.note(f"! {error}")
            return
        if accepted["run"] is None:
            self.renderer.note("· it waits until the session comes to it")
        elif accepted["session"]["state"] == "queued":
            self.renderer.note("· queued: too many sessions run at once")

    def _wait_until_idle(self) -> None:
        """Piped input has an end, but its answers should still be seen."""
        while self.client.session(self.session["id"])["state"] == "running":
            time.sleep(0.1)


def _way_in(session: dict[str, Any]) -> str:
    """How a line gets into a session that is busy."""
    return "queue" if session["state"] == "queued" else "steer"


def _table(client: Any, frame: dict[str, Any] | None) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from holdfast.cli import needs

    total = (frame or {}).get("payload", {}).get("total")
    title = None if total is None else f"{total} running"
    table = Table(
        "id", "state", "needs", "title", "active", "preview", box=box.SIMPLE_HEAD, title=title
    )
    for one in client.get("/sessions", limit=WATCH_ROWS)["items"]:
        cells = (one["id"], one["state"], needs.cell(one), one.get("title") or "-")
        rest = (ago(one.get("last_active")), one.get("preview") or "")
        table.add_row(
            *[Text(clean(cell), style=getattr(cell, "style", "")) for cell in (*cells, *rest)]
        )
    return table
