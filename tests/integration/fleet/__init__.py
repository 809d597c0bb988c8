"""Several machines on one Postgres: its absence, a pooler in front of it, and shared counters."""
