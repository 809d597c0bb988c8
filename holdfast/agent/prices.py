"""What a model call costs: by the operator's own prices, else by the offline price table."""

from __future__ import annotations

from decimal import Decimal

from holdfast.agent.conversation import CostStatus, Usage
from holdfast.agent.routes import Route
from holdfast.settings.config import Prices

Cost = tuple[Decimal | None, CostStatus, str | None]

_MILLION = Decimal(1_000_000)
UNKNOWN: Cost = (None, "unknown", None)


def cost_of(route: Route, usage: Usage) -> Cost:
    """Dollars, how sure they are, and where the price is from; None dollars when nobody knows."""
    if route.prices is not None:
        return _by_config(route.prices, usage), "estimated", "config"
    if route.driver == "scripted":
        return Decimal(0), "actual", "scripted"
    return _by_table(route, usage)


def _by_config(prices: Prices, usage: Usage) -> Decimal:
    read_usd = prices.input_usd if prices.cache_read_usd is None else prices.cache_read_usd
    write_usd = prices.input_usd if prices.cache_write_usd is None else prices.cache_write_usd
    plain = max(usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens, 0)
    return (
        plain * prices.input_usd
        + usage.cache_read_tokens * read_usd
        + usage.cache_write_tokens * write_usd
        + usage.output_tokens * prices.output_usd
    ) / _MILLION


def _by_table(route: Route, usage: Usage) -> Cost:
    if route.driver == "ollama":
        return UNKNOWN
    # The table takes 0.2 s to load, so only processes that call models pay for it.
    from genai_prices import Usage as PricedUsage  # noqa: PLC0415
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    priced = PricedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    # A known address (a router, another vendor) has its own prices; the driver's come next.
    places: list[tuple[str | None, str | None]] = [(None, route.base_url), (route.driver, None)]
    for provider_id, address in places if route.base_url else places[1:]:
        try:
            found = get_snapshot().calc(priced, route.model, provider_id, address, None)
        except LookupError:
            continue
        return Decimal(found.total_price), "estimated", "genai-prices"
    return UNKNOWN
