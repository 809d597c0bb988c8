"""`holdfast up`: starts the parts, restarts them and stops them."""
