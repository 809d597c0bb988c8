"""What travels between the workflow and its steps: ids, states and small numbers, never content."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.domain.permissions.approval_steps import Asked


@dataclass(frozen=True, kw_only=True)
class PendingCall:
    """A tool call that the loop has to see through."""

    id: str
    name: str
    summary: str = ""
    alone: bool = False  # not at the same time as others
    subagent: str | None = None
    on_host: bool = False  # it touches files or processes
    guarded: bool = False  # a subagent that rules may ask about or deny


@dataclass(frozen=True, kw_only=True)
class LoadStep:
    """Read the session from the database; a workflow that begins is the only one at work."""

    session_id: str
    begins: bool = False


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The session as the database has it."""

    state: str
    project_id: str
    operator: str
    title: str = ""
    checkpoint_id: str | None = None
    run_id: str | None = None
    steps: int = 0
    max_steps: int = 200
    pending: list[PendingCall] = field(default_factory=list)
    answered: bool = False
    on_crash: str = "resume"
    compact_every_minutes: int | None = None
    message_id: str | None = None
    waiting: list[str] = field(default_factory=list)  # how each message that waits was sent


@dataclass(frozen=True, kw_only=True)
class AdmitStep:
    """Take a staged message, and run or queue it."""

    session_id: str
    message_id: str
    run_id: str
    user_id: str
    content: str | None = None


@dataclass(frozen=True, kw_only=True)
class RetryStep:
    """Run the message of the last run again, as the run `new_run_id`."""

    session_id: str
    run_id: str
    new_run_id: str
    user_id: str


@dataclass(frozen=True, kw_only=True)
class AdmittedRun:
    """Where the message went."""

    state: str
    run_id: str
    message_id: str
    max_steps: int = 200


@dataclass(frozen=True, kw_only=True)
class QueueStep:
    """Start or discard what is queued."""

    session_id: str
    user_id: str
    trigger: str = "resume"  # or auto_resume, when nobody asked


@dataclass(frozen=True, kw_only=True)
class ModelStep:
    """One model call of an agent."""

    session_id: str
    run_id: str
    step: int
    call_id: str
    message_id: str  # of the first attempt's answer
    agent_path: str = "primary"
    invocation_id: str | None = None
    after_compaction: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """What the loop has to do next."""

    pending: list[PendingCall] = field(default_factory=list)
    budget_reached: str | None = None
    must_compact: bool = False
    overflow: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolStep:
    """One tool call."""

    session_id: str
    run_id: str
    tool_call_id: str
    tool_name: str = ""
    may_ask: bool = False  # the workflow waits for an approval where one is needed


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """How the tool call ended, which limit of its cage it ran into, and why it got no cage."""

    failed: bool = False
    exceeded: str | None = None  # walltime | memory
    cage_failure: str | None = None  # what the operator reads
    asked: Asked | None = None  # not made yet: it waits for this approval
    fingerprint: str = ""  # equal for equal calls with equal results; empty: nobody compares


@dataclass(frozen=True, kw_only=True)
class CloseToolStep:
    """Give a tool call that the loop itself understood its result."""

    session_id: str
    tool_call_id: str
    text: str
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class FinishStep:
    """End the run."""

    session_id: str
    run_id: str
    state: str  # done | failed | cancelled
    trigger: str
    user_id: str = ""
    error_code: str | None = None
    error_message: str | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Where the session stands after the end of a run."""

    state: str
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class EndStep:
    """End or fail the session for good, or open it again."""

    session_id: str
    user_id: str
    reason: str = "operator"
    error_code: str | None = None
    error_message: str | None = None


@dataclass(frozen=True, kw_only=True)
class RefusalStep:
    """A signal that the table refused; recorded, and harms nothing."""

    session_id: str
    command: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ProcessesStep:
    """Suspend, resume or kill what the terminal host runs for a session or run."""

    session_id: str
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class RecoverStep:
    """A run whose workflow was lost while it was going on."""

    session_id: str
    run_id: str
    policy: str


@dataclass(frozen=True, kw_only=True)
class KeepStep:
    """Let a staged message wait in its busy session."""

    session_id: str
    message_id: str
    when_busy: str  # queue | steer | interrupt
    user_id: str
    run_id: str | None = None  # the run that an interrupt will begin
    content: str | None = None  # only from the Temporal UI, where nothing could be staged


@dataclass(frozen=True, kw_only=True)
class Kept:
    """`waits` unless the session took the message already; then in which run."""

    waits: bool
    run_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class SteerStep:
    """Say in the run what waits for the model's next call."""

    session_id: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Steered:
    """How much was said, and whether the model's last answer came after all of it."""

    count: int
    answered: bool


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """Begin a run with the next message that waits."""

    session_id: str
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Next:
    """The run of the message whose turn it was; None when nothing waits."""

    run: AdmittedRun | None = None
    steered: bool = False  # words wait for its first model call
    interrupted: bool = False  # another interrupt came while the run before was being stopped
