"""Folders opened once, by descriptor, and names resolved below them by the kernel"""
