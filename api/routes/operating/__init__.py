"""The server itself: health, machines, operators, audit and usage, and pages that it serves."""
