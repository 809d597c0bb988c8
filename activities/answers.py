"""A model's answer as rows: the message, and the tool calls that it asks for."""

from __future__ import annotations

from temporalio.exceptions import ApplicationError

from holdfast.agent.conversation import ModelAnswer
from holdfast.domain.ids import new_id
from holdfast.domain.steps import ModelStep
from holdfast.storage.database.engine import Db
from holdfast.storage.database.rows import fresh
from holdfast.storage.database.tables import Message, ToolCallRow
from holdfast.storage.sessions import messages


def append_answer(db: Db, step: ModelStep, message_id: str, answer: ModelAnswer) -> Message:
    """Store the answer as the agent's message; its id must be new."""
    usage = answer.usage
    asked = [
        {"id": one.id, "name": one.name, "arguments": one.arguments} for one in answer.tool_calls
    ]
    try:
        return messages.append(
            db,
            step.session_id,
            id=message_id,
            known_new=True,
            run_id=step.run_id,
            role=role_of(step),
            agent_path=step.agent_path,
            invocation_id=step.invocation_id,
            content=answer.text,
            tool_calls=asked or None,
            model=f"{answer.provider}:{answer.model}",
            tokens=usage.input_tokens + usage.output_tokens,
            meta={"finish_reason": answer.finish_reason} if answer.finish_reason else {},
        )
    except messages.MessageThere as error:
        # A later attempt took this one for dead and set its words aside: that one counts.
        raise ApplicationError("another attempt took over", type="stale_attempt") from error


def asked_for(step: ModelStep, message_id: str, answer: ModelAnswer) -> list[ToolCallRow]:
    """The tool calls of an answer, in its order."""
    return [
        fresh(
            ToolCallRow,
            id=new_id(),
            run_id=step.run_id,
            session_id=step.session_id,
            caller=step.agent_path,
            provider_call_id=one.id,
            message_id=message_id,
            position=position,
            tool_name=one.name,
            input=_input(one.arguments, one.invalid_arguments),
        )
        for position, one in enumerate(answer.tool_calls)
    ]


def role_of(step: ModelStep) -> str:
    """Whose words they are."""
    return "primary" if step.invocation_id is None else "subagent"


def _input(arguments: dict[str, object], invalid: str | None) -> dict[str, object]:
    return arguments if invalid is None else {**arguments, "invalid_arguments": invalid}
