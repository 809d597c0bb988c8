"""What can be asked of a server: the methods that Client and AsyncClient have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

from holdfast.client import exchanges
from holdfast.client.exchanges import Exchange
from holdfast.client.location import find_server
from holdfast.client.requests import Request
from holdfast.client.session_socket import SessionSocket

Answer = TypeVar("Answer")
Answers = TypeVar("Answers")
Stream = TypeVar("Stream")


class Operations(ABC, Generic[Answer, Answers, Stream]):
    """One operator's view of one server.

    `Answer` is JSON, `Answers` a list of JSON; AsyncClient has coroutines of them. Every method
    raises Refused with the server's code, or Unreachable.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.timeout_s = timeout_s

    @classmethod
    def from_environment(cls, *, timeout_s: float = 60.0) -> Self:
        """A client of HOLDFAST_URL with HOLDFAST_TOKEN, or of the product that is up in the home.

        Unreachable when neither says where the server is.
        """
        return cls(*find_server(), timeout_s=timeout_s)

    @abstractmethod
    def _run(self, exchange: Exchange[Any]) -> Any:
        """The result of the exchange, or a coroutine of it."""

    @abstractmethod
    def _stream(self, socket: SessionSocket) -> Stream:
        """The frames of this socket."""

    # Requests -----------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """One call below /api/v1: its JSON or text. A parameter that is None is left out."""
        request = Request(method, path, body, params, idempotency_key)
        answer: Answer = self._run(exchanges.single(request))
        return answer

    def get(self, path: str, **params: Any) -> Answer:
        """GET with query parameters."""
        return self.request("GET", path, params=params)

    def post(self, path: str, body: Any = None, **params: Any) -> Answer:
        """POST with a JSON body."""
        return self.request("POST", path, body=body, params=params)

    def items(self, path: str, *, items_max: int = 10_000, **params: Any) -> Answers:
        """Every item of a list, page after page, up to `items_max`."""
        found: Answers = self._run(exchanges.items(path, params, items_max))
        return found

    # Projects and sessions ----------------------------------------------------------------------

    def load_project(self, path: str, *, trust: bool = False) -> Answer:
        """Load the folder as a project; the same folder gives the same project.

        `trust` puts its whole project file in force; without, what it loosens waits: see `trust`
        of the answer.
        """
        return self.post("/projects/load", {"path": path, **({"trust": True} if trust else {})})

    def trust_project(self, project_id: str, dsl_hash: str) -> Answer:
        """Trust the project file with this hash; refused (409) when the file is another by now."""
        return self.post(f"/projects/{quote(project_id)}/trust", {"dsl_hash": dsl_hash})

    def create(self, project_id: str, **fields: Any) -> Answer:
        """A new session, idle."""
        return self.post(f"/projects/{quote(project_id)}/sessions", fields)

    def session(self, name: str) -> Answer:
        """A session by id, id prefix, alias or title."""
        return self.get(f"/sessions/{quote(name, safe='')}")

    def messages(self, session_id: str, **params: Any) -> Answers:
        """The session's messages, oldest first; those after the message `since` if it is given."""
        found: Answers = self._run(exchanges.messages(f"/sessions/{session_id}/messages", params))
        return found

    def send(
        self,
        session_id: str,
        content: str,
        *,
        model_override: str | None = None,
        when_busy: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Post one message; the answer follows on `stream`. Refused (409) while it is busy.

        With `when_busy` it is not: `queue` waits for a run of its own (`run` is None then),
        `steer` is said in the active run, `interrupt` ends that run first.
        While the server restarts it is sent again under the same key, so it is taken once.
        """
        body: dict[str, Any] = {"content": content}
        if model_override is not None:
            body["model_override"] = model_override
        if when_busy is not None:
            body["when_busy"] = when_busy
        path, key = f"/sessions/{session_id}/messages", idempotency_key or uuid4().hex
        request = Request("POST", path, body, idempotency_key=key)
        accepted: Answer = self._run(exchanges.repeated(request))
        return accepted

    def waiting(self, session_id: str) -> Answers:
        """The messages that wait in the session, in order."""
        return self.items(f"/sessions/{session_id}/waiting")

    def edit_waiting(self, session_id: str, message_id: str, content: str) -> Answer:
        """Change the words of a message that waits."""
        path = f"/sessions/{session_id}/waiting/{message_id}"
        return self.request("PATCH", path, body={"content": content})

    def withdraw_waiting(self, session_id: str, message_id: str) -> Answer:
        """Take a message back that waits."""
        return self.request("DELETE", f"/sessions/{session_id}/waiting/{message_id}")

    def resume(self, session_id: str, checkpoint_id: str, *, message: str | None = None) -> Answer:
        """Go on from the pause point; `message` answers what the model asked there."""
        body = {} if message is None else {"message": message}
        return self.post(f"/sessions/{session_id}/checkpoints/{checkpoint_id}/resume", body)

    def cancel(self, session_id: str, run_id: str) -> Answer:
        """Stop the run; partial text is kept."""
        return self.post(f"/sessions/{session_id}/runs/{run_id}/cancel")

    def retry(self, session_id: str, run_id: str) -> Answer:
        """Run the last run's message again, if it failed or was cancelled."""
        return self.post(f"/sessions/{session_id}/runs/{run_id}/retry")

    def see(self, session_id: str) -> Answer:
        """Somebody has seen that a run failed: the session no longer asks for attention by it."""
        return self.post(f"/sessions/{session_id}/attention/seen")

    def end(self, session_id: str) -> Answer:
        """End the session for good (it can be reopened after a clean end)."""
        return self.request("DELETE", f"/sessions/{session_id}", params={"confirm": "true"})

    def wait_for_run(self, session_id: str, run_id: str, *, timeout_s: float = 600.0) -> Answer:
        """The run once it is over; TimeoutError when that takes too long."""
        path = f"/sessions/{session_id}/runs/{run_id}"
        run: Answer = self._run(exchanges.finished_run(path, timeout_s))
        return run

    # Approvals ----------------------------------------------------------------------------------

    def approvals(self, *, state: str = "pending", session_id: str | None = None) -> Answers:
        """The calls that wait for the operator's word, oldest first; `state` may be `all`."""
        return self.items("/approvals", state=state, session_id=session_id)

    def approval(self, approval_id: str) -> Answer:
        """One call that waits for the operator's word, or did."""
        return self.get(f"/approvals/{quote(approval_id)}")

    def decide(
        self,
        approval_id: str,
        decision: str,
        *,
        note: str | None = None,
        remember: str | None = None,
        pattern: str | None = None,
    ) -> Answer:
        """`allow` or `deny` the call; refused (409) when somebody answered otherwise before.

        The model reads the note of a denial. With `remember` (`session` or `project`) the answer
        holds for later calls that match the pattern, or are the same.
        """
        given = {"note": note, "remember": remember, "pattern": pattern}
        body = {"decision": decision} | {k: v for k, v in given.items() if v is not None}
        return self.post(f"/approvals/{quote(approval_id)}", body)

    def permissions(
        self, *, session_id: str | None = None, project_id: str | None = None
    ) -> Answer:
        """The rules that were remembered for a session, or for a project."""
        return self.get("/permissions", session_id=session_id, project_id=project_id)

    def forget_permissions(
        self,
        *,
        session_id: str | None = None,
        project_id: str | None = None,
        rule_id: str | None = None,
    ) -> Answer:
        """Forget the rule, or all of the session's or the project's; what is gone."""
        params = {"session_id": session_id, "project_id": project_id, "id": rule_id}
        return self.request("DELETE", "/permissions", params=params)

    # Frames -------------------------------------------------------------------------------------

    def stream(
        self,
        session_id: str,
        *,
        observe: bool = True,
        resume_from: dict[str, int] | None = None,
        give_up_after_s: float = 60.0,
    ) -> Stream:
        """The session's frames, live; it reconnects by itself and continues at its seq.

        Unreachable when no connection stands for `give_up_after_s`.
        """
        socket = SessionSocket(
            self.url,
            self.token,
            session_id,
            observe=observe,
            resume_from=resume_from,
            give_up_after_s=give_up_after_s,
        )
        return self._stream(socket)
