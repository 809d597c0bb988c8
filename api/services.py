"""What the routes work with: one of each per process, made at the start."""

from __future__ import annotations

from dataclasses import dataclass

from api.chats import Chats
from api.configuration import Configuration
from api.memory import Memories
from api.metrics import Metrics
from api.project_watch import ProjectWatch
from api.stream.hub import Hub
from api.terminals import Terminals
from holdfast.memory.pool import ANSWER_WITHIN_S, MemoryPool
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.log.feed import Feed
from holdfast.temporal.changes import ChangesWorkflows
from holdfast.temporal.connection import Connection
from holdfast.temporal.memories import MemoryWorkflows
from holdfast.temporal.sessions import SessionCommands, SessionWorkflows
from holdfast.temporal.ui import TemporalUi
from holdfast.terminal.identity import host_of


@dataclass
class Services:
    """The parts of a running API."""

    settings: Settings
    configuration: Configuration
    store: OpenStore
    feed: Feed
    temporal: Connection
    temporal_ui: TemporalUi
    commands: SessionCommands
    changes: ChangesWorkflows
    terminals: Terminals
    projects: ProjectWatch
    hub: Hub
    memories: Memories
    chats: Chats
    metrics: Metrics


def make_services(settings: Settings, store: OpenStore) -> Services:
    """The services of one process; nothing connects before it is used."""
    configuration = Configuration(settings.home)
    chats, metrics = Chats(store, configuration.current.chats), Metrics()
    metrics.chats_cached.set_function(lambda: chats.cached)
    feed = Feed(store)
    temporal = Connection(settings)
    pool = MemoryPool(
        store,
        settings.home,
        lambda: configuration.current,
        within_s=ANSWER_WITHIN_S,
        host_id=lambda: host_of(settings.terminal_state_dir),
    )
    return Services(
        settings=settings,
        configuration=configuration,
        store=store,
        feed=feed,
        temporal=temporal,
        temporal_ui=TemporalUi(settings.temporal_ui_address),
        commands=SessionWorkflows(temporal),
        changes=ChangesWorkflows(temporal),
        terminals=Terminals(settings, store),
        projects=ProjectWatch(store, configuration, settings.hidden_places),
        hub=Hub(store, feed),
        memories=Memories(pool, MemoryWorkflows(temporal)),
        chats=chats,
        metrics=metrics,
    )
