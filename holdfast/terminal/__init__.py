"""The terminal host, its protocol and client, and cages."""
