"""What a worker is made of: activities bound to their store, provider config and terminals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio import activity

from activities.approvals import ApprovalActivities
from activities.changes import ChangeActivities
from activities.checkpoints import CheckpointActivities
from activities.compaction.steps import CompactionActivities
from activities.hosts import HostActivities
from activities.memory import MemoryActivities
from activities.model_calls import ModelActivities
from activities.sessions import SessionActivities
from activities.subagents import SubagentActivities
from activities.terminals import Terminals
from activities.tools.memory import MemoryTool
from activities.tools.runners import all_tools
from activities.tools.shell import Shell
from activities.tools.tool_calls import ToolActivities
from activities.trees.snapshots import Trees
from activities.waiting import WaitingActivities
from holdfast.domain.ids import new_id
from holdfast.memory.pool import ANSWER_WITHIN_S, MemoryPool
from holdfast.settings.config import Config
from holdfast.settings.environment import Settings
from holdfast.storage.database.opening import OpenStore
from holdfast.temporal.connection import Connection
from holdfast.temporal.memories import MemoryWorkflows
from workflows.changes import ChangesWorkflow
from workflows.memory import MemorySyncWorkflow
from workflows.session import SessionWorkflow
from workflows.subagent import SubagentWorkflow

WORKFLOWS = [SessionWorkflow, SubagentWorkflow, MemorySyncWorkflow, ChangesWorkflow]
PAUSING_ON_HOST = (
    "snapshot_tree",
    "roll_back_session",
    "suspend_processes",
    "resume_processes",
    "kill_processes",
)
# A tool call waits this long for what is not indexed yet, then answers with what there is.
SEARCH_WAIT_S = 3.0


@dataclass(frozen=True)
class Parts:
    """Everything that must be closed when the worker stops."""

    terminals: Terminals
    config: Callable[[], Config]
    trees: Trees
    pools: tuple[MemoryPool, MemoryPool]  # for syncs, and for answers
    activities: list[Callable[..., Any]]
    host_activities: list[Callable[..., Any]]  # those that touch files or processes


def build(store: OpenStore, settings: Settings, config: Callable[[], Config]) -> Parts:
    """Bind every step to its effect."""
    terminals = Terminals(
        store,
        Path(settings.terminal_socket),
        settings.terminal_state_dir,
        hidden=settings.hidden_places,
    )
    pools, remember = _memory(store, settings, config, terminals)
    pausing = CheckpointActivities(store, terminals.client, settings.shadow_git_dir, config)
    tools = all_tools(store, Shell(store, terminals, config), remember, settings.hidden_places)
    calls = ToolActivities(
        store,
        tools,
        pausing.save_before_run,
        terminals.cage_trouble,
        host=terminals.identity,
        config=config,
    )
    changes = ChangeActivities(store, pausing.trees, pausing.shipping)
    placing = HostActivities(store, terminals, config)
    memories = MemoryActivities(store, pools[0])
    families: list[object] = [
        SessionActivities(store),
        WaitingActivities(store),
        ModelActivities(store, config),
        calls,
        pausing,
        CompactionActivities(store, config, terminals),
        SubagentActivities(store),
        placing,
        ApprovalActivities(store),
        memories,
        changes,
    ]
    steps = [step for family in families for step in _steps(family)]
    on_host = [
        calls.call_tool,
        placing.take_session,
        memories.sync_memory,
        changes.read_changes,
        *(getattr(pausing, name) for name in PAUSING_ON_HOST),
    ]
    return Parts(terminals, config, pausing.trees, pools, steps, on_host)


def _memory(
    store: OpenStore, settings: Settings, config: Callable[[], Config], terminals: Terminals
) -> tuple[tuple[MemoryPool, MemoryPool], MemoryTool]:
    """The memories of projects, for syncs and for answers, and the tool that asks them."""

    def host_id() -> str | None:
        return terminals.host_id

    async def sync(project_id: str) -> bool:
        memories = MemoryWorkflows(Connection(settings, activity.client()))
        report = await memories.sync(
            project_id, command_id=new_id(), force=False, wait_s=SEARCH_WAIT_S
        )
        return report is not None

    pool = MemoryPool(store, settings.home, config, host_id=host_id)
    answering = MemoryPool(store, settings.home, config, within_s=ANSWER_WITHIN_S, host_id=host_id)
    return (pool, answering), MemoryTool(store, answering, sync)


def _steps(family: object) -> list[Callable[..., Any]]:
    """The methods that are activities."""
    methods = (getattr(family, name) for name in dir(family) if not name.startswith("_"))
    return [one for one in methods if hasattr(one, "__temporal_activity_definition")]
