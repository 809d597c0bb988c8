"""Permissions: which tool calls are allowed, asked for or denied. Pure."""
