"""Faults: processes killed, disks full, providers and Temporal away."""
