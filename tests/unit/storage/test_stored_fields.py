"""Fields that are sent as they are stored have the types of their columns."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from sqlmodel import SQLModel

from holdfast.storage.database.tables import Run, SessionRow, SubagentInvocation, ToolCallRow
from holdfast.storage.database.tables_history import Checkpoint, Compaction, PromptEdit
from holdfast.storage.moves.checkpoint_snapshots import StoredCheckpoint
from holdfast.storage.moves.compactions import StoredCompaction
from holdfast.storage.moves.prompt_edits import EditShown
from holdfast.storage.sessions.run_views import InvocationShown, StoredRun, ToolCallShown
from holdfast.storage.sessions.session_views import StoredSession, UsageShown

STORED: list[tuple[Any, type[SQLModel]]] = [
    (StoredSession, SessionRow),
    (UsageShown, SessionRow),
    (StoredRun, Run),
    (ToolCallShown, ToolCallRow),
    (InvocationShown, SubagentInvocation),
    (StoredCheckpoint, Checkpoint),
    (EditShown, PromptEdit),
    (StoredCompaction, Compaction),
]


@pytest.mark.parametrize(("fields", "row"), STORED, ids=lambda one: one.__name__)
def test_a_stored_field_has_the_name_and_type_of_its_column(
    fields: Any, row: type[SQLModel]
) -> None:
    columns = {name: row.model_fields[name].annotation for name in fields.__annotations__}
    assert get_type_hints(fields) == columns
