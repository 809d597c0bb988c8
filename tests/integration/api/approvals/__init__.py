"""Approvals over HTTP."""
