"""`Client`, `AsyncClient`: HTTP calls, and sockets that reconnect by themselves."""
