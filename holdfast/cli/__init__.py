"""The command holdfast: the supervisor and a client of the API."""
