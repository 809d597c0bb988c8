"""The self-test: drives a product of its own, kills its parts, and checks what it was promised."""
