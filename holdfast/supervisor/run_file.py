"""run.json: who runs in this home and where, while it is up."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdfast.supervisor import process


@dataclass
class RunFile:
    """The content of run.json; `births` tells our processes from strangers with their pids."""

    pids: dict[str, int] = field(default_factory=dict)
    births: dict[str, str] = field(default_factory=dict)
    api_url: str = ""
    temporal_address: str = ""
    temporal_ui_url: str | None = None

    def record(self, part: str, pid: int) -> None:
        """Note the process that is this part from now on."""
        self.pids[part] = pid
        self.births[part] = process.birth(pid) or ""

    def forget(self, part: str) -> None:
        """The part has no process at the moment."""
        self.pids.pop(part, None)
        self.births.pop(part, None)

    def is_running(self, part: str) -> bool:
        """Whether that part's own process is alive."""
        return part in self.pids and process.is_running(self.pids[part], self.births.get(part))

    def write(self, path: Path) -> None:
        """Replace the file as a whole, readable by its owner only."""
        draft = path.with_name(path.name + ".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=2)
        draft.replace(path)


def read(path: Path) -> RunFile | None:
    """What run.json says, or None when there is none that can be read."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return RunFile(
            pids={str(part): int(pid) for part, pid in values["pids"].items()},
            births={str(part): str(born) for part, born in values.get("births", {}).items()},
            api_url=str(values.get("api_url") or ""),
            temporal_address=str(values.get("temporal_address") or ""),
            temporal_ui_url=values.get("temporal_ui_url"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
