"""Commands that move an idle or paused session: back in its history, or to another host."""

from __future__ import annotations

from holdfast.domain.checkpoint_steps import RollBackStep
from holdfast.domain.commands import Answer, Move, RollBack
from holdfast.domain.errors import Conflict
from holdfast.domain.lifecycle import Action, State
from workflows.refusals import refused
from workflows.session_core import SessionCore


async def roll_back(core: SessionCore, command: RollBack) -> Answer:
    """Go back to a checkpoint, or to one that is made right before a message."""
    core.check(Action.ROLL_BACK)
    step = RollBackStep(
        session_id=core.id,
        checkpoint_id=command.checkpoint_id,
        message_id=command.message_id,
        user_id=command.user_id or core.carried.operator,
        command_id=command.command_id,
        restore_files=command.restore_files,
        undo_restore=command.undo_restore,
    )
    done = await core.placement.roll_back(step)
    if core.run is not None:
        core.kill_later(core.run.run_id)
    core.drop()
    core.enter(done.state)
    return Answer(
        state=core.state,
        checkpoint_id=command.checkpoint_id,
        messages_superseded=done.messages_superseded,
        files=done.files,
    )


async def move_host(core: SessionCore, command: Move) -> Answer:
    """Go on on another host; nothing may be going on meanwhile."""
    if core.state not in (State.IDLE, State.PAUSED):
        words = f"cannot move while {core.state}"
        raise refused(Conflict(words, {"state": core.state.value}))
    await core.placement.move(command.host_id, command.user_id or core.carried.operator)
    return Answer(state=core.state)
