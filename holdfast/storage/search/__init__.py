"""Full text over every committed message and terminal transcript."""
