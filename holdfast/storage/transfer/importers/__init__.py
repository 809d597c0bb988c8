"""Importers: one file for each program whose sessions can be brought in, listed in `table.py`."""
