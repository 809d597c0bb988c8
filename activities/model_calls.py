"""One model call: streams while it runs, and ends in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities import provider_trouble
from activities.bills import bill
from activities.context import Context, build
from activities.heartbeats import beating
from activities.histories import Histories
from activities.refusals import answering
from activities.sessions import CRASHED, CRASHED_WORDS
from activities.stream import DeltaStream
from activities.tools.pending import as_pending
from holdfast.agent.conversation import ModelAnswer
from holdfast.agent.errors import (
    ContextOverflow,
    PassingProviderError,
    PermanentProviderError,
)
from holdfast.agent.providers import complete
from holdfast.domain.events import SessionCrashRecovered
from holdfast.domain.ids import new_id
from holdfast.domain.steps import ModelResult, ModelStep
from holdfast.settings.config import Config
from holdfast.storage.database import blobs
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import fresh
from holdfast.storage.database.tables import Call, Run, ToolCallRow
from holdfast.storage.database.tables_history import Blob
from holdfast.storage.log import events, frames
from holdfast.storage.moves import prompt_edits
from holdfast.storage.projects import projects
from holdfast.storage.sessions import (
    calls,
    messages,
    requests,
    runs,
    sessions,
    supersessions,
    tool_calls,
)
from holdfast.storage.sessions.message_views import message_json

# More calls of one answer than are made and these are left out of it: nobody reads thousands.
REFUSED_CALLS_MAX = 64
TOO_MANY_CALLS = "Not made: one answer may call {} tools, and this one called {}."


class ModelActivities:
    """Calls to models."""

    def __init__(self, store: OpenStore, config: Callable[[], Config]) -> None:
        self.store = store
        self.config = config
        self.histories = Histories()

    @activity.defn(name="call_model")
    @answering
    async def call_model(self, step: ModelStep) -> ModelResult:
        """One model call. Safe to repeat: its rows are keyed by the call's id."""
        attempt, message_id = activity.info().attempt, step.message_id
        if attempt > 1:
            known = await self.store.aread(lambda db: _known(db, step))
            if known is not None:
                return known
            await self._after_a_crash(step)
            message_id = new_id()
        context = await self.store.aread(lambda db: self._context(db, step))
        if context.too_long and not step.after_compaction:
            return ModelResult(must_compact=True)
        call = _call(step, context, attempt, message_id)
        if attempt > 1:
            await self.store.awrite(lambda db: calls.begin(db, call))
        # Written while the provider thinks, so that nobody waits for it with the write lock held.
        describing = asyncio.ensure_future(
            asyncio.to_thread(self.store.blobs.put_json, context.descriptor(call.type))
        )
        stream = DeltaStream(
            self.store,
            session_id=step.session_id,
            run_id=step.run_id,
            message_id=message_id,
            agent_path=step.agent_path,
        )
        try:
            async with beating():
                answer = await complete(
                    context.route,
                    context.turns,
                    context.tools,
                    on_text=stream.add,
                    max_output_tokens=context.spec.max_output_tokens,
                )
                descriptor = await describing
        except ContextOverflow as error:
            await self._fail(step, stream, call, error.code, error.message)
            return ModelResult(overflow=True)
        except (PermanentProviderError, PassingProviderError) as error:
            await self._fail(step, stream, call, error.code, error.message)
            failure = await self._failure(step, error)
            if isinstance(error, PassingProviderError) and not failure.non_retryable:
                retry = provider_trouble.retrying(step, error, failure)
                await self.store.awrite(
                    partial(provider_trouble.tell, session_id=step.session_id, retry=retry)
                )
            raise failure from error
        except asyncio.CancelledError:
            await asyncio.shield(self._stopped(step, stream, call))
            raise
        finally:
            # Its thread cannot be stopped; whatever the provider did, it is over before we are.
            await asyncio.gather(describing, return_exceptions=True)
        await stream.close()
        return await self.store.awrite(
            lambda db: self._commit(db, step, call, context, answer, descriptor)
        )

    async def _failure(
        self, step: ModelStep, error: PermanentProviderError | PassingProviderError
    ) -> ApplicationError:
        """What the operator reads: after an edit of prompts, that the edit is to be looked at."""
        failure = provider_trouble.as_failure(error)
        edited = await self.store.aread(lambda db: prompt_edits.unproven(db, step.session_id))
        if not edited or not isinstance(error, PermanentProviderError):
            return failure
        cause = {"code": error.code, "message": error.message}
        return ApplicationError(prompt_edits.REJECTED, cause, type=failure.type, non_retryable=True)

    def _context(self, db: Db, step: ModelStep) -> Context:
        return build(
            db,
            self.store.blobs,
            self.config(),
            step.session_id,
            agent_path=step.agent_path,
            invocation_id=step.invocation_id,
            histories=self.histories,
        )

    async def _after_a_crash(self, step: ModelStep) -> None:
        """Did the attempt before this one die with its worker? Keep its words, and say so."""

        def recover(db: Db) -> str | None:
            before = calls.find(db, step.call_id)
            if before is not None and before.status != "started":
                return None
            message_id = step.message_id if before is None else before.message_id or ""
            session = sessions.get(db, step.session_id)
            policy = projects.file_of(db, session).on_crash
            recovered = SessionCrashRecovered(
                session_id=step.session_id, failed_run_id=step.run_id, policy=policy
            )
            events.append(db, step.session_id, recovered, run_id=step.run_id)
            _set_aside(db, step, message_id, step.call_id)
            return policy

        if await self.store.awrite(recover) == "fail":
            raise ApplicationError(CRASHED_WORDS, type=CRASHED, non_retryable=True)

    async def _fail(
        self, step: ModelStep, stream: DeltaStream, call: Call, code: str, words: str
    ) -> None:
        await stream.close()

        def fail(db: Db) -> None:
            calls.begin(db, call)
            calls.fail(db, step.call_id, {"code": code, "message": words})
            _set_aside(db, step, call.message_id or "", step.call_id, text=stream.text)

        await self.store.awrite(fail)

    async def _stopped(self, step: ModelStep, stream: DeltaStream, call: Call) -> None:
        """Keep the last words: for good when the run was cancelled, aside when it goes on."""
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            await self._keep_partial(step, stream, call)
        elif details is not None and details.worker_shutdown:
            await self._fail(step, stream, call, "worker_shutdown", "The worker stopped.")

    async def _keep_partial(self, step: ModelStep, stream: DeltaStream, call: Call) -> None:
        await stream.close()

        def keep(db: Db) -> None:
            calls.begin(db, call)
            calls.fail(db, step.call_id, {"code": "cancelled", "message": "cancelled"})
            if stream.text:
                message = messages.append(
                    db,
                    step.session_id,
                    id=call.message_id,
                    run_id=step.run_id,
                    role=_role(step),
                    agent_path=step.agent_path,
                    invocation_id=step.invocation_id,
                    content=stream.text,
                    meta={"partial": True, "cancelled": True},
                )
                shown = {"message": message_json(message, [])}
                frames.append(db, step.session_id, ("message", shown))
                run = runs.get(db, step.run_id)
                _leave_out(db, step, run, message.id)
                if step.invocation_id is None and run.state in runs.ACTIVE:
                    # What a cancelled run said is its response, marked as partial (K-041).
                    runs.answer(db, step.run_id, message.id)

        await self.store.awrite(keep)

    def _commit(
        self,
        db: Db,
        step: ModelStep,
        call: Call,
        context: Context,
        answer: ModelAnswer,
        descriptor: Blob,
    ) -> ModelResult:
        known = _known(db, step)
        if known is not None:
            return known
        message_id = call.message_id or ""
        if messages.find(db, message_id) is not None:
            # A later attempt took this one for dead and set its words aside: that one counts.
            raise ApplicationError("another attempt took over", type="stale_attempt")
        provider_trouble.clear(db, step, context.session)
        call.request_ref = blobs.commit(db, descriptor)
        calls.begin(db, call)
        usage, total = answer.usage, len(answer.tool_calls)
        most = self.config().limits.tool_calls_per_step
        answer = replace(answer, tool_calls=answer.tool_calls[: most + REFUSED_CALLS_MAX])
        asked = [
            {"id": one.id, "name": one.name, "arguments": one.arguments}
            for one in answer.tool_calls
        ]
        message = messages.append(
            db,
            step.session_id,
            id=message_id,
            run_id=step.run_id,
            role=_role(step),
            agent_path=step.agent_path,
            invocation_id=step.invocation_id,
            content=answer.text,
            tool_calls=asked or None,
            model=f"{answer.provider}:{answer.model}",
            tokens=usage.input_tokens + usage.output_tokens,
            meta={"finish_reason": answer.finish_reason} if answer.finish_reason else {},
        )
        frames.append(db, step.session_id, ("message", {"message": message_json(message, [])}))
        rows = _asked_for(step, message_id, answer)
        run = runs.get(db, step.run_id)
        if run.state not in runs.ACTIVE:
            rows = []  # nobody is left to make the calls
            _leave_out(db, step, run, message_id)
        tool_calls.add(db, rows)
        _refuse(db, step, rows[most:], TOO_MANY_CALLS.format(most, total))
        calls.finish(db, call, bill(answer), message_id=message_id)
        if step.invocation_id is None and not rows:
            runs.answer(db, step.run_id, message_id)
        return ModelResult(
            pending=[as_pending(row, context.project_file) for row in rows[:most]],
            budget_reached=self._budget(db, step, context),
        )

    def _budget(self, db: Db, step: ModelStep, context: Context) -> str | None:
        limits, own = self.config().limits, context.project_file.limits
        session = sessions.get(db, step.session_id)
        spent = (session.estimated_cost_usd or 0.0) + (session.actual_cost_usd or 0.0)
        session_limit = own.max_cost_usd or limits.max_cost_usd
        if session_limit is not None and spent >= session_limit:
            return "budget_reached"
        run_limit = own.max_cost_usd_per_run or limits.max_run_cost_usd
        if run_limit is not None and calls.cost_of_run(db, step.run_id) >= run_limit:
            return "budget_reached"
        return None


def _call(step: ModelStep, context: Context, attempt: int, message_id: str) -> Call:
    """The row of this attempt; an attempt that dies before it is stored leaves none."""
    return fresh(
        Call,
        id=step.call_id,
        session_id=step.session_id,
        run_id=step.run_id,
        head=context.session.current_head,
        step=step.step,
        attempt=attempt,
        agent_path=step.agent_path,
        type=requests.ROOT if step.invocation_id is None else requests.SUBAGENT,
        model=context.route.model,
        provider=context.route.provider,
        message_id=message_id,
    )


def _asked_for(step: ModelStep, message_id: str, answer: ModelAnswer) -> list[ToolCallRow]:
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


def _refuse(db: Db, step: ModelStep, rows: list[ToolCallRow], why: str) -> None:
    """Calls that are not made get their answers now, so that the context stays valid."""
    for row in rows:
        invocation = step.invocation_id
        output = {"error": why}
        tool_calls.close(db, row, text=why, output=output, failed=True, invocation_id=invocation)


def _known(db: Db, step: ModelStep) -> ModelResult | None:
    """The answer of an earlier attempt that was stored but not reported."""
    call = calls.find(db, step.call_id)
    if call is None or call.status != "done" or call.message_id is None:
        return None
    session = sessions.get(db, step.session_id)
    project_file = projects.file_of(db, session)
    rows = tool_calls.open_of_message(db, call.message_id)
    return ModelResult(pending=[as_pending(row, project_file) for row in rows])


def _set_aside(
    db: Db, step: ModelStep, message_id: str, call_id: str, text: str | None = None
) -> None:
    """Keep the words of an attempt that is tried again; they no longer count."""
    words = calls.streamed_text(db, step.session_id, message_id) if text is None else text
    if not words:
        return
    messages.append(
        db,
        step.session_id,
        id=message_id,
        run_id=step.run_id,
        role=_role(step),
        agent_path=step.agent_path,
        invocation_id=step.invocation_id,
        content=words,
        meta={"partial": True, "interrupted": True},
    )
    supersessions.supersede(db, step.session_id, [message_id], "retry", f"{call_id}:{message_id}")


def _leave_out(db: Db, step: ModelStep, run: Run, message_id: str) -> None:
    """Words that came after the run was rolled back are kept, but no longer count."""
    if run.finish_reason == "rolled_back":
        supersessions.supersede(db, step.session_id, [message_id], "discard", run.id)


def _role(step: ModelStep) -> str:
    return "primary" if step.invocation_id is None else "subagent"


def _input(arguments: dict[str, object], invalid: str | None) -> dict[str, object]:
    return arguments if invalid is None else {**arguments, "invalid_arguments": invalid}
