"""Decisions: one workflow per session, the agent loop, subagents, memory syncs, the steps."""
