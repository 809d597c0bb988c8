"""The authority of a fleet: who may call a terminal host, and how a machine joins"""
