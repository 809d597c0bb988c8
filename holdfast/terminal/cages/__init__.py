"""Cages: the policy of one agent, and what holds its programs to it."""
