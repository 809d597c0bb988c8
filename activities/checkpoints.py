"""Pause, resume and roll back: a short transaction each, then the processes and the files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from temporalio import activity

from activities.agent_prompts import prompts_of_agents
from activities.heartbeats import beating
from activities.refusals import answering
from activities.trees.restore import Restoration
from activities.trees.shipping import Shipment, Shipping
from activities.trees.snapshots import Taken, Trees
from holdfast.agent.tools.specs import SHELL
from holdfast.domain.checkpoint_steps import (
    Paused,
    PauseStep,
    Resumed,
    ResumeStep,
    RollBackStep,
    RolledBack,
    TreeSaved,
    TreeStep,
)
from holdfast.domain.commands import STEER
from holdfast.domain.errors import Conflict
from holdfast.domain.events import FilesRestored
from holdfast.domain.lifecycle import State
from holdfast.domain.steps import ProcessesStep
from holdfast.settings.config import Config
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables_history import Checkpoint
from holdfast.storage.log import events
from holdfast.storage.moves import checkpoints, message_points, rollback
from holdfast.storage.sessions import inbox, runs, sessions, tool_calls, waiting
from holdfast.terminal.client import TerminalClient

TerminalFactory = Callable[[], Awaitable[TerminalClient]]
NO_FILES = "the files of this checkpoint were not saved"


class CheckpointActivities:
    """The steps around a pause point. Each may be repeated: ids decide what was done."""

    def __init__(
        self,
        store: OpenStore,
        terminal: TerminalFactory,
        snapshots: Path,
        config: Callable[[], Config],
    ) -> None:
        self.store = store
        self._terminal = terminal
        self.trees = Trees(snapshots, hidden=[store.home])
        self.shipping = Shipping(store, self.trees, lambda: config().fleet.snapshot_mib_max)

    @activity.defn(name="pause_session")
    @answering
    async def pause_session(self, step: PauseStep) -> Paused:
        """Make the checkpoint; the session is paused and its slot free when this returns."""
        prompts = await self.store.aread(lambda db: prompts_of_agents(db, step.session_id))

        def pause(db: Db) -> Paused:
            before = checkpoints.resumed_for(db, step.run_id, step.tool_call_id)
            if before is not None and checkpoints.find(db, step.checkpoint_id) is None:
                state = sessions.get(db, step.session_id).state
                return Paused(checkpoint_id=before.id, state=state)
            made = checkpoints.create(
                db,
                self.store.blobs,
                checkpoint_id=step.checkpoint_id,
                session_id=step.session_id,
                created_by=step.created_by,
                prompts=prompts,
                run_id=step.run_id,
                reason=step.reason or _asked_reason(db, step.tool_call_id),
                tool_call_id=step.tool_call_id,
            )
            return Paused(checkpoint_id=made.id, state=sessions.get(db, step.session_id).state)

        return await self.store.awrite(pause)

    @activity.defn(name="resume_session")
    @answering
    async def resume_session(self, step: ResumeStep) -> Resumed:
        """Leave the pause point; 409 when it is not the current one or there is no slot."""
        return await self.store.awrite(lambda db: _resume(db, self.store, step))

    @activity.defn(name="roll_back_session")
    @answering
    async def roll_back_session(self, step: RollBackStep) -> RolledBack:
        """Go back to a checkpoint; with `restore_files` its files come back too."""
        async with beating():
            point = await self._point(step)
            wants_files = step.restore_files or step.undo_restore
            tree = point.undo_tree if step.undo_restore else point.tree
            if step.restore_files and tree is None and not point.tree_note:
                tree = await self._save_late(step)
            undo = await self._save_first(step, point, tree) if wants_files and tree else None
            outcome = await self.store.awrite(
                lambda db: rollback.roll_back(
                    db,
                    step.session_id,
                    step.checkpoint_id,
                    user_id=step.user_id,
                    command_id=step.command_id,
                    undo_tree=undo,
                )
            )
            files: dict[str, list[str]] = {}
            if wants_files:
                files = await self._restore(step, outcome.cancelled_run, tree)
        return RolledBack(
            state=State.IDLE.value,
            messages_superseded=outcome.messages_superseded,
            cancelled_run=outcome.cancelled_run,
            killed_invocations=outcome.killed_invocations,
            files=files,
        )

    @activity.defn(name="suspend_processes")
    @answering
    async def suspend_processes(self, step: ProcessesStep) -> bool:
        """Stop what the run has running; whether every process was seen stopped."""
        async with beating():
            return await self._act(step, suspend=True)

    @activity.defn(name="resume_processes")
    @answering
    async def resume_processes(self, step: ProcessesStep) -> bool:
        """Let what was stopped go on."""
        async with beating():
            return await self._act(step, suspend=False)

    @activity.defn(name="kill_processes")
    @answering
    async def kill_processes(self, step: ProcessesStep) -> bool:
        """SIGTERM, five seconds, SIGKILL for what the run or the session has running."""
        async with beating():
            client = await self._terminal()
            if step.run_id is None:
                killed = await client.kill(session_id=step.session_id)
            else:
                killed = await client.kill(run_id=step.run_id)
            return bool(killed)

    @activity.defn(name="snapshot_tree")
    @answering
    async def snapshot_tree(self, step: TreeStep) -> TreeSaved:
        """Save the working directory, once for a checkpoint and once for a run."""
        async with beating():
            saved = await self.store.aread(lambda db: _saved_before(db, step))
            session = await self.store.aread(lambda db: sessions.get(db, step.session_id))
            if saved is None:
                taken = await asyncio.to_thread(self.trees.take, session.working_directory)
                saved = await self.store.awrite(lambda db: _note_tree(db, step, taken))
            if step.checkpoint_id is None or saved.tree is None:
                return saved
            # Named first: the session may go on, and files that are stored later are later ones.
            shipment = await self.shipping.store(session, saved.tree)
            return await self.store.awrite(lambda db: _note_shipped(db, step, saved, shipment))

    async def save_before_run(self, session_id: str, run_id: str) -> None:
        """Save the working directory before the run's first tool that may change it."""
        await self.snapshot_tree(TreeStep(session_id=session_id, run_id=run_id))

    async def _act(self, step: ProcessesStep, *, suspend: bool) -> bool:
        """Stop or continue processes, unless the session has moved on since it was asked for."""
        session = await self.store.aread(lambda db: sessions.get(db, step.session_id))
        if (session.state == State.PAUSED) is not suspend:
            return False
        client = await self._terminal()
        act = client.suspend if suspend else client.resume
        if step.run_id is None:
            return (await act(session_id=step.session_id)).verified
        return (await act(run_id=step.run_id)).verified

    async def _point(self, step: RollBackStep) -> Checkpoint:
        """Where to go back to; right before a message it is made first."""
        session_id, message_id, store = step.session_id, step.message_id, self.store
        if message_id is None:
            return await store.aread(lambda db: checkpoints.get(db, session_id, step.checkpoint_id))
        return await store.awrite(
            lambda db: message_points.make(
                db, store.blobs, session_id, message_id, checkpoint_id=step.checkpoint_id
            )
        )

    async def _save_late(self, step: RollBackStep) -> str | None:
        """The files of a checkpoint that is rolled back before they could be saved."""
        late = TreeStep(session_id=step.session_id, checkpoint_id=step.checkpoint_id)
        return (await self.snapshot_tree(late)).tree

    async def _save_first(self, step: RollBackStep, point: Checkpoint, tree: str) -> str | None:
        """The files as they are before anything is brought back, so that it can be undone."""
        session = await self.store.aread(lambda db: sessions.get(db, step.session_id))
        await self.shipping.fetch(session, tree)
        if point.rolled_back_command == step.command_id and step.command_id:
            return point.undo_tree  # a repeat: what is there now may be half restored
        if session.active_run is not None:
            client = await self._terminal()
            await client.kill(run_id=session.active_run)
        taken = await asyncio.to_thread(
            self.trees.take, session.working_directory, before_restore_of=tree
        )
        if taken.tree is None:
            raise Conflict(f"the files cannot be restored: {taken.note}")
        shipment = await self.shipping.store(session, taken.tree)
        await self.store.awrite(shipment.commit)
        return taken.tree

    async def _restore(
        self, step: RollBackStep, run_id: str | None, tree: str | None
    ) -> dict[str, list[str]]:
        if tree is None:
            return _files(await self.store.aread(lambda db: _without_files(db, step)))
        session = await self.store.aread(lambda db: sessions.get(db, step.session_id))
        done = await asyncio.to_thread(self.trees.restore, session.working_directory, tree)

        def note(db: Db) -> None:
            commands = _shells_since(db, step.session_id, step.checkpoint_id)
            if commands:
                done.not_undone.append(
                    f"what {commands} shell commands since then did outside the folder,"
                    " over the network or as processes of their own"
                )
            restored = FilesRestored(
                checkpoint_id=step.checkpoint_id,
                restored=len(done.restored),
                deleted=len(done.deleted),
                skipped=len(done.not_undone),
            )
            events.append(
                db, session.id, restored, run_id=run_id, row=("checkpoint", step.checkpoint_id)
            )

        await self.store.awrite(note)
        return _files(done)


def _asked_reason(db: Db, tool_call_id: str | None) -> str:
    """What the model said when it called `checkpoint`."""
    call = tool_calls.find(db, tool_call_id) if tool_call_id else None
    reason = call.input.get("reason", "") if call is not None else ""
    return reason if isinstance(reason, str) else json.dumps(reason)


def _resume(db: Db, store: OpenStore, step: ResumeStep) -> Resumed:
    if step.message_id is not None:
        inbox.stage_given(db, step.session_id, step.message_id, step.content)
    session = checkpoints.resume(
        db,
        store.blobs,
        step.session_id,
        step.checkpoint_id,
        command_id=step.command_id,
        nothing_left=step.nothing_left,
        message_id=step.message_id,
        user_id=step.user_id,
    )
    run_id = session.active_run if session.state == State.RUNNING else None
    steered = bool(waiting.of_session(db, session.id, when_busy=STEER))
    return Resumed(state=session.state, run_id=run_id, steered=steered)


def _saved_before(db: Db, step: TreeStep) -> TreeSaved | None:
    if step.checkpoint_id is not None:
        point = checkpoints.get(db, step.session_id, step.checkpoint_id)
        if point.tree is not None or point.tree_note:
            return TreeSaved(tree=point.tree, note=point.tree_note)
    elif step.run_id is not None:
        run = runs.get(db, step.run_id)
        if run.tree_before is not None:
            return TreeSaved(tree=run.tree_before or None)
    return None


def _note_tree(db: Db, step: TreeStep, taken: Taken) -> TreeSaved:
    if step.run_id is not None:
        runs.set_tree(db, step.run_id, taken.tree or "")  # "": tried, and not to be tried again
    if step.checkpoint_id is None:
        return TreeSaved(tree=taken.tree, note=taken.note)
    point = checkpoints.get(db, step.session_id, step.checkpoint_id)
    session = sessions.get(db, step.session_id)
    if point.tree is not None:
        return TreeSaved(tree=point.tree, note=point.tree_note)
    if session.state != State.PAUSED or session.current_checkpoint != point.id:
        # These files may be later ones, and a wrong snapshot is worse than none.
        taken = Taken(None, "the session went on before its files could be saved")
    checkpoints.set_tree(db, point.id, taken.tree, taken.note)
    return TreeSaved(tree=taken.tree, note=taken.note)


def _note_shipped(db: Db, step: TreeStep, saved: TreeSaved, shipment: Shipment) -> TreeSaved:
    """Where other machines find the files, or why only this one has them."""
    shipment.commit(db)
    if step.checkpoint_id is None or not shipment.note or shipment.note in saved.note:
        return saved
    noted = replace(saved, note="; ".join(filter(None, (saved.note, shipment.note))))
    checkpoints.set_tree(db, step.checkpoint_id, noted.tree, noted.note)
    return noted


def _shells_since(db: Db, session_id: str, checkpoint_id: str) -> int:
    point = checkpoints.get(db, session_id, checkpoint_id)
    return tool_calls.count_since(db, session_id, SHELL.name, point.created_at)


def _without_files(db: Db, step: RollBackStep) -> Restoration:
    """What a restore says that has no snapshot; nothing, when nothing can have changed."""
    note = checkpoints.get(db, step.session_id, step.checkpoint_id).tree_note
    if note == message_points.UNCHANGED:
        return Restoration()
    return Restoration(not_undone=[f"{NO_FILES}: {note}" if note else NO_FILES])


def _files(done: Restoration) -> dict[str, list[str]]:
    return {
        "restored": done.restored,
        "deleted": done.deleted,
        "not_undone": done.not_undone,
    }
