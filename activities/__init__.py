"""Effects: what a step does to the world."""
