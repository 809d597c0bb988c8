"""Operators, their projects and the project files."""
