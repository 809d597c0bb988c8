"""Sockets: a session's frames without a gap or a duplicate, and the system's running counts."""
