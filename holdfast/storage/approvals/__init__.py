"""Calls that an operator is asked about, and the answers that are remembered as rules."""
