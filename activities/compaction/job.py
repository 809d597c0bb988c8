"""What one compaction is about: the context as it is, and what may go from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil

from activities.context import Context, build, in_order
from activities.histories import as_turn
from holdfast.agent.compaction import CompactionPlan, Entry, plan, usable
from holdfast.agent.conversation import Turn
from holdfast.agent.summary import SUMMARY_TOKENS_MAX, summary_text
from holdfast.agent.tokens import estimate_turn
from holdfast.domain.compaction_steps import CompactStep
from holdfast.domain.errors import Conflict, ValidationFailed
from holdfast.domain.project_file import CompactionSettings
from holdfast.settings.config import Config
from holdfast.storage.database.blobs import BlobStore
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables import Message
from holdfast.storage.moves.compactions import SUMMARY_KIND
from holdfast.storage.projects import projects
from holdfast.storage.sessions import messages, sessions

MANUAL, OVERFLOW = "operator_manual", "provider_overflow_retry"
SUMMARY_SHARE = 0.2


@dataclass(frozen=True)
class Job:
    """One compaction before anything is done."""

    step: CompactStep
    context: Context
    entries: list[Entry]
    extra_tokens: int
    strategy: str
    scale: float = 1.0  # tokens as the provider counts them for one of our estimate
    fallback_reason: str | None = None

    @property
    def settings(self) -> CompactionSettings:
        """What the project file says about this agent's compaction."""
        return self.context.spec.compaction

    @property
    def tokens_before(self) -> int:
        """How many tokens the whole context is."""
        return self.extra_tokens + sum(entry.tokens for entry in self.entries)

    @property
    def summary_tokens_max(self) -> int:
        """How long a summary may be, so that a small window is not filled by it again."""
        room = int(usable(self.context.window, self.context.spec.max_output_tokens) * SUMMARY_SHARE)
        return max(64, min(SUMMARY_TOKENS_MAX, room))

    def planned(self, retained: Collection[str] = ()) -> CompactionPlan:
        """What goes, with `retained` messages kept on top of those that always are."""
        window, reserved = self._window()
        return plan(
            self.entries,
            upper=self.settings.upper,
            lower=self.settings.lower,
            window=window,
            reserved=reserved,
            keep_turns=self.settings.keep_turns,
            pinned=retained,
            extra_tokens=self.extra_tokens,
            summary_tokens=self._summary_tokens(),
            everything=self.step.trigger == MANUAL,
        )

    def tokens_after(self, gone: Collection[str], summary: str | None) -> int:
        """How many tokens are left without these messages and with the summary."""
        left = sum(entry.tokens for entry in self.entries if entry.id not in gone)
        summed_up = estimate_turn(Turn("system", summary_text(summary))) if summary else 0
        return self.extra_tokens + left + ceil(summed_up * self.scale)

    def frees_enough(self, after: int) -> bool:
        """Whether the lower mark is reached: work can go on, and not only until the next step."""
        return after <= self.settings.lower * usable(*self._window())

    def _summary_tokens(self) -> int:
        return 0 if self.strategy == "drop" else ceil(self.summary_tokens_max * self.scale)

    def _window(self) -> tuple[int, int | None]:
        reserved = self.context.spec.max_output_tokens
        available = usable(self.context.window, reserved)
        if self.step.trigger == OVERFLOW and self.tokens_before < self.settings.upper * available:
            # The provider knows better: whatever our estimate, this much was too long for it.
            return max(self.tokens_before, 1), 0
        return self.context.window, reserved


def prepare(db: Db, blobs: BlobStore, config: Config, step: CompactStep) -> Job:
    """Read the agent's context and decide on the strategy."""
    _check_agent(db, step)
    context = build(
        db,
        blobs,
        config,
        step.session_id,
        agent_path=step.agent_path,
        invocation_id=step.invocation_id,
    )
    rows = messages.history(
        db, step.session_id, agent_path=step.agent_path, invocation_id=step.invocation_id
    )
    # What the provider counted is right about every part of the context.
    scale = context.tokens / max(1, context.estimated)
    sizes = [ceil(estimate_turn(as_turn(row)) * scale) for row in rows]
    strategy, fallback = _strategy(step, context.spec.compaction)
    return Job(
        step=step,
        context=context,
        entries=[entry(row, scale) for row in in_order(rows)],
        extra_tokens=max(0, context.tokens - sum(sizes)),
        scale=scale,
        strategy=strategy,
        fallback_reason=fallback,
    )


def entry(row: Message, scale: float = 1.0) -> Entry:
    """A stored message as the plan sees it."""
    turn = as_turn(row)
    return Entry(
        id=row.id,
        role=turn.role,
        text=turn.text,
        tool_calls=turn.tool_calls,
        tool_call_id=turn.tool_call_id,
        pinned=row.pinned,
        tokens=ceil(estimate_turn(turn) * scale),
        summary=row.meta.get("kind") == SUMMARY_KIND,
    )


def _check_agent(db: Db, step: CompactStep) -> None:
    session = sessions.get(db, step.session_id)
    try:
        projects.file_of(db, session).agent(step.agent_path)
    except (KeyError, ValueError):
        raise ValidationFailed(f"there is no agent {step.agent_path[:80]!r}") from None


def _strategy(step: CompactStep, settings: CompactionSettings) -> tuple[str, str | None]:
    """The strategy to follow, and why it is not the one that the project file names."""
    strategy = step.strategy or settings.strategy
    if strategy != "checkpoint":
        return strategy, None
    if step.run_id is None or step.trigger == MANUAL:
        if step.strategy is not None:
            raise Conflict("the strategy checkpoint needs a run that it can end")
        return "summarize", None
    if step.invocation_id is not None:
        return "summarize", "a subagent's context cannot be reviewed"
    return strategy, None
