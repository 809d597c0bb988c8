"""Every workflow writes the same JSON as Pydantic's own converter, and none builds it anew."""

from __future__ import annotations

from temporalio.contrib.pydantic import pydantic_data_converter

from holdfast.domain.steps import ModelResult, PendingCall
from holdfast.temporal.payloads import SharedPayloadConverter, data_converter

RESULT = ModelResult(pending=[PendingCall(id="1", name="grep")])


def test_histories_of_pydantics_converter_are_read_and_written_alike() -> None:
    ours = data_converter.payload_converter.to_payloads([RESULT, None, b"raw"])
    theirs = pydantic_data_converter.payload_converter.to_payloads([RESULT, None, b"raw"])
    assert ours == theirs
    assert data_converter.payload_converter.from_payloads(theirs[:1], [ModelResult]) == [RESULT]


def test_every_workflow_shares_the_validators() -> None:
    first, second = SharedPayloadConverter(), SharedPayloadConverter()
    assert first.converters[b"json/plain"] is second.converters[b"json/plain"]
