"""One pydantic-ai model with its HTTP client per route and event loop, kept for the next call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from weakref import WeakKeyDictionary

import httpx2
from pydantic_ai.models import Model

from holdfast.agent.errors import PermanentProviderError
from holdfast.agent.routes import Route, is_loopback
from holdfast.settings.part_environments import DEFAULT_KEY_NAMES

CONNECT_TIMEOUT_S = 10.0
# Between two pieces of an answer: a local model may read a long prompt for minutes.
READ_TIMEOUT_S = 300.0
OLLAMA_URL = "http://127.0.0.1:11434/v1"
KEYLESS = "no-key-needed"
ROUTES_MAX = 64


class Clients:
    """The models of one event loop with the HTTP clients behind them."""

    def __init__(self) -> None:
        self._models: dict[Route, Model] = {}
        self._http: dict[Route, httpx2.AsyncClient] = {}

    def model(self, route: Route) -> Model:
        """The model of `route`; the connection pool behind it stays open between calls."""
        if route not in self._models:
            if len(self._models) >= ROUTES_MAX:
                # Only the reference goes: a call that still streams keeps its client alive.
                oldest = next(iter(self._models))
                del self._models[oldest], self._http[oldest]
            http = _http_client(route)
            self._models[route] = _BUILDERS[route.driver](route, http)
            self._http[route] = http
        return self._models[route]

    async def close(self) -> None:
        """Close every connection."""
        clients = list(self._http.values())
        self._models.clear()
        self._http.clear()
        for client in clients:
            await client.aclose()


_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Clients] = WeakKeyDictionary()


def clients() -> Clients:
    """Those of the running event loop: a connection belongs to the loop that opened it."""
    return _clients.setdefault(asyncio.get_running_loop(), Clients())


def _http_client(route: Route) -> httpx2.AsyncClient:
    timeout = httpx2.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=CONNECT_TIMEOUT_S)
    limits = httpx2.Limits(max_connections=1000, max_keepalive_connections=20)
    return httpx2.AsyncClient(
        headers=dict(route.headers), timeout=timeout, limits=limits, follow_redirects=False
    )


# Each builder imports its own SDK: one alone takes half a second.
def _openai(route: Route, http: httpx2.AsyncClient) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.profiles.openai import OpenAIModelProfile  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    from holdfast.agent.openai_client import PlainOpenAI  # noqa: PLC0415

    # Retries are the workflow's: an SDK that retries too would multiply them.
    client = PlainOpenAI(
        base_url=route.base_url, api_key=_key(route), max_retries=0, http_client=http
    )
    profile = OpenAIModelProfile()
    if route.base_url is not None:
        # Servers that only resemble OpenAI know the older field.
        profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    provider = OpenAIProvider(openai_client=client)
    return OpenAIChatModel(route.model, provider=provider, profile=profile)


def _ollama(route: Route, http: httpx2.AsyncClient) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.profiles.openai import OpenAIModelProfile  # noqa: PLC0415
    from pydantic_ai.providers.ollama import OllamaProvider  # noqa: PLC0415

    from holdfast.agent.openai_client import PlainOpenAI  # noqa: PLC0415

    base_url = (route.base_url or OLLAMA_URL).rstrip("/")
    if not base_url.endswith("/v1"):
        base_url += "/v1"
    client = PlainOpenAI(
        base_url=base_url, api_key=route.api_key or KEYLESS, max_retries=0, http_client=http
    )
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    provider = OllamaProvider(openai_client=client)
    return OpenAIChatModel(route.model, provider=provider, profile=profile)


def _anthropic(route: Route, http: httpx2.AsyncClient) -> Model:
    from anthropic import AsyncAnthropic  # noqa: PLC0415
    from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415
    from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

    client = AsyncAnthropic(
        base_url=route.base_url, api_key=_key(route), max_retries=0, http_client=http
    )
    return AnthropicModel(route.model, provider=AnthropicProvider(anthropic_client=client))


def _google(route: Route, http: httpx2.AsyncClient) -> Model:
    from google.genai.types import HttpRetryOptions  # noqa: PLC0415
    from pydantic_ai.models.google import GoogleModel  # noqa: PLC0415
    from pydantic_ai.providers.google import GoogleProvider  # noqa: PLC0415

    provider = GoogleProvider(
        api_key=_key(route),
        base_url=route.base_url,
        http_client=http,
        retry_options=HttpRetryOptions(attempts=1),
    )
    return GoogleModel(route.model, provider=provider)


_BUILDERS: dict[str, Callable[[Route, httpx2.AsyncClient], Model]] = {
    "openai": _openai,
    "ollama": _ollama,
    "anthropic": _anthropic,
    "google": _google,
}


def _key(route: Route) -> str:
    if route.api_key:
        return route.api_key
    if route.api_key_env is None and route.base_url is None:
        for name in DEFAULT_KEY_NAMES[route.driver]:
            if value := os.environ.get(name):
                return value
    if is_loopback(route.base_url):
        return KEYLESS
    wanted = route.api_key_env or DEFAULT_KEY_NAMES[route.driver][0]
    raise PermanentProviderError(
        "api_key_missing",
        f'No API key for the provider "{route.provider}": set the environment variable '
        f"{wanted}, or name another with api_key_env in config.toml.",
    )
