"""The supervisor of `holdfast up`: it starts the parts, restarts them and stops them."""
