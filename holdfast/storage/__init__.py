"""The only SQL, in rooms: each may import those below it."""
