"""Events, output frames and the feed that wakes their readers."""
