"""Attacks of a model on the rules of its own session, and on the product."""
