"""Prompts, model providers, tools and compaction."""
