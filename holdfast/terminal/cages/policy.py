"""What an agent's programs may see and use, as the project file says; and what no cage may see."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from holdfast.domain.cages.destinations import Destinations
from holdfast.terminal.errors import BadCage


@dataclass(frozen=True, slots=True, kw_only=True)
class CagePolicy:
    """One agent's cage; None as a limit means what `CageLimits.applied` fills in."""

    fs_read_write: tuple[str, ...] = ()
    fs_read_only: tuple[str, ...] = ()
    fs_hidden: tuple[str, ...] = ()
    # Whether the cage shares the network of the host; `egress` is the guarded way out.
    net: bool = False
    egress: Destinations | None = None
    env: tuple[str, ...] = ()
    memory_mb: int | None = None
    pids: int | None = None
    walltime_s: float | None = None
    cpu_s: int | None = None
    # Of the operator, not of the project file.
    file_mb: int | None = None
    disk_mb: int | None = None
    tmp_mb: int | None = None
    ptrace: bool = False

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> Self:
        """The policy of a project file's `cage` mapping; unknown keys are errors."""
        known = {"fs", "net", "env", "memory_mb", "pids", "walltime_s", "cpu_s", "ptrace"}
        _refuse_unknown("cage", raw, known)
        files = raw.get("fs", {})
        if not isinstance(files, Mapping):
            raise BadCage("cage.fs is a mapping of read_write, read_only and hidden")
        _refuse_unknown("cage.fs", files, {"read_write", "read_only", "hidden"})
        return cls(
            fs_read_write=_strings("cage.fs.read_write", files.get("read_write")),
            fs_read_only=_strings("cage.fs.read_only", files.get("read_only")),
            fs_hidden=_strings("cage.fs.hidden", files.get("hidden")),
            net=raw.get("net") == "host",
            egress=_egress("cage.net", raw.get("net", False)),
            env=_strings("cage.env", raw.get("env")),
            memory_mb=_whole("cage.memory_mb", raw.get("memory_mb")),
            pids=_whole("cage.pids", raw.get("pids")),
            walltime_s=_positive("cage.walltime_s", raw.get("walltime_s")),
            cpu_s=_whole("cage.cpu_s", raw.get("cpu_s")),
            ptrace=_switch("cage.ptrace", raw.get("ptrace", False)),
        )


def hidden_paths(*candidates: str | os.PathLike[str] | None) -> list[Path]:
    """The real paths of what no cage may see, those that exist."""
    paths = [Path(candidate).resolve() for candidate in candidates if candidate]
    return [path for path in paths if path.exists()]


def _refuse_unknown(where: str, raw: Mapping[str, Any], known: set[str]) -> None:
    if unknown := set(raw) - known:
        raise BadCage(f"{where} has no {', '.join(sorted(map(str, unknown)))}")


def _strings(where: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise BadCage(f"{where} is a list of texts")
    return tuple(value)


def _switch(where: str, value: Any) -> bool:
    # YAML 1.2 reads `on` as a text, JSON knows only true.
    if isinstance(value, bool):
        return value
    if value in ("on", "off"):
        return bool(value == "on")
    raise BadCage(f"{where} is on or off")


def _egress(where: str, value: Any) -> Destinations | None:
    try:
        return Destinations.parse(value)
    except ValueError as error:
        raise BadCage(f"{where} {error}") from error


def _whole(where: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadCage(f"{where} is a whole number above 0")
    return value


def _positive(where: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadCage(f"{where} is a number above 0")
    return float(value)
