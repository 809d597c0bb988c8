"""A message as the wire shows it."""

from __future__ import annotations

from typing import Any

from storage.tables import Message


def message_json(message: Message, causes: list[dict[str, str]]) -> dict[str, Any]:
    """The message of API.md, section 3."""
    metadata = dict(message.meta)
    for key in ("tool_call_id", "tool_name", "tool_calls", "model", "invocation_id"):
        value = getattr(message, key)
        if value is not None:
            metadata[key] = value
    if message.pinned:
        metadata["pinned"] = True
    return {
        "id": message.id,
        "session_id": message.session_id,
        "run_id": message.run_id,
        "seq": message.seq,
        "role": message.role,
        "agent_path": message.agent_path,
        "content": message.content,
        "created_at": message.created_at,
        "superseded": bool(causes),
        "superseded_by": causes,
        "metadata": metadata,
    }
