"""Consistency, retention, removal, orphans and the footprint."""
