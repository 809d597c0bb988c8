"""The chain of migrations makes exactly the tables that the code knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect
from sqlmodel import SQLModel

from holdfast.storage.database.opening import MIGRATIONS, REVISION, OpenStore


@pytest.mark.req("K-097", "K-101", "K-102", "K-103", "K-109")
def test_the_chain_makes_the_tables_that_the_code_knows(either_store: OpenStore) -> None:
    with either_store.reader.connect() as connection:
        names = set(inspect(connection).get_table_names())
        context = MigrationContext.configure(
            connection,
            opts={
                "include_name": lambda name, kind, _: (
                    kind != "table" or not str(name).startswith("search_")
                ),
                "compare_type": False,
            },
        )
        differences = compare_metadata(context, SQLModel.metadata)
    assert set(SQLModel.metadata.tables) <= names
    assert differences == []


def test_the_newest_revision_is_the_one_that_the_code_wants() -> None:
    revisions = sorted(
        line.split('"')[1]
        for file in Path(MIGRATIONS / "versions").glob("r*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("revision = ")
    )
    assert revisions[-1] == REVISION
