"""All facts of one tool: what the model reads of it, what it is called with, how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from holdfast.agent.conversation import ToolCall
from holdfast.agent.tools.arguments import Arguments, Schema, explained, schema_of
from holdfast.agent.tools.outcome import ToolProblem
from holdfast.domain.tools import ROOT_ONLY_TOOLS, ToolKind

# What the model reads of one result; a longer one is kept whole as a blob and cut for the model.
OUTPUT_BYTES_MAX = 32 * 1024


class Need(StrEnum):
    """What an agent must have to be offered the tool."""

    SUBAGENTS = "subagents"
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """One tool. What the product knows of it is written here, or derived from here."""

    name: str
    description: str
    arguments: type[Arguments]
    kind: ToolKind
    summarised_by: Callable[[Mapping[str, Any]], object]  # what says most about a call
    read_only: bool = False  # changes nothing: a call needs no note in the database at its start
    parallel: bool = False  # may run at the same time as its neighbours
    repeat_safe: bool = False  # running it twice after a crash does no harm
    on_host: bool = True  # it touches files or processes: made where the session's are
    deaths_max: int = 2  # so many workers may end during one call; then it is not tried again
    needs_issue: bool = False  # refused while no issue is bound to the session
    needs: Need | None = None  # not offered without it
    default_timeout_s: float | None = None  # when a call names none
    output_bytes_max: int = OUTPUT_BYTES_MAX

    @property
    def parameters(self) -> Schema:
        """The JSON Schema of the arguments, as the model is given it."""
        return schema_of(self.arguments)

    @property
    def root_only(self) -> bool:
        """Whether only the root agent may call it."""
        return self.name in ROOT_ONLY_TOOLS

    @property
    def changes_files(self) -> bool:
        """Whether the working directory is saved before the first call of a run."""
        return self.kind in (ToolKind.EDIT, ToolKind.EXECUTE)

    def parse(self, call: ToolCall) -> Any:
        """The call's arguments as this tool's model; ToolProblem says what does not fit."""
        if call.invalid_arguments is not None:
            words = f"The arguments of {self.name} were not valid: {call.invalid_arguments}"
            raise ToolProblem(words)
        try:
            return self.arguments.model_validate(call.arguments)
        except ValidationError as error:
            words = f"The arguments of {self.name} do not fit: {explained(error, self.parameters)}"
            raise ToolProblem(words) from None


def by_argument(name: str) -> Callable[[Mapping[str, Any]], object]:
    """A summary that is the value of one argument."""
    return lambda given: given.get(name)
