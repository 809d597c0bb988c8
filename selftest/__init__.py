"""A self-test of the product on the user's own machine."""
