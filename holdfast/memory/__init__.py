"""The memory index: what a project's notes say, in one SQLite file of its own."""
