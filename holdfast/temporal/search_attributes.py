"""The search attributes by which the Temporal UI finds a session."""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from holdfast.domain.wire import SEARCH_ATTRIBUTES

log = structlog.get_logger()


def keywords(values: Mapping[str, str]) -> TypedSearchAttributes:
    """These values as Temporal takes them."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(name), value)
            for name, value in values.items()
        ]
    )


async def ensure_search_attributes(client: Client) -> None:
    """Create those that the namespace lacks."""
    service, namespace = client.operator_service, client.namespace
    try:
        known = await service.list_search_attributes(
            ListSearchAttributesRequest(namespace=namespace)
        )
        missing = [name for name in SEARCH_ATTRIBUTES if name not in known.custom_attributes]
        if missing:
            keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
            await service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=namespace, search_attributes=dict.fromkeys(missing, keyword)
                )
            )
    except RPCError as error:
        log.warning("worker.no_search_attributes", reason=error.message)
