"""The scripted model: plays the script in the last message, or is a friendly keyless demo."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Sequence

from holdfast.agent.conversation import ModelAnswer, Turn, Usage
from holdfast.agent.errors import (
    UNREACHABLE,
    ContextOverflow,
    PassingProviderError,
    PermanentProviderError,
    ProviderError,
)
from holdfast.agent.routes import Route
from holdfast.agent.script import Step, last_question, next_step
from holdfast.agent.summary import MARKER
from holdfast.agent.tokens import estimate, estimate_turns
from holdfast.agent.tools.specs import LIST_FILES, SHELL
from holdfast.agent.tools.tool_spec import ToolSpec

DEMO_CHUNKS = 30
DEMO_EVERY_MS = 15
QUOTED_CHARS_MAX = 300
_LIST_WISH = re.compile(r"\b(list|show|see|what)\b.*\b(files?|folders?|director(y|ies))\b", re.I)
_RUN_WISH = re.compile(r"\b(?:run|execute)\b[\s:]*(?:`([^`\n]+)`|(.*))", re.I)
_PATH = re.compile(r"(?:\.{0,2}/)?(?:[\w.-]+/)+[\w.-]+|\b[\w-]+\.[a-z]{1,4}\b")

HELLO = """\
Hello! I am Holdfast's scripted demo model: I need no key, and I do not think. \
You said: “{said}”. Ask me to “list files” or to “run `date`” to see a tool at work, stop me \
mid-sentence, or kill the server: this session goes on where it was.

To talk to a real model, add a provider to config.toml in your Holdfast home, for example

[providers.openai]
driver = "openai"
api_key_env = "OPENAI_API_KEY"

[aliases]
default = "openai:gpt-5-mini"

and start a new session. Ollama and any OpenAI-compatible server work too: see docs/providers.md."""


async def answer(
    route: Route,
    turns: Sequence[Turn],
    tools: Sequence[ToolSpec],
    *,
    on_text: Callable[[str], Awaitable[None] | None],
) -> ModelAnswer:
    """Play the element that is next; the same turns always give the same answer."""
    step = _summary_step(turns) or next_step(turns) or _own_step(route.model, turns, tools)
    if step.hang_s:
        await asyncio.sleep(step.hang_s)
    if (trouble := _trouble(step, turns)) is not None:
        raise trouble
    for piece in step.pieces():
        if step.every_ms:
            await asyncio.sleep(step.every_ms / 1000)
        waiting = on_text(piece)
        if inspect.isawaitable(waiting):
            await waiting
    if step.drop or step.garbage:
        raise PassingProviderError("stream_dropped", "The scripted stream broke off.")
    return _finished(route, turns, step)


def _finished(route: Route, turns: Sequence[Turn], step: Step) -> ModelAnswer:
    text, calls = "".join(step.pieces()), step.tool_calls()
    used = step.usage or Usage(
        input_tokens=estimate_turns(turns),
        output_tokens=estimate(text) + sum(estimate(json.dumps(c.arguments)) for c in calls),
    )
    reason = "tool_calls" if calls else "stop"
    return ModelAnswer(text, calls, used, reason, route.model, route.provider)


def _trouble(step: Step, turns: Sequence[Turn]) -> ProviderError | None:
    if step.overflow_above is not None and estimate_turns(turns) > step.overflow_above:
        return ContextOverflow("The script says that the context is too long.")
    match step.error:
        case None:
            return None
        case "overflow":
            return ContextOverflow("The script says that the context is too long.")
        case "connection":
            return PassingProviderError("provider_unreachable", UNREACHABLE)
        case 429:
            return PassingProviderError("rate_limited", "Scripted error 429.", retry_after_s=0.05)
        case int(status) if status >= 500:
            return PassingProviderError("provider_error", f"Scripted error {status}.")
    codes = {401: "authentication_failed", 403: "authentication_failed", 404: "model_not_found"}
    code = codes.get(step.error, "bad_request") if isinstance(step.error, int) else "bad_request"
    return PermanentProviderError(code, f"Scripted error {step.error}.")


def _own_step(model: str, turns: Sequence[Turn], tools: Sequence[ToolSpec]) -> Step:
    position = last_question(turns)
    said = turns[position].text if position is not None else ""
    if model == "echo":
        return Step(say=f"You said: {said}", chunks=max(1, min(DEMO_CHUNKS, len(said) // 4)))
    if model == "demo":
        return _demo_step(said, turns[(position or 0) + 1 :], {spec.name for spec in tools})
    raise PermanentProviderError(
        "model_not_found", f'The scripted provider has the models "demo" and "echo", not "{model}".'
    )


def _demo_step(said: str, since: Sequence[Turn], tools: set[str]) -> Step:
    results = [turn for turn in since if turn.role == "tool"]
    if results:
        return _demo_say(
            f"Here is what the {results[-1].tool_name} tool answered:\n\n"
            f"{results[-1].text[:QUOTED_CHARS_MAX]}\n\nThat was a real tool call in your "
            "session's working directory, chosen by a script and not by a model."
        )
    if (command := _wished_command(said)) and SHELL.name in tools:
        return _demo_call(SHELL.name, {"command": command}, "Let me run that for you. ")
    if _LIST_WISH.search(said) and LIST_FILES.name in tools:
        return _demo_call(LIST_FILES.name, {}, "Let me look at your files. ")
    shown = said.strip().replace("\n", " ")
    return _demo_say(HELLO.format(said=shown[:120] + ("…" if len(shown) > 120 else "")))


def _wished_command(said: str) -> str | None:
    """The command the operator quoted; a vague wish gets a harmless one."""
    wish = _RUN_WISH.search(said)
    if wish is None:
        return None
    return wish.group(1) or "echo Hello from Holdfast && date"


def _demo_say(text: str) -> Step:
    return Step(say=text, chunks=DEMO_CHUNKS, every_ms=DEMO_EVERY_MS)


def _demo_call(name: str, arguments: dict[str, str], say: str) -> Step:
    return Step(say=say, chunks=6, every_ms=DEMO_EVERY_MS, calls=((name, arguments),))


def _summary_step(turns: Sequence[Turn]) -> Step | None:
    """A plausible summary when the request is one of compaction."""
    if not turns or turns[0].role != "system" or not turns[0].text.startswith(MARKER):
        return None
    body = "\n".join(turn.text for turn in turns[1:])
    questions = re.findall(r"^\[user\] (.+)$", body, re.MULTILINE)
    paths = list(dict.fromkeys(_PATH.findall(body)))[:20]
    calls = len(re.findall(r"^\[tool call\]", body, re.MULTILINE))
    goal = questions[0][:QUOTED_CHARS_MAX] if questions else "none"
    last = questions[-1][:QUOTED_CHARS_MAX] if questions else "none"
    say = (
        f"## Goal\n{goal}\n\n## Constraints & Preferences\nnone\n\n## Progress\n### Done\n"
        f"{calls} tool calls and {len(questions)} messages of the operator were handled.\n"
        "### In Progress\nnone\n### Blocked\nnone\n\n## Key Decisions\nnone\n\n"
        f"## Next Steps\nGo on with: {last}\n\n## Critical Context\n"
        f"Last question, verbatim: {last}\nPaths: {', '.join(paths) or 'none'}"
    )
    return Step(say=say, chunks=4)
