"""Audit events: one frozen type per kind, with the fields that the requirements name."""

from __future__ import annotations

import dataclasses
import json

import pytest

from holdfast.domain import control_events, events
from holdfast.domain.events import Event
from holdfast.domain.permissions import events as permission_events

KINDS = {one.kind: one for one in Event.__subclasses__()}
FIELDS = {
    "session.created": "session_id project_id user_id forked_from",
    "session.queued": "session_id run_id message_id reason running_count limit",
    "session.resumed_from_queue": "session_id run_id user_id running_count",
    "session.queued_discarded": "session_id run_id message_id user_id",
    "session.state": "session_id from_state to_state trigger",
    "session.attached": "session_id user_id device_hint",
    "session.detached": "session_id user_id reason",
    "session.ended": "session_id user_id run_count duration",
    "session.crash_recovered": "session_id failed_run_id",
    "run.created": "run_id session_id message_preview",
    "run.completed": "run_id state duration_ms tokens",
    "run.cancelled": "run_id session_id user_id",
    "checkpoint.created": "checkpoint_id session_id created_by reason",
    "checkpoint.resumed": "checkpoint_id session_id prompts_edited",
    "checkpoint.rolled_back": "checkpoint_id session_id messages_superseded",
    "prompt.edited": "checkpoint_id target old_hash new_hash",
    "pty.allocated": "pty_id session_id subagent_name",
    "pty.closed": "pty_id reason transcript_lines",
    "pty.reattached": "pty_id scrollback_lines_sent",
}


def made(kind: type[Event]) -> Event:
    """An event with every field filled."""
    values = {field.name: field.name for field in dataclasses.fields(kind)}
    return kind(**values)


@pytest.mark.req("K-131", "K-132", "K-133", "K-134")
@pytest.mark.parametrize("kind", FIELDS)
def test_an_event_has_its_fields(kind: str) -> None:
    fields = {field.name for field in dataclasses.fields(KINDS[kind])}
    assert set(FIELDS[kind].split()) <= fields


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_event_is_frozen_and_becomes_json(kind: type[Event]) -> None:
    event = made(kind)
    field = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, field, "changed")
    assert json.loads(json.dumps(event.data())) == event.data()


def test_no_two_types_share_a_kind() -> None:
    everything = {**vars(events), **vars(control_events), **vars(permission_events)}
    types = [one for one in everything.values() if isinstance(one, type)]
    kinds = [one.kind for one in types if issubclass(one, Event) and one is not Event]
    assert sorted(kinds) == sorted(KINDS)
