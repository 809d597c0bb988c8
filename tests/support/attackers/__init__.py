"""Those that a test lets loose on the product."""
