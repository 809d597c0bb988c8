"""A small Python client of Holdfast: create sessions, send messages, stream answers with resume."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import quote
from uuid import uuid4

import httpx2

from holdfast.client.errors import ClientError, Refused, Unreachable
from holdfast.client.stream import Frame, SessionStream

__all__ = ["Client", "ClientError", "Frame", "Refused", "SessionStream", "Unreachable"]

Json: TypeAlias = Any
PAGE = 500
REPEAT_FOR_S, REPEAT_EVERY_S = 30.0, 0.25


class Client:
    """One operator's view of one server. Use it as a context manager, or call `close`."""

    def __init__(self, url: str, token: str, *, timeout_s: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.http = httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout_s,
            trust_env=False,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections."""
        self.http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        params: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        """One call under /api/v1: its JSON (or text), or Refused with the server's words."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        chosen = {key: value for key, value in (params or {}).items() if value is not None}
        try:
            answer = self.http.request(
                method, f"/api/v1{path}", json=body, params=chosen or None, headers=headers
            )
        except httpx2.TransportError as error:
            raise Unreachable(f"no answer from {self.url}: {error}") from error
        if answer.is_error:
            raise _refusal(answer)
        if answer.headers.get("content-type", "").startswith("application/json"):
            return answer.json() if answer.content else None
        return answer.text

    def get(self, path: str, **params: Any) -> Json:
        """GET with query parameters; None leaves one out."""
        return self.request("GET", path, params=params)

    def post(self, path: str, body: Json = None, **params: Any) -> Json:
        """POST with a JSON body."""
        return self.request("POST", path, body=body, params=params)

    def lines(self, path: str, **params: Any) -> Iterator[str]:
        """A long answer line by line, as it comes."""
        chosen = {key: value for key, value in params.items() if value is not None}
        try:
            with self.http.stream("GET", f"/api/v1{path}", params=chosen or None) as answer:
                if answer.is_error:
                    answer.read()
                    raise _refusal(answer)
                yield from _lines(answer.iter_bytes())
        except httpx2.TransportError as error:
            raise Unreachable(f"no answer from {self.url}: {error}") from error

    def items(self, path: str, *, items_max: int = 10_000, **params: Any) -> list[Json]:
        """Every item of a list, page after page, up to `items_max`."""
        found: list[Json] = []
        cursor: str | None = None
        while len(found) < items_max:
            limit = min(PAGE, items_max - len(found))
            page = self.get(path, **{**params, "limit": limit, "cursor": cursor})
            found += page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        return found

    # Projects and sessions ----------------------------------------------------------------------

    def load_project(self, path: str) -> Json:
        """Load the folder as a project; the same folder gives the same project."""
        return self.post("/projects/load", {"path": path})

    def create(self, project_id: str, **fields: Any) -> Json:
        """A new session, idle."""
        return self.post(f"/projects/{quote(project_id)}/sessions", fields)

    def session(self, name: str) -> Json:
        """A session by id, id prefix, alias or title."""
        return self.get(f"/sessions/{quote(name, safe='')}")

    def messages(self, session_id: str, **params: Any) -> list[Json]:
        """The session's messages, oldest first."""
        found: list[Json] = []
        since = params.pop("since", None)
        while True:
            page = self.get(f"/sessions/{session_id}/messages", since=since, limit=PAGE, **params)
            found += page["items"]
            if len(page["items"]) < PAGE:
                return found
            since = page["items"][-1]["id"]

    def send(
        self,
        session_id: str,
        content: str,
        *,
        model_override: str | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        """Post one message; the answer follows on `stream`. Refused (409) while it is busy.

        While the server restarts it is sent again under the same key, so it is taken once.
        """
        body: dict[str, Any] = {"content": content}
        if model_override is not None:
            body["model_override"] = model_override
        path = f"/sessions/{session_id}/messages"
        key = idempotency_key or uuid4().hex
        deadline = time.monotonic() + REPEAT_FOR_S
        while True:
            try:
                return self.request("POST", path, body=body, idempotency_key=key)
            except (Refused, Unreachable) as error:
                passing = isinstance(error, Unreachable) or error.status == 503
                if not passing or time.monotonic() > deadline:
                    raise
            time.sleep(REPEAT_EVERY_S)

    def cancel(self, session_id: str, run_id: str) -> Json:
        """Stop the run; partial text is kept."""
        return self.post(f"/sessions/{session_id}/runs/{run_id}/cancel")

    def end(self, session_id: str) -> Json:
        """End the session for good (it can be reopened after a clean end)."""
        return self.request("DELETE", f"/sessions/{session_id}", params={"confirm": "true"})

    def wait_for_run(self, session_id: str, run_id: str, *, timeout_s: float = 600.0) -> Json:
        """The run once it is over; TimeoutError when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while True:
            run = self.get(f"/sessions/{session_id}/runs/{run_id}")
            if run["state"] in {"done", "failed", "cancelled"}:
                return run
            if time.monotonic() > deadline:
                raise TimeoutError(f"run {run_id} is still {run['state']}")
            time.sleep(0.05)

    # Streams ------------------------------------------------------------------------------------

    def stream(
        self,
        session_id: str,
        *,
        observe: bool = True,
        resume_from: dict[str, int] | None = None,
    ) -> SessionStream:
        """The session's frames, live; it reconnects by itself and continues at its seq."""
        return SessionStream(
            self.url, self.token, session_id, observe=observe, resume_from=resume_from
        )

    def ask(self, session_id: str, content: str, **options: Any) -> Iterator[Frame]:
        """Send a message and yield the frames of its run until that run is over.

        The first frame is `control.accepted` with what the POST answered.
        """
        stream = self.stream(session_id)
        run_id: str | None = None
        try:
            for frame in stream:
                if frame.type == "welcome" and run_id is None:
                    accepted = self.send(session_id, content, **options)
                    run_id = accepted["run"]["id"]
                    yield Frame("control", "accepted", accepted)
                    if accepted["session"]["state"] == "queued":
                        return
                    continue
                yield frame
                if run_id is not None and ends_run(frame, run_id):
                    return
        finally:
            stream.close()


def ends_run(frame: Frame, run_id: str) -> bool:
    """Whether this frame says that the run is over, or will not go on by itself."""
    if frame.type in {"run.completed", "run.cancelled"}:
        return frame.payload.get("run_id") == run_id
    if frame.type == "session.state":
        return frame.payload.get("to_state") in {"paused", "ended", "failed"}
    return frame.type == "closing" and frame.payload.get("code") != "resume_failed"


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Lines end with a newline and nothing else: U+2028 in a text is no end of a line."""
    parts: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for start in others:
            yield b"".join(parts).decode()
            parts = [start]
    if rest := b"".join(parts):
        yield rest.decode()


def _refusal(answer: httpx2.Response) -> Refused:
    try:
        error = answer.json()["error"]
        return Refused(answer.status_code, error["code"], error["message"], error.get("details"))
    except (ValueError, KeyError, TypeError):
        return Refused(
            answer.status_code, "unknown", f"HTTP {answer.status_code}: {answer.text[:200]}"
        )
