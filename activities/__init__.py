"""Effects: what a step does to the world, one file per family."""
