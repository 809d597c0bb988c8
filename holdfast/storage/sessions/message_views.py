"""A message as the wire shows it, for answers and OpenAPI alike."""

from __future__ import annotations

import json
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from holdfast.storage.database.tables import Message
from holdfast.storage.sessions.lineage import CauseShown

_OPENAI_ROLES = {"operator": "user", "primary": "assistant", "subagent": "assistant"}


class MessageShown(TypedDict):
    """A message."""

    id: str
    session_id: str
    run_id: str | None
    seq: int
    role: str
    agent_path: str
    content: str
    created_at: int
    superseded: bool
    superseded_by: list[CauseShown]
    metadata: dict[str, Any]


class TurnShown(MessageShown):
    """A message with OpenAI's names for its role and its tool calls."""

    tool_call_id: NotRequired[str | None]
    name: NotRequired[str | None]
    tool_calls: NotRequired[list[dict[str, Any]]]


def message_json(message: Message, causes: list[CauseShown]) -> MessageShown:
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


def turn_json(shown: MessageShown) -> TurnShown:
    """A message as OpenAI spells it, for replay elsewhere (H-027); our own fields stay beside."""
    metadata = shown["metadata"]
    turn = cast(TurnShown, {**shown, "role": _OPENAI_ROLES.get(shown["role"], shown["role"])})
    if shown["role"] == "tool":
        turn["tool_call_id"] = metadata.get("tool_call_id")
        turn["name"] = metadata.get("tool_name")
    if metadata.get("tool_calls"):
        turn["tool_calls"] = [_openai_call(call) for call in metadata["tool_calls"]]
    return turn


def _openai_call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(call.get("arguments") or {}, ensure_ascii=False)
    function = {"name": call.get("name", ""), "arguments": arguments}
    return {"id": call.get("id", ""), "type": "function", "function": function}
