"""The tools that a model sees, and those that run inside the worker."""
