"""Binds steps to activities and runs the worker."""
