"""Snapshots of a working directory in a shadow git directory."""
