"""Tool calls: the dispatcher, and the tools that need the store or the terminal host."""
