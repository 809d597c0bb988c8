"""The vocabulary of sessions: states and their one table, commands, events, errors. Pure."""
