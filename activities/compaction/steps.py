"""The steps that make room in a context: a compaction, and the operator's word on one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import activity

from activities.agent_prompts import prompts_of_agents
from activities.compaction.compactors import CompactorFailed, Compactors, Made
from activities.compaction.job import MANUAL, Job, prepare
from activities.compaction.review import approve, read_review, reject
from activities.heartbeats import beating
from activities.refusals import answering
from activities.terminals import Terminals
from holdfast.agent.compaction import CompactionPlan
from holdfast.agent.summary import summary_text
from holdfast.domain.clock import now_ms
from holdfast.domain.compaction_steps import (
    Compacted,
    CompactionFailed,
    CompactStep,
    Reviewed,
    ReviewStep,
)
from holdfast.domain.errors import BadRequest
from holdfast.domain.lifecycle import State
from holdfast.settings.config import Config
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.rows import change
from holdfast.storage.database.tables import SessionRow
from holdfast.storage.database.tables_history import Compaction
from holdfast.storage.moves import checkpoints, compactions
from holdfast.storage.sessions import runs, sessions

STRATEGY_TIMEOUT_S = 60.0
PENDING_REASON = "compaction_pending"
AWAITING = "awaiting_compaction"
COMPACTED, FAILED = "compacted", "compaction_failed"
FALLBACK_CHARS_MAX = 500


class CompactionActivities:
    """Compactions of agents' contexts."""

    def __init__(
        self,
        store: OpenStore,
        config: Callable[[], Config],
        terminals: Terminals,
        *,
        timeout_s: float = STRATEGY_TIMEOUT_S,
    ) -> None:
        self.store = store
        self.config = config
        self.terminals = terminals
        self.timeout_s = timeout_s

    @activity.defn(name="compact_context")
    @answering
    async def compact_context(self, step: CompactStep) -> Compacted:
        """Make room in a context. Safe to repeat: its record is keyed by its own id."""
        known = await self.store.aread(lambda db: compactions.find(db, step.compaction_id))
        if known is not None and known.state != compactions.SET_ASIDE:
            return _answer(known)
        async with beating():
            return await (self.compact(step) if known is None else self._propose(step, known))

    @activity.defn(name="fail_compaction")
    @answering
    async def fail_compaction(self, step: CompactionFailed) -> bool:
        """End the run of a compaction by hand that came to nothing; the first end wins."""
        return await self.store.awrite(lambda db: _fail_own_run(db, step))

    @activity.defn(name="review_compaction")
    @answering
    async def review_compaction(self, step: ReviewStep) -> Reviewed:
        """Carry out or drop a compaction that waited; a repeat finds it done."""
        review = await asyncio.to_thread(read_review, self.store.blobs, step.review_id)
        if step.decision == "approve":
            return await self.store.awrite(
                lambda db: approve(db, self.store.blobs, self.config(), step, review)
            )
        if step.decision == "reject":
            return await self.store.awrite(lambda db: reject(db, step))
        raise BadRequest("compaction must be approve or reject")

    async def compact(self, step: CompactStep) -> Compacted:
        """The work of `compact_context`, outside of Temporal."""
        job = await self.store.aread(lambda db: prepare(db, self.store.blobs, self.config(), step))
        began = now_ms()
        if step.trigger == MANUAL and step.run_id is not None:
            await self.store.awrite(lambda db: _begin_own_run(db, step))
        made = await self._made(job)
        plan = job.planned(made.retained)
        if step.trigger == "scheduled" and not plan.superseded:
            return Compacted(compaction_id=step.compaction_id)
        record = _record(job, plan, made, began)
        if job.strategy == "checkpoint" and plan.superseded:
            return await self._propose(step, record)
        return await self.store.awrite(lambda db: _carry_out(db, step, record))

    async def _made(self, job: Job) -> Made:
        """Follow the strategy; whatever goes wrong with it, the messages can still be dropped."""
        made = Made(fallback_reason=job.fallback_reason)
        compactors = Compactors(self.store, self.config(), self.terminals)
        try:
            async with asyncio.timeout(self.timeout_s):
                await compactors.observe(job, made)
                gone = set(job.planned(made.retained).superseded)
                removed = [one for one in job.entries if one.id in gone]
                if removed and job.strategy in ("summarize", "checkpoint"):
                    await compactors.summarise(job, removed, made)
                elif removed and job.strategy == "delegate":
                    await compactors.delegate(job, removed, made)
        except TimeoutError:
            made.summary = None
            made.fallback_reason = f"timeout: no summary after {self.timeout_s:.0f} s"
        except CompactorFailed as error:
            made.summary = None
            made.fallback_reason = f"error: {error}"[:FALLBACK_CHARS_MAX]
        return made

    async def _propose(self, step: CompactStep, record: Compaction) -> Compacted:
        prompts = await self.store.aread(lambda db: prompts_of_agents(db, step.session_id))
        return await self.store.awrite(lambda db: self._hold(db, step, record, prompts))

    def _hold(
        self, db: Db, step: CompactStep, record: Compaction, prompts: dict[str, str]
    ) -> Compacted:
        """End the run and pause the session until the operator has looked, all at once (K-083)."""
        known = compactions.find(db, record.id)
        if known is not None and known.state != compactions.SET_ASIDE:
            return _answer(known)
        session = sessions.lock(db, step.session_id)
        if session.state != State.RUNNING or step.run_id is None:
            # Paused or stopped meanwhile: what was paid for is kept and proposed afterwards.
            compactions.set_aside(db, record)
            return _answer(record)
        record.checkpoint_id = step.checkpoint_id
        compactions.hold(db, record)
        runs.close(db, step.run_id, state="done", finish_reason=AWAITING)
        checkpoints.create(
            db,
            self.store.blobs,
            checkpoint_id=step.checkpoint_id or "",
            session_id=step.session_id,
            created_by="compaction",
            prompts=prompts,
            run_id=step.run_id,
            reason=PENDING_REASON,
            compaction_id=record.id,
        )
        change(db, SessionRow, step.session_id, active_run=None)
        return _answer(record)


def _record(job: Job, plan: CompactionPlan, made: Made, began: int) -> Compaction:
    step = job.step
    summary = made.text() if plan.superseded else None
    after = job.tokens_after(plan.superseded, summary)
    return Compaction(
        id=step.compaction_id,
        session_id=step.session_id,
        run_id=step.run_id,
        agent_path=step.agent_path,
        created_at=began,
        trigger=step.trigger,
        strategy=job.strategy if job.fallback_reason is None else job.settings.strategy,
        threshold_estimate=plan.threshold_estimate,
        after_estimate=round(after / plan.tokens_usable, 4),
        window_upper=plan.window_upper,
        window_lower=plan.window_lower,
        window_tokens=job.context.window,
        superseded_message_ids=list(plan.superseded),
        summary=summary,
        plugins_fired=made.plugins,
        plugin_cost=made.cost,
        fallback_occurred=made.fallback_reason is not None,
        fallback_reason=made.fallback_reason,
        enough=bool(plan.superseded) and job.frees_enough(after),
        correction=job.scale,
    )


def _carry_out(db: Db, step: CompactStep, record: Compaction) -> Compacted:
    summary = summary_text(record.summary) if record.summary else None
    done = compactions.carry_out(db, record, summary=summary, invocation_id=step.invocation_id)
    if step.trigger == MANUAL and step.run_id is not None:
        runs.close(db, step.run_id, state="done", finish_reason=COMPACTED)
    return _answer(done)


def _begin_own_run(db: Db, step: CompactStep) -> None:
    """A compaction by hand is a run of its own: no message began it and no answer ends it."""
    runs.create(
        db,
        run_id=step.run_id or "",
        session_id=step.session_id,
        message_id=None,
        user_id=step.user_id,
        state="running",
        preview="",
    )


def _fail_own_run(db: Db, step: CompactionFailed) -> bool:
    if runs.find(db, step.run_id) is None:  # refused before it began
        return False
    error = {"code": FAILED, "message": step.message}
    return runs.close(db, step.run_id, state="failed", error=error, finish_reason="failed")


def _answer(record: Compaction) -> Compacted:
    return Compacted(
        compaction_id=record.id,
        superseded=len(record.superseded_message_ids),
        enough=record.enough,
        pending_review=record.state == "pending",
        set_aside=record.state == compactions.SET_ASIDE,
    )
