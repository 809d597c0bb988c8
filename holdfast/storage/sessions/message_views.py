"""A message as the wire shows it."""

from __future__ import annotations

import json
from typing import Any

from holdfast.storage.database.tables import Message

_OPENAI_ROLES = {"operator": "user", "primary": "assistant", "subagent": "assistant"}


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


def turn_json(shown: dict[str, Any]) -> dict[str, Any]:
    """A message as OpenAI spells it, for replay elsewhere (H-027); our own fields stay beside."""
    metadata = shown["metadata"]
    turn = {**shown, "role": _OPENAI_ROLES.get(shown["role"], shown["role"])}
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
