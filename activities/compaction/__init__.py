"""Steps that make a context smaller."""
