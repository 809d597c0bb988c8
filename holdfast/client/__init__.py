"""The Python client: HTTP calls and sockets that reconnect by themselves."""
