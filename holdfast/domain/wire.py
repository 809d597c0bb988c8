"""Names by which the API, the worker and the Temporal UI find a session's workflow."""

from __future__ import annotations

WORKFLOW = "Session"
SUBAGENT_WORKFLOW = "Subagent"
MEMORY_WORKFLOW = "MemorySync"
CHANGES_WORKFLOW = "Changes"


SEARCH_ATTRIBUTES = ("SessionState", "Project", "Operator", "Title")

# Where the API shows the UI of the embedded Temporal server.
TEMPORAL_UI_PATH = "/temporal"

TASK_TIMEOUT_S = 5

# The one failure of a step that fails its whole session.
STORE_DAMAGED = "store_damaged"
BLOB_MISSING = "blob_missing"

# An update that failed with one of these may be sent again under its id: it does nothing twice.
PASSING_STATUSES = frozenset(
    {
        "FAILED_PRECONDITION",
        "UNAVAILABLE",
        "RESOURCE_EXHAUSTED",
        "CANCELLED",
        "UNKNOWN",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ABORTED",
    }
)
# The type of the failure of an update whose workflow ended or rolled over before it was answered.
UPDATE_LOST = "AcceptedUpdateCompletedWorkflow"
