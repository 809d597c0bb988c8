"""Column types that read the same on SQLite and on Postgres."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Column, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class JsonText(TypeDecorator[Any]):
    """JSON kept as text, so that both databases store the same bytes."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Text for the database; SQL NULL for None."""
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """The value that was stored."""
        return None if value is None else json.loads(value)


def json_column(*, nullable: bool = True) -> Column[Any]:
    """A fresh JSON column; SQLModel wants one object per field."""
    return Column(JsonText, nullable=nullable)


def text_column(*, nullable: bool = True) -> Column[Any]:
    """Text without a length."""
    return Column(Text, nullable=nullable)
