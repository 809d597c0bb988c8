"""What a model call used and cost."""

from __future__ import annotations

from holdfast.agent.conversation import ModelAnswer
from holdfast.storage.sessions.calls import Bill


def bill(answer: ModelAnswer) -> Bill:
    """What the call used and cost, as it is stored."""
    usage = answer.usage
    return Bill(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=None if answer.cost_usd is None else float(answer.cost_usd),
        cost_status=answer.cost_status,
        cost_source=answer.cost_source,
    )
