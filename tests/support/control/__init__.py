"""Helpers for tests of an operator in control."""
