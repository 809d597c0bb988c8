"""Ids, canonical spelling and refusals: small things that everything stands on."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain import clock, ids
from holdfast.domain.canonical import canonical, sha256
from holdfast.domain.errors import (
    ActionNotAllowed,
    Conflict,
    Gone,
    NotFound,
    Refusal,
    Unavailable,
    ValidationFailed,
    refusal_from,
)
from holdfast.domain.ids import new_id

CODES = {
    "bad_request": 400,
    "validation_failed": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "gone": 410,
    "payload_too_large": 413,
    "dsl_invalid": 422,
    "rate_limited": 429,
    "unavailable": 503,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.req("K-111")
def test_ids_made_within_one_millisecond_sort_as_they_were_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ids, "_last", ids._last)  # put back after: this clock is ahead
    monkeypatch.setattr(ids, "now_ms", lambda: clock.now_ms() + 60_000)
    made = [new_id() for _ in range(2000)]
    assert made == sorted(made)
    assert len(set(made)) == 2000
    monkeypatch.setattr(ids, "now_ms", lambda: 1)
    assert new_id() > made[-1], "a clock that goes back changes nothing"


@pytest.mark.req("K-111")
def test_threads_never_share_an_id() -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: new_id(), range(2000)))
    assert len(set(made)) == 2000


@settings(deadline=None, max_examples=50)
@given(JSON)
def test_equal_values_have_one_spelling(value: object) -> None:
    assert canonical(value) == canonical(value)
    assert sha256(canonical(value)) == hashlib.sha256(canonical(value)).hexdigest()


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical(turned) == canonical(value)
    assert b" " not in canonical({"a": [1, 2], "b": {"c": 3}})


@pytest.mark.parametrize(("code", "status"), CODES.items())
def test_every_code_has_its_status_and_survives_the_way_through_temporal(
    code: str, status: int
) -> None:
    back = refusal_from(code, "words", {"why": 1})
    assert back is not None
    assert (back.code, back.status, back.message) == (code, status, "words")
    assert back.details == {"why": 1}
    assert str(back) == "words"


def test_an_unknown_code_is_no_refusal() -> None:
    assert refusal_from("who_knows", "words") is None
    assert refusal_from(None, "words") is None


def test_refusals_are_grouped_by_what_their_reader_can_do() -> None:
    assert isinstance(ActionNotAllowed("start", "paused"), Conflict)
    assert issubclass(ValidationFailed, Refusal)
    assert (NotFound("x").status, Gone("x").status, Unavailable("x").status) == (404, 410, 503)
    assert ActionNotAllowed("start", "paused").message == "cannot start while paused"
