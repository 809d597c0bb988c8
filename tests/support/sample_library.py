"""Fills a store with sessions and messages, for tests of what reads them."""

from __future__ import annotations

from typing import Any

from holdfast.domain.clock import now_ms
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db, Store
from holdfast.storage.database.rows import insert_once
from holdfast.storage.database.tables import Message, Operator, Project, SessionRow
from holdfast.storage.search.finder import Answer, Search, find
from holdfast.storage.search.scope import Filters
from holdfast.storage.sessions import messages, sessions

OPERATOR = "operator-one"


class SampleLibrary:
    """A store with one operator and one project, and short words to fill it."""

    def __init__(self, store: Store, operator_id: str = OPERATOR) -> None:
        self.store = store
        self.operator_id = operator_id
        self.project_id = f"project-of-{operator_id}"
        store.write(self._prepare)

    def session(self, **columns: Any) -> str:
        """A new session's id."""
        values: dict[str, Any] = {
            "id": new_id(),
            "project_id": self.project_id,
            "created_by": self.operator_id,
            "working_directory": "/work",
            "dsl_hash": "hash",
            **columns,
        }
        return self.store.write(lambda db: sessions.create(db, SessionRow(**values)).id)

    def say(self, session_id: str, content: str, role: str = "operator", **columns: Any) -> Message:
        """A new message."""
        return self.store.write(
            lambda db: messages.append(db, session_id, role=role, content=content, **columns)
        )

    def search(self, text: str, **filters: Any) -> Answer:
        """A search as the operator."""
        options = {key: filters.pop(key) for key in ("sort", "limit", "offset") if key in filters}
        scope = Filters(operator_id=self.operator_id, **filters)
        return find(self.store, Search(text, scope, **options))

    def found(self, text: str, **filters: Any) -> set[str]:
        """The ids of the hits."""
        return {item["id"] for item in self.search(text, limit=500, **filters).items}

    def _prepare(self, db: Db) -> None:
        insert_once(
            db,
            Operator,
            {
                "id": self.operator_id,
                "name": self.operator_id,
                "created_at": now_ms(),
                "disabled": False,
            },
        )
        project = Project(
            id=self.project_id, created_by=self.operator_id, name="project", path="/work"
        )
        insert_once(db, Project, project.model_dump())
