"""Pages that are generated, and set-up."""
