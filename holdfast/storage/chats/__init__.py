"""Chats of connectors: who talks where, and which session answers."""
