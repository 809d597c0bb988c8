"""Sessions, runs, messages, calls and terminals."""
