"""Where the proxy of a cage listens inside, and the variables that tell programs so."""

ADDRESS = ("127.0.0.1", 3128)
URL = f"http://{ADDRESS[0]}:{ADDRESS[1]}"
LOCAL = "localhost,127.0.0.1,::1"
# Programs differ in which of these they look at.
VARIABLES = {
    **{name: URL for key in ("http_proxy", "https_proxy") for name in (key, key.upper())},
    **{"no_proxy": LOCAL, "NO_PROXY": LOCAL, "NODE_USE_ENV_PROXY": "1"},
}
