"""The Alembic chain, for SQLite and Postgres alike."""
