"""Full text search over every committed message and terminal transcript."""
