"""What turns text into vectors: over HTTP, with a local model, with fallback and deadline."""
