"""The self-test of a fleet: several machines, their faults, and what they must keep"""
