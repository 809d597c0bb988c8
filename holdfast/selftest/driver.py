"""One client at work: it talks, runs tools, pauses, forks, searches, and notes each yes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.selftest import scripts
from holdfast.selftest.caller import Caller, GaveUp, Reply
from holdfast.selftest.record import Record
from holdfast.selftest.watcher import Watcher

SESSIONS_MAX = 5
RUN_TIMEOUT_S = 240.0
POLL_S = 0.15
PROJECT_FILE = """\
version: 1
project: selftest-{number}
primary:
  cage: {cage}
  subagents:
    helper: {{}}
limits:
  running_sessions: {limit}
"""


class Driver(threading.Thread):
    """A client with a project, a few sessions and a generator of its own."""

    def __init__(
        self, number: int, folder: Path, url: str, token: str, record: Record, seed: str
    ) -> None:
        super().__init__(daemon=True, name=f"driver-{number}")
        self.number = number
        self.folder = folder
        self.address = (url, token)
        self.record = record
        self.seed = seed
        self.random = random.Random(f"{seed}/driver-{number}")
        self.caller = Caller(url, token, record)
        self.over = threading.Event()
        self.project_id = ""
        self.sessions: list[str] = []
        # Those that made way for others, too: in the end each of them must be well.
        self.known: list[str] = []
        self.words: list[str] = []
        self.watchers: list[Watcher] = []
        self._word_count = 0

    def run(self) -> None:
        """Act until told to stop."""
        for number in count():
            if self.over.is_set():
                return
            self.do(self.choose(number))

    def choose(self, number: int) -> Callable[[], None]:
        """The act of this number: a seed repeats it, whatever became of the acts before."""
        acts = self.acts()
        self.random = random.Random(f"{self.seed}/driver-{self.number}/{number}")
        return self.random.choices(list(acts), list(acts.values()))[0]

    def do(self, act: Callable[[], None]) -> None:
        """One act; no answer for minutes is a finding, and the next act comes all the same."""
        try:
            if not self.project_id:
                self._load_project()
            act()
        except GaveUp as error:
            self.record.find("no_answer", f"no answer for minutes: {error}")

    def acts(self) -> dict[Callable[[], None], int]:
        """What a client does, and how often beside the others."""
        return {
            self.talk: 4,
            self.run_tool: 5,
            self.ask_subagents: 2,
            self.pause_by_model: 1,
            self.pause_and_go_on: 2,
            self.cancel: 1,
            self.fork: 1,
            self.compact: 1,
            self.open_terminal: 1,
            self.search: 2,
            self.end_and_reopen: 1,
        }

    def stop(self) -> None:
        """Finish the act that is going on, then rest."""
        self.over.set()
        self.join(timeout=RUN_TIMEOUT_S * 2)

    # Acts ---------------------------------------------------------------------------------------

    def talk(self) -> None:
        """A message and its streamed answer."""
        self._ask(self._session(), scripts.talk(self.random))

    def run_tool(self) -> None:
        """A shell command or file tools."""
        word = self._word()
        if self.random.random() < 0.7:
            self._expect(word)
            script = scripts.shell(self.random, word)
        else:
            script = scripts.files(self.random, word)
        self._ask(self._session(), script)

    def ask_subagents(self) -> None:
        """One to three subagents at once."""
        words = [self._word() for _ in range(self.random.randint(1, 3))]
        for word in words:
            self._expect(word)
        self._ask(self._session(), scripts.subagents(self.random, words))

    def pause_by_model(self) -> None:
        """The model pauses the session; the operator lets it go on."""
        self._ask(self._session(), scripts.pausing())

    def pause_and_go_on(self) -> None:
        """The operator pauses a run, then resumes it or rolls it back."""
        session_id = self._session()
        if self._send_long(session_id) is None:
            return
        reply = self.caller.post(f"/sessions/{session_id}/checkpoints", {"reason": "selftest"})
        if reply.ok:
            self.record.acknowledge("checkpoint", session_id, reply.body["id"])
        self._bring_to_rest(session_id)

    def cancel(self) -> None:
        """The operator stops a run."""
        session_id = self._session()
        run_id = self._send_long(session_id)
        if run_id is None:
            return
        reply = self.caller.post(f"/sessions/{session_id}/runs/{run_id}/cancel")
        if reply.ok:
            self.record.acknowledge("cancel", session_id, run_id)
        self._bring_to_rest(session_id)

    def fork(self) -> None:
        """A second session from the head of a first; it takes the place of another."""
        source = self._session()
        made = self._create(resume_from=source)
        if made.ok:
            self.record.acknowledge("fork", made.body["id"], source)
            self._adopt(made.body["id"])
            self._ask(made.body["id"], scripts.talk(self.random))

    def compact(self) -> None:
        """The operator makes a context shorter."""
        session_id = self._session()
        strategy = self.random.choice(["drop", "summarize"])
        reply = self.caller.post(f"/sessions/{session_id}/compact", {"strategy": strategy})
        if reply.ok:
            self.record.acknowledge("compaction", session_id, reply.body["id"])

    def open_terminal(self) -> None:
        """A terminal of the operator's own, opened and closed."""
        session_id = self._session()
        body = {"command": "echo here; sleep 1", "cols": 80, "rows": 24}
        reply = self.caller.post(f"/sessions/{session_id}/ptys", body)
        if reply.ok:
            pty_id = reply.body["pty_id"]
            self.record.acknowledge("terminal", session_id, pty_id)
            self.caller.delete(f"/sessions/{session_id}/ptys/{pty_id}")

    def search(self) -> None:
        """Whatever was acknowledged can be found from then on."""
        if not self.words:
            return
        word = self.random.choice(self.words[-20:])
        reply = self.caller.get("/search", q=word)
        if reply.ok and not reply.body["items"]:
            self.record.find("search_missed", f"{word} was acknowledged and is not found")

    def end_and_reopen(self) -> None:
        """A session ends, cleanly, and is opened again."""
        session_id = self._session()
        reply = self.caller.delete(f"/sessions/{session_id}", confirm="true")
        if reply.ok:
            self.record.acknowledge("end", session_id, session_id)
        self.caller.post(f"/sessions/{session_id}/reopen")

    # Ways ---------------------------------------------------------------------------------------

    def close_session(self, session_id: str) -> None:
        """The last check of a session: it comes to rest and takes one more message."""
        if not self._bring_to_rest(session_id):
            return
        state = self._state(session_id)
        if state == "idle" and not self._ask(session_id, [{"say": "The last one."}]):
            self.record.find("session_stuck", "it takes no more messages", session_id)

    def _ask(self, session_id: str, script: scripts.Script) -> bool:
        """Send a message and see its run through; false when it was refused."""
        return self._send(session_id, script) is not None and self._bring_to_rest(session_id)

    def _send_long(self, session_id: str) -> str | None:
        word = self._word()
        self._expect(word)
        run_id = self._send(session_id, scripts.long_run(self.random, word))
        if run_id is not None:
            self.over.wait(self.random.uniform(0.0, 2.5))
        return run_id

    def _send(self, session_id: str, script: scripts.Script) -> str | None:
        word = self._word()
        content = scripts.message(word, script)
        reply = self.caller.post(f"/sessions/{session_id}/messages", {"content": content})
        if not reply.ok:
            self.record.refuse(word)
            self._bring_to_rest(session_id)
            return None
        message, run = reply.body["message"], reply.body["run"]
        self.record.acknowledge("message", session_id, message["id"], word=word, run_id=run["id"])
        self.words.append(word)
        return str(run["id"])

    def _bring_to_rest(self, session_id: str) -> bool:
        """Until the session waits for nobody: queued and paused ones are let go on."""
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while time.monotonic() < deadline:
            session = self.caller.get(f"/sessions/{session_id}").body
            match session.get("state"):
                case "queued":
                    self.caller.post(f"/sessions/{session_id}/resume")
                case "paused":
                    self._let_go_on(session_id, session.get("current_checkpoint"))
                case "running":
                    pass
                case "ended":
                    self.caller.post(f"/sessions/{session_id}/reopen")
                case _:
                    return True
            time.sleep(POLL_S)
        self.record.find("session_stuck", f"still {session.get('state')}", session_id)
        return False

    def _let_go_on(self, session_id: str, checkpoint_id: Any) -> None:
        act = self.random.choice(["resume", "resume", "rollback"])
        reply = self.caller.post(f"/sessions/{session_id}/checkpoints/{checkpoint_id}/{act}")
        if reply.ok:
            self.record.acknowledge(act, session_id, str(checkpoint_id))

    def _session(self) -> str:
        """One of this client's sessions; the first few are made on the way."""
        if len(self.sessions) < 2 or (
            len(self.sessions) < SESSIONS_MAX and self.random.random() < 0.1
        ):
            made = self._create()
            if made.ok:
                self.record.acknowledge("session", made.body["id"], made.body["id"])
                self._adopt(made.body["id"])
        return self.random.choice(self.sessions)

    def _create(self, **fields: Any) -> Reply:
        return self.caller.post(f"/projects/{self.project_id}/sessions", fields)

    def _adopt(self, session_id: str) -> None:
        if len(self.sessions) >= SESSIONS_MAX:
            self.sessions.remove(self.random.choice(self.sessions))
        self.sessions.append(session_id)
        self.known.append(session_id)
        if len(self.watchers) < 2:
            self.watchers.append(Watcher(*self.address, session_id, self.record))
            self.watchers[-1].start()

    def _load_project(self) -> None:
        (self.folder / ".holdfast").mkdir(parents=True, exist_ok=True)
        text = PROJECT_FILE.format(
            number=self.number,
            cage="disabled" if self.number % 2 else "{}",
            limit=2 if self.number == 0 else 8,
        )
        (self.folder / ".holdfast" / "project.yaml").write_text(text, encoding="utf-8")
        reply = self.caller.post("/projects/load", {"path": str(self.folder), "trust": True})
        if not reply.ok:
            raise GaveUp(f"the project cannot be loaded: {reply.body}")
        self.project_id = reply.body["id"]

    def _state(self, session_id: str) -> str:
        return str(self.caller.get(f"/sessions/{session_id}").body.get("state"))

    def _expect(self, word: str) -> None:
        self.record.expect_line(word, str(self.folder / scripts.LINES))

    def _word(self) -> str:
        """A word that occurs nowhere else."""
        self._word_count += 1
        return f"word{self.number}x{self._word_count}x{self.random.getrandbits(32):08x}"
