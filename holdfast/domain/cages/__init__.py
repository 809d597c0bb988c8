"""What a cage is in words: its defaults, how it is shown, and where it lets connect to."""
