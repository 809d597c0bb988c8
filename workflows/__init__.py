"""Decisions: what a session does next."""
