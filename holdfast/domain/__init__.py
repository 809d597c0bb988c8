"""The vocabulary of sessions: states, commands, events, errors. Pure."""
