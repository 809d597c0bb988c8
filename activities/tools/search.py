"""The tool session_search: an agent looks through its operator's own sessions."""

from __future__ import annotations

import asyncio

from activities.tools.requests import ToolRequest
from holdfast.agent.tools.outcome import ToolOutcome
from holdfast.agent.tools.specs import SessionSearchArguments
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.search.finder import Search, find
from holdfast.storage.search.scope import Filters


class SearchTool:
    """Search over everything that the operator's sessions said."""

    def __init__(self, store: OpenStore) -> None:
        self.store = store

    async def run(self, request: ToolRequest, arguments: SessionSearchArguments) -> ToolOutcome:
        """The best hits, with a snippet each."""
        wanted = Search(
            text=arguments.query,
            filters=Filters(operator_id=request.session.created_by),
            limit=arguments.limit,
        )
        answer = await asyncio.to_thread(find, self.store, wanted)
        hits = [
            {key: item[key] for key in ("session_id", "role", "timestamp", "snippet")}
            for item in answer.items
        ]
        return ToolOutcome({"hits": hits, "count": len(hits)})
