"""What the routes work with: one of each per process, made at the start."""

from __future__ import annotations

from dataclasses import dataclass

from api.chats import Chats
from api.commands import Commands
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


@dataclass
class Services:
    """The parts of a running API."""

    settings: Settings
    configuration: Configuration
    store: OpenStore
    feed: Feed
    commands: Commands
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
    commands = Commands(settings)
    pool = MemoryPool(store, settings.home, lambda: configuration.current, within_s=ANSWER_WITHIN_S)
    return Services(
        settings=settings,
        configuration=configuration,
        store=store,
        feed=feed,
        commands=commands,
        terminals=Terminals(settings),
        projects=ProjectWatch(store, configuration),
        hub=Hub(store, feed),
        memories=Memories(settings, pool, commands.client),
        chats=chats,
        metrics=metrics,
    )
