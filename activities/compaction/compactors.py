"""Who makes a summary: a model, a subagent of the project file, or a command of the operator."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from activities.bills import bill
from activities.compaction.job import Job
from activities.compaction.plugin_command import PluginFailed, run_plugin
from activities.terminals import Terminals
from activities.tools.shell import surroundings
from holdfast.agent.compaction import Entry
from holdfast.agent.conversation import ModelAnswer, Turn
from holdfast.agent.errors import ProviderError
from holdfast.agent.prompts import prompt_text
from holdfast.agent.providers import complete
from holdfast.agent.routes import Route, resolve
from holdfast.agent.summary import summary_request
from holdfast.agent.tokens import context_window, estimate
from holdfast.domain.canonical import sha256
from holdfast.domain.project_file import AgentSpec
from holdfast.settings.config import Config
from holdfast.storage.database import blobs
from holdfast.storage.database.blobs import BlobMissing
from holdfast.storage.database.engine import Db
from holdfast.storage.database.opening import OpenStore
from holdfast.storage.database.tables import Call
from holdfast.storage.database.tables_history import Blob
from holdfast.storage.moves import compactions
from holdfast.storage.projects import projects
from holdfast.storage.projects.owners import owner_of
from holdfast.storage.sessions import calls, requests

COMMAND = "command:"
OBSERVER_TIMEOUT_S = 10.0
COMPACTOR_TIMEOUT_S = 60.0
INJECTED_CHARS_MAX = 20_000
SUMMARY_CHARS_MAX = 200_000


class CompactorFailed(Exception):
    """No summary could be made; the words say why."""


@dataclass
class Made:
    """What came of a strategy, before anything is stored."""

    summary: str | None = None
    retained: set[str] = field(default_factory=set)
    injected: list[str] = field(default_factory=list)
    plugins: list[dict[str, Any]] = field(default_factory=list)
    cost: dict[str, Any] | None = None
    fallback_reason: str | None = None

    def text(self) -> str | None:
        """The summary with what observers had to add."""
        parts = [self.summary or "", *self.injected]
        return "\n\n".join(part for part in parts if part.strip()) or None


class Compactors:
    """The strategies that ask somebody."""

    def __init__(self, store: OpenStore, config: Config, terminals: Terminals) -> None:
        self.store = store
        self.terminals = terminals
        self.config = config

    async def observe(self, job: Job, made: Made) -> None:
        """Tell the observers what is about to go; they may keep messages or add words."""
        for command in job.settings.observers:
            plan = job.planned(made.retained)
            result = await self._plugin(job, made, command, "observer", plan.superseded)
            if result is None:
                continue
            retained, words = result.get("retain"), result.get("inject")
            if isinstance(retained, list):
                made.retained.update(one for one in retained if isinstance(one, str))
            if isinstance(words, str) and words.strip():
                made.injected.append(words[:INJECTED_CHARS_MAX])

    async def summarise(self, job: Job, removed: list[Entry], made: Made) -> None:
        """Have the agent's own model write the summary."""
        await self._ask(job, job.context.route, removed, made)

    async def delegate(self, job: Job, removed: list[Entry], made: Made) -> None:
        """Have somebody else write it: a subagent's model and prompt, or a command."""
        chosen = job.settings.delegate_to or ""
        if chosen.startswith(COMMAND):
            gone = [entry.id for entry in removed]
            result = await self._plugin(
                job, made, chosen.removeprefix(COMMAND).strip(), "compactor", gone
            )
            summary = (result or {}).get("summary")
            if not isinstance(summary, str) or not summary.strip():
                raise CompactorFailed("the command gave no summary")
            made.summary = summary[:SUMMARY_CHARS_MAX]
            return
        spec = job.context.spec.subagents.get(chosen)
        if spec is None:
            raise CompactorFailed(f"there is no subagent {chosen[:80]!r} to delegate to")
        began = time.monotonic()
        route = resolve(self.config, spec.model)
        await self._ask(job, route, removed, made, instructions=await self._prompt(job, spec))
        made.plugins.append(_fired(chosen, "compactor", began, "compactor_result"))

    async def _prompt(self, job: Job, spec: AgentSpec) -> str | None:
        if spec.system_prompt is None:
            return None
        return prompt_text(spec.system_prompt, await self._folder(job))

    async def _folder(self, job: Job) -> Path:
        session = job.context.session
        project = await self.store.aread(
            lambda db: projects.get(db, session.created_by, session.project_id)
        )
        return Path(project.path)

    async def _ask(
        self,
        job: Job,
        route: Route,
        removed: list[Entry],
        made: Made,
        *,
        instructions: str | None = None,
    ) -> None:
        focus = await asyncio.to_thread(self._focus, job)
        turns = summary_request(removed, window=context_window(route, self.config), focus=focus)
        if instructions:
            turns[0] = Turn("system", f"{turns[0].text}\n\nAlso: {instructions}")
        descriptor = _descriptor(job, route, removed, turns)
        request = await asyncio.to_thread(self.store.blobs.put_json, descriptor)
        known = await self.store.aread(
            lambda db: compactions.summary_of_request(db, job.step.session_id, request.id)
        )
        if known is not None and not made.injected:
            made.summary = known  # proposed and rejected before: paid for once
            return
        await self.store.awrite(lambda db: self._begin(db, job, route, request))
        try:
            answer = await complete(
                route,
                turns,
                [],
                on_text=lambda _: None,
                max_output_tokens=max(256, job.summary_tokens_max),
            )
        except ProviderError as error:
            failure = {"code": error.code, "message": error.message}
            await self.store.awrite(lambda db: calls.fail(db, job.step.compaction_id, failure))
            raise CompactorFailed(error.message) from error
        await self.store.awrite(lambda db: self._finish(db, job, answer))
        made.cost = _cost(answer)
        if not answer.text.strip():
            raise CompactorFailed("the model gave no summary")
        made.summary = _bounded(answer.text.strip(), job.summary_tokens_max)

    def _focus(self, job: Job) -> str | None:
        if job.step.focus_id is None:
            return None
        try:
            focus: str = self.store.blobs.read_json(job.step.focus_id)
        except BlobMissing:
            return None  # a wish that waited for longer than staged bytes are kept
        return focus

    def _begin(self, db: Db, job: Job, route: Route, request: Blob) -> None:
        call = Call(
            # The compaction's own id: a repeated attempt takes the call over.
            id=job.step.compaction_id,
            session_id=job.step.session_id,
            run_id=job.step.run_id,
            agent_path=job.step.agent_path,
            type=requests.LEAF,
            head=job.context.session.current_head,
            request_ref=blobs.commit(db, request),
            model=route.model,
            provider=route.provider,
        )
        calls.begin(db, call)

    def _finish(self, db: Db, job: Job, answer: ModelAnswer) -> None:
        """The whole answer is kept: the summary that is used may be cut, edited or rejected."""
        text = answer.text.encode("utf-8", "surrogatepass")
        response = blobs.commit(db, self.store.blobs.put(text, "text/plain"))
        call = calls.get(db, job.step.compaction_id)
        calls.finish(db, call, bill(answer), response_ref=response)

    async def _plugin(
        self, job: Job, made: Made, command: str, role: str, gone: list[str] | tuple[str, ...]
    ) -> dict[str, Any] | None:
        """Run a command; its trouble is recorded, and an observer's stops nothing."""
        began = time.monotonic()
        session = job.context.session
        owner = await self.store.aread(lambda db: owner_of(db, session))
        try:
            result = await run_plugin(
                self.terminals,
                command,
                _question(job, set(gone)),
                where=surroundings(session, job.context.spec, owner, self.config),
                timeout_s=OBSERVER_TIMEOUT_S if role == "observer" else COMPACTOR_TIMEOUT_S,
            )
        except PluginFailed as error:
            made.plugins.append(_fired(command, role, began, "error"))
            if role == "compactor":
                raise CompactorFailed(str(error)) from error
            return None
        made.plugins.append(_fired(command, role, began, _kind(role, result)))
        return result


def _descriptor(job: Job, route: Route, removed: list[Entry], turns: list[Turn]) -> dict[str, Any]:
    """The request as it was sent, for it is bounded; the same request has the same descriptor."""
    removed_ids = {entry.id for entry in removed}
    named = [row for row in job.context.messages if row.id in removed_ids]
    return {
        "request_version": requests.VERSION,
        "kind": requests.LEAF,
        "rendered": True,
        "messages": [{"role": turn.role, "text": turn.text} for turn in turns],
        "message_ids": requests.ranges(named),
        "message_count": len(named),
        "system_hash": sha256(turns[0].text.encode("utf-8", "surrogatepass")),
        "cache": None,
        "provider": route.provider,
        "model": route.model,
        "max_output_tokens": max(256, job.summary_tokens_max),
    }


def _cost(answer: ModelAnswer) -> dict[str, Any]:
    return {
        "provider": answer.provider,
        "model": answer.model,
        "input_tokens": answer.usage.input_tokens,
        "output_tokens": answer.usage.output_tokens,
        "cost_usd": None if answer.cost_usd is None else float(answer.cost_usd),
    }


def _bounded(summary: str, tokens_max: int) -> str:
    """A model that ignores its limit must not fill the window again."""
    while estimate(summary) > 2 * tokens_max:
        summary = summary[: len(summary) * 3 // 4]
    return summary


def _question(job: Job, gone: set[str]) -> dict[str, Any]:
    session = job.context.session
    return {
        "hook": "pre_compact",
        "session_id": session.id,
        "project_id": session.project_id,
        "operator_id": session.created_by,
        "agent_path": job.step.agent_path,
        "strategy": job.strategy,
        "trigger": job.step.trigger,
        "messages_being_compacted": [_shown(one) for one in job.entries if one.id in gone],
        "messages_remaining": [_shown(one) for one in job.entries if one.id not in gone],
    }


def _shown(entry: Entry) -> dict[str, Any]:
    calls_made = [
        {"id": call.id, "name": call.name, "arguments": call.arguments} for call in entry.tool_calls
    ]
    return {
        "id": entry.id,
        "role": entry.role,
        "text": entry.text,
        "tool_calls": calls_made,
        "tool_call_id": entry.tool_call_id,
    }


def _kind(role: str, result: dict[str, Any]) -> str | None:
    if role == "compactor":
        return "compactor_result"
    if result.get("retain"):
        return "retain"
    return "inject" if result.get("inject") else None


def _fired(name: str, role: str, began: float, kind: str | None) -> dict[str, Any]:
    return {
        "name": name[:200],
        "role": role,
        "duration_ms": int((time.monotonic() - began) * 1000),
        "result_kind": kind,
    }
