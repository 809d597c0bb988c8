"""Pauses, rollback, forks, heads, compactions: a session moves in its history."""
