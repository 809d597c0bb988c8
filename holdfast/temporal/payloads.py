"""How commands, steps and their results are written into Temporal's history: as Pydantic's JSON.

The SDK gives each workflow a converter of its own, and each of those builds the validators of all
our types anew: ten milliseconds and some memory per session. Here all share one.
"""

from __future__ import annotations

from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
)

_JSON = PydanticJSONPlainPayloadConverter()


class SharedPayloadConverter(CompositePayloadConverter):
    """The SDK's converters, with the one of this process for JSON."""

    def __init__(self) -> None:
        usual = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(
            *(_JSON if isinstance(one, JSONPlainPayloadConverter) else one for one in usual)
        )


data_converter = DataConverter(payload_converter_class=SharedPayloadConverter)
