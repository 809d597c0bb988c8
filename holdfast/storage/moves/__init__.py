"""Pause, rollback, fork, compaction and heads: everything that moves a session in its history."""
