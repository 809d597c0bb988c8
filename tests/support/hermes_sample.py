"""A small `state.db` as Hermes writes it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

SCHEMA = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT,
    system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL,
    end_reason TEXT, message_count INTEGER, tool_call_count INTEGER, input_tokens INTEGER,
    output_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER,
    reasoning_tokens INTEGER, billing_provider TEXT, billing_base_url TEXT, billing_mode TEXT,
    estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT, cost_source TEXT,
    pricing_version TEXT, title TEXT, api_call_count INTEGER);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL,
    content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
    token_count INTEGER, finish_reason TEXT, reasoning TEXT, reasoning_content TEXT,
    reasoning_details TEXT, codex_reasoning_items TEXT, codex_message_items TEXT);
"""
FIRST, SECOND = "20260101_120000_abc123", "20260102_090000_def456"


def write_state_db(path: Path) -> sqlite3.Connection:
    """Two sessions, the second going on from the first; still open, as while Hermes runs."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(SCHEMA)
    connection.execute("INSERT INTO schema_version VALUES (11)")
    connection.executemany(
        "INSERT INTO sessions (id, source, model, system_prompt, parent_session_id, started_at,"
        " ended_at, end_reason, input_tokens, output_tokens, estimated_cost_usd, cost_status,"
        " title, api_call_count) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (FIRST, "telegram", "anthropic/claude", "Be kind.", None, 1767268800.5,
             1767272400.0, "compression", 100, 50, 0.25, "estimated", "Trip", 3),
            (SECOND, "telegram", "anthropic/claude", None, FIRST, 1767344400.0,
             None, None, 10, 5, None, None, "Trip #2", 1),
        ],
    )  # fmt: skip
    calls = '[{"id": "c1", "type": "function", "function":'
    calls += ' {"name": "terminal", "arguments": "{\\"command\\": \\"ls kyoto\\"}"}}]'
    connection.executemany(
        "INSERT INTO messages (session_id, role, content, tool_calls, tool_call_id, tool_name,"
        " timestamp) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (FIRST, "user", "Plan a trip to Kyoto", None, None, None, 1767268801.25),
            (FIRST, "assistant", None, calls, None, None, 1767268802.0),
            (FIRST, "tool", "temples.txt", None, "c1", "terminal", 1767268803.0),
            (FIRST, "assistant", "Done", None, None, None, 1767268804.0),
            (SECOND, "user", "And Nara?", None, None, None, 1767344401.0),
        ],
    )
    connection.commit()
    return connection
