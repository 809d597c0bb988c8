"""What a terminal shows: the ring of bytes, the emulator and its snapshots."""
