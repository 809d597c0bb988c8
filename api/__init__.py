"""HTTP and WebSocket: translate, never decide."""
