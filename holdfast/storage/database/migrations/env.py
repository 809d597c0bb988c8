"""Runs the chain on the connection that the store hands over."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_as_batch=True,
    transactional_ddl=True,
    include_name=lambda name, kind, _: kind != "table" or not str(name).startswith("search_"),
)
with context.begin_transaction():
    context.run_migrations()
