"""A client that is quiet for long: it stays attached, and only the buffer grows old."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.storage.log import events, frames
from tests.support.servers.api_server import ApiServer, Caller, hear


@pytest.mark.req("K-090")
def test_a_quiet_client_stays_attached_while_the_buffer_passes_its_deadline(
    api: ApiServer, caller: Caller, tmp_path: Path
) -> None:
    session_id = caller.session(caller.project(tmp_path / "work")["id"])["id"]

    def stream(text: str) -> None:
        api.store.write(lambda db: frames.append(db, session_id, ("delta", {"text": text})))

    assert frames.KEEP_MS == 10 * 60 * 1000
    socket, _ = caller.attach(session_id)
    with socket:
        stream("early")
        assert hear(socket)["payload"]["text"] == "early"
        # As if the ten minutes had passed.
        assert api.store.write(lambda db: frames.prune(db, session_id, keep_ms=-10_000)) == 1
        assert caller.http.get(f"/sessions/{session_id}").json()["attached"] is True
        stream("late")
        assert hear(socket)["payload"]["text"] == "late"
        rows = api.store.read(lambda db: events.after(db, session_id, 0, limit=100))
        assert "session.detached" not in [row.kind for row in rows]
    again, first = caller.attach(session_id, resume_from_seq={"output": 0})
    again.close()
    assert first["payload"]["code"] == "resume_failed"
