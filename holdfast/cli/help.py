"""`holdfast --help`: the commands by what one wants to do, each with its whole first sentence."""

from __future__ import annotations

from typing import Any

import typer.core

SECTIONS: dict[str, tuple[str, ...]] = {
    "Run it": ("up", "down", "status", "selftest"),
    "Sign in": ("token", "launch", "operator"),
    "Talk": ("send", "attach", "watch", "new", "ls", "show", "waiting", "cancel", "discard",
             "retry", "seen", "end", "reopen"),
    "Pause, go back, branch": (
        "checkpoint",
        "checkpoints",
        "resume",
        "rollback",
        "resend",
        "fork",
        "diff",
        "compact",
    ),
    "Say what it may": ("approvals", "approve", "deny", "permissions"),
    "Terminals": ("term", "terms"),
    "Find and keep": ("search", "rename", "archive", "unarchive", "export", "import", "log",
                      "trace", "changes", "timeline"),
    "Projects": ("project", "trust", "issue", "memory"),
    "Upkeep": ("usage", "du", "doctor", "reindex", "retention", "prune", "purge"),
    "A fleet": ("hosts", "fleet", "worker", "api", "terminal-host"),
}  # fmt: skip
SENTENCE_MAX = 200


class Sectioned(typer.core.TyperGroup):
    """The top of the command line; a command that is in no section is shown last."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Sections in the order of the table above."""
        left = dict(self.commands)
        for title, names in SECTIONS.items():
            self._section(formatter, title, {name: left.pop(name) for name in names})
        self._section(formatter, "Commands", left)

    def _section(self, formatter: Any, title: str, commands: dict[str, Any]) -> None:
        # Names have one width in all sections, so that the sentences stand in one column.
        width = max(len(name) for name in self.commands)
        lines = [
            (name.ljust(width), command.get_short_help_str(SENTENCE_MAX))
            for name, command in commands.items()
        ]
        if lines:
            with formatter.section(title):
                formatter.write_dl(lines)
