"""The project file's prompt of every agent, as a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.agent.prompts import DEFAULT_PROMPT, prompt_text
from holdfast.domain.errors import NotFound, Refusal
from holdfast.domain.project_file import AgentSpec, subagent_path
from holdfast.storage.database.engine import Db
from holdfast.storage.projects import projects
from holdfast.storage.sessions import sessions

AGENTS_MAX = 200


def prompts_of_agents(db: Db, session_id: str) -> dict[str, str]:
    """Agent path → prompt text, for the session's whole tree of agents."""
    session = sessions.get(db, session_id)
    project_file = projects.file_of(db, session)
    try:
        folder = Path(projects.get(db, session.created_by, session.project_id).path)
    except NotFound:
        folder = Path(session.working_directory)
    texts: dict[str, str] = {}
    for path, spec in _agents("primary", project_file.primary):
        if len(texts) >= AGENTS_MAX:
            break
        texts[path] = _text(spec, folder)
    return texts


def _agents(path: str, spec: AgentSpec) -> Iterator[tuple[str, AgentSpec]]:
    yield path, spec
    for name, child in spec.subagents.items():
        yield from _agents(subagent_path(path, name), child)


def _text(spec: AgentSpec, folder: Path) -> str:
    try:
        return prompt_text(spec.system_prompt, folder)
    except Refusal:
        # The file is gone: a checkpoint must be possible all the same.
        return spec.system_prompt or DEFAULT_PROMPT
