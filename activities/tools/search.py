"""The tool session_search: an agent looks through its operator's own sessions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.search.finder import Search, find
from holdfast.storage.search.scope import Filters

if TYPE_CHECKING:
    from activities.tools.tool_calls import ToolRequest

LIMIT = 10


class SearchTool:
    """Search over everything that the operator's sessions said."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store

    async def run(self, request: ToolRequest) -> ToolOutcome:
        """The best hits, with a snippet each."""
        arguments = request.call.input
        wanted = Search(
            text=str(arguments["query"]),
            filters=Filters(operator_id=request.session.created_by),
            limit=min(int(arguments.get("limit") or LIMIT), 50),
        )
        answer = await asyncio.to_thread(find, self.store, wanted)
        hits = [
            {key: item[key] for key in ("session_id", "role", "timestamp", "snippet")}
            for item in answer.items
        ]
        return ToolOutcome({"hits": hits, "count": len(hits)})
