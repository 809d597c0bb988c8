"""Foreign keys: every reference of the seeds' schemas, in both databases, and no row changed.

SQLite cannot add a key to a table that is there. Its text in `sqlite_master` is edited instead of
copying the table (decision 19): no row is written, and it is one transaction, so an upgrade that
is killed begins again. Rows whose target is missing are kept and logged.
"""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa
import structlog
from alembic import op

revision = "0006"
down_revision = "0005"

_INDEX = "ix_run_pty_transcripts_run_id"
_log = structlog.get_logger(__name__)


class Key(NamedTuple):
    """`table.column` names the id of a row of `target`."""

    table: str
    column: str
    target: str
    on_delete: str = ""

    @property
    def name(self) -> str:
        """What the constraint is called."""
        return f"fk_{self.table}_{self.column}"

    @property
    def clause(self) -> str:
        """The constraint as it stands in the definition of a table."""
        return (
            f"CONSTRAINT {self.name} FOREIGN KEY({self.column})"
            f" REFERENCES {self.target} (id){self.on_delete}"
        )


_SET_NULL = " ON DELETE SET NULL"
KEYS = (
    Key("sessions", "project_id", "projects"),
    Key("sessions", "parent_session_id", "sessions", _SET_NULL),
    Key("sessions", "bound_issue", "issues"),
    Key("messages", "session_id", "sessions"),
    Key("runs", "session_id", "sessions"),
    Key("subagent_invocations", "run_id", "runs"),
    Key("tool_calls", "run_id", "runs"),
    Key("checkpoints", "session_id", "sessions"),
    Key("run_pty_transcripts", "run_id", "runs", _SET_NULL),
    Key("prompt_edits", "checkpoint_id", "checkpoints"),
)
TABLES = tuple(dict.fromkeys(key.table for key in KEYS))


class SchemaEditFailed(Exception):
    """The edited schema is not the one that was meant; the upgrade is rolled back."""


def upgrade() -> None:
    """Add the keys, and the one index that was missing to look up rows by a key."""
    connection = op.get_bind()
    op.create_index(_INDEX, "run_pty_transcripts", ["run_id"])
    if connection.dialect.name == "sqlite":
        _edit_tables(connection, add=True)
        for key in KEYS:
            _tell_of_orphans(connection, key)
        return
    for key in KEYS:
        op.execute(f"ALTER TABLE {key.table} ADD {key.clause} NOT VALID")
        if _tell_of_orphans(connection, key) == 0:
            op.execute(f"ALTER TABLE {key.table} VALIDATE CONSTRAINT {key.name}")


def downgrade() -> None:
    """Take the keys and the index away."""
    connection = op.get_bind()
    op.drop_index(_INDEX, "run_pty_transcripts")
    if connection.dialect.name == "sqlite":
        _edit_tables(connection, add=False)
        return
    for key in KEYS:
        op.drop_constraint(key.name, key.table, type_="foreignkey")


def _edit_tables(connection: sa.Connection, *, add: bool) -> None:
    """Write the definitions with their keys, or without; no row is read or written."""
    connection.exec_driver_sql("PRAGMA writable_schema=ON")
    try:
        for table in TABLES:
            _edit_table(connection, table, add=add)
        # Other connections read the schema again when this number has changed.
        version = int(connection.exec_driver_sql("PRAGMA schema_version").scalar_one())
        connection.exec_driver_sql(f"PRAGMA schema_version={version + 1}")
    finally:
        # Also lets this connection read the schema again.
        connection.exec_driver_sql("PRAGMA writable_schema=RESET")
    for table in TABLES:
        _check_table(connection, table, has_keys=add)


def _edit_table(connection: sa.Connection, table: str, *, add: bool) -> None:
    place = sa.table("sqlite_master", sa.column("type"), sa.column("name"), sa.column("sql"))
    mine = place.c.type == "table", place.c.name == table
    text = str(connection.execute(sa.select(place.c.sql).where(*mine)).scalar_one())
    for key in KEYS:
        if key.table == table:
            clause = f", \n\t{key.clause}"
            body, _, end = text.rpartition(")")
            text = f"{body.rstrip()}{clause}\n){end}" if add else text.replace(clause, "")
    connection.execute(sa.update(place).where(*mine).values(sql=text))


def _check_table(connection: sa.Connection, table: str, *, has_keys: bool) -> None:
    """SQLite sees the keys that were meant, and the table and its indexes are sound."""
    found = connection.exec_driver_sql(f"PRAGMA foreign_key_list({table})")
    seen = {(row[3], row[2]) for row in found}
    meant = {(key.column, key.target) for key in KEYS if has_keys and key.table == table}
    if seen != meant:
        raise SchemaEditFailed(f"the keys of {table} are {sorted(seen)}, not {sorted(meant)}")
    state = connection.exec_driver_sql(f"PRAGMA integrity_check({table})").scalar_one()
    if state != "ok":
        raise SchemaEditFailed(f"{table} is damaged: {state}")


def _tell_of_orphans(connection: sa.Connection, key: Key) -> int:
    """Log how many rows name what is not there; they are kept."""
    child = sa.table(key.table, sa.column(key.column))
    parent = sa.table(key.target, sa.column("id")).alias("target")
    named = child.c[key.column]
    there = sa.select(parent.c.id).where(parent.c.id == named).exists()
    missing = sa.select(sa.func.count()).select_from(child).where(named.is_not(None), ~there)
    rows = int(connection.execute(missing).scalar_one())
    if rows:
        _log.warning(
            "migration.orphans_kept",
            words=f"rows of {key.table} that name a missing row of {key.target}: {rows};"
            " they are kept, and `holdfast doctor` lists them",
            table=key.table,
            column=key.column,
            target=key.target,
            rows=rows,
        )
    return rows
