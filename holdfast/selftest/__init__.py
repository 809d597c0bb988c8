"""The self-test: drives a product of its own, kills its parts, checks what it promised."""
