"""`holdfast …`: the commands, and what each part of the product starts as."""
