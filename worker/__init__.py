"""Binds steps to activities, runs the Temporal worker and what goes on in the background."""
