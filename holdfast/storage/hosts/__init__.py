"""Hosts: machines with a terminal host, which sessions they have, and what was started on them."""
