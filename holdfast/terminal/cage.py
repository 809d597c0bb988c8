"""Cages: what an agent's programs may see and use, as configured, and the bubblewrap that holds it.

Inside: the system read-only, the working directory read-write, a private /tmp and an empty home; no
secrets, no host socket, no foreign processes, no network unless asked for.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from holdfast.terminal.errors import BadCage, CageSpawnFailed, CageUnavailable

SYSTEM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt")
# Root's cage is root outside, so the mode of these files would not keep it from reading them.
SECRET_PATHS = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private")
HOME_INSIDE = "/tmp/home"
ENVIRONMENT_PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "COLORTERM")
PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBE_TIMEOUT_S = 20
PRIVATE_PATHS = ("/tmp", "/run", "/var/tmp", "/dev/shm")
PRIVATE_TMP_MB = 512
MEGABYTE = 1024 * 1024
INSTALL_HINT = (
    "install bubblewrap (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap), "
    "allow user namespaces, or set `cage: disabled` for this agent"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CagePolicy:
    """One agent's cage; None as a limit means no limit."""

    fs_read_write: tuple[str, ...] = ()
    fs_read_only: tuple[str, ...] = ()
    fs_hidden: tuple[str, ...] = ()
    net: bool = False
    env: tuple[str, ...] = ()
    memory_mb: int | None = None
    pids: int | None = None
    walltime_s: float | None = None
    cpu_s: int | None = None

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> Self:
        """The policy of a project file's `cage` mapping; unknown keys are errors."""
        known = {"fs", "net", "env", "memory_mb", "pids", "walltime_s", "cpu_s"}
        _refuse_unknown("cage", raw, known)
        files = raw.get("fs", {})
        if not isinstance(files, Mapping):
            raise BadCage("cage.fs is a mapping of read_write, read_only and hidden")
        _refuse_unknown("cage.fs", files, {"read_write", "read_only", "hidden"})
        return cls(
            fs_read_write=_strings("cage.fs.read_write", files.get("read_write")),
            fs_read_only=_strings("cage.fs.read_only", files.get("read_only")),
            fs_hidden=_strings("cage.fs.hidden", files.get("hidden")),
            net=_switch("cage.net", raw.get("net", False)),
            env=_strings("cage.env", raw.get("env")),
            memory_mb=_whole("cage.memory_mb", raw.get("memory_mb")),
            pids=_whole("cage.pids", raw.get("pids")),
            walltime_s=_positive("cage.walltime_s", raw.get("walltime_s")),
            cpu_s=_whole("cage.cpu_s", raw.get("cpu_s")),
        )


@functools.cache
def probe() -> str:
    """The bubblewrap that works here, or CageUnavailable with the reason and what to do."""
    program = shutil.which("bwrap")
    if program is None:
        raise CageUnavailable(f"no cage can be built: bwrap is missing; {INSTALL_HINT}")
    trial = [program, *ISOLATION, "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        done = subprocess.run(trial, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CageUnavailable(f"no cage can be built: {error}; {INSTALL_HINT}") from error
    if done.returncode != 0:
        why = done.stderr.decode(errors="replace").strip()[-500:]
        raise CageUnavailable(f"no cage can be built: {why}; {INSTALL_HINT}")
    return program


# As root `--unshare-all` alone would leave the cage with root's capabilities; hence the user.
ISOLATION = (
    "--unshare-all",
    "--unshare-user",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--hostname",
    "cage",
)


def command_line(
    policy: CagePolicy, argv: Sequence[str], *, cwd: Path, hidden: Sequence[Path], status_fd: int
) -> list[str]:
    """The bwrap command that runs `argv` in this cage and reports its status on `status_fd`."""
    if cwd == Path("/") or cwd in hidden:
        raise CageSpawnFailed(f"a cage cannot work in {cwd}")
    line = [probe(), *ISOLATION, "--json-status-fd", str(status_fd)]
    if policy.net:
        line.append("--share-net")
    line += ["--proc", "/proc", "--dev", "/dev"]
    # What is written there is memory that no process is charged for, so it has a size.
    size = (policy.memory_mb or PRIVATE_TMP_MB) * MEGABYTE
    for path in PRIVATE_PATHS:
        line += ["--size", str(size), "--tmpfs", path]
    line += ["--dir", HOME_INSIDE]
    mounts = _mounts(policy, cwd, hidden)
    for arguments in mounts:
        line += arguments
    hiding = [arguments[1] for arguments in mounts if arguments[:1] == ["--tmpfs"]]
    for path in ("/", "/dev", *hiding):
        line += ["--remount-ro", path]
    return [*line, "--chdir", str(cwd), "--", *argv]


def environment(
    policy: CagePolicy, ours: Mapping[str, str], extra: Mapping[str, str]
) -> dict[str, str]:
    """The environment inside: a few harmless names, those the policy allows, and the caller's."""
    passed = {name: ours[name] for name in (*ENVIRONMENT_PASSED, *policy.env) if name in ours}
    user = {"USER": "cage", "LOGNAME": "cage", "HOME": HOME_INSIDE, "TMPDIR": "/tmp"}
    return {"PATH": PATH_DEFAULT, "LANG": "C.UTF-8", **passed, **user, **extra}


def _mounts(policy: CagePolicy, cwd: Path, hidden: Sequence[Path]) -> list[list[str]]:
    """The mounts, outer paths first, so that a deeper rule overrides the one around it."""
    rules: dict[Path, list[str]] = {}
    for name in SYSTEM_PATHS:
        rules[Path(name)] = _system(Path(name))
    if policy.net:
        # Often a link into /run, which is empty inside.
        resolver = Path("/etc/resolv.conf").resolve()
        rules[resolver] = ["--ro-bind-try", str(resolver), str(resolver)]
    for name in (*SECRET_PATHS, *policy.fs_hidden, *map(str, hidden)):
        path = (cwd / Path(name).expanduser()).resolve()
        rules[path] = _hide(path)
    for path in _resolve(policy.fs_read_only, cwd, hidden):
        rules[path] = ["--ro-bind", str(path), str(path)]
    for path in (cwd, *_resolve(policy.fs_read_write, cwd, hidden)):
        rules[path] = ["--bind", str(path), str(path)]
    return [rules[path] for path in sorted(rules, key=lambda path: len(path.parts))]


def _system(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind-try", str(path), str(path)]


def _hide(path: Path) -> list[str]:
    if path.is_dir():
        return ["--tmpfs", str(path)]
    return ["--ro-bind", "/dev/null", str(path)] if path.exists() else []


def _resolve(names: Sequence[str], cwd: Path, hidden: Sequence[Path]) -> list[Path]:
    """Real absolute paths of what the cage is given beside its working directory."""
    paths = [(cwd / Path(name).expanduser()).resolve() for name in names]
    for path in paths:
        if not path.exists():
            raise CageSpawnFailed(f"the cage names a path that does not exist: {path}")
        if not path.is_relative_to(cwd) and any(path.is_relative_to(place) for place in hidden):
            raise CageSpawnFailed(f"the cage cannot be given {path}: it holds secrets")
        if path == Path("/"):
            raise CageSpawnFailed("a cage cannot be given the whole disk")
    return paths


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


def hidden_paths(*candidates: str | os.PathLike[str] | None) -> list[Path]:
    """The real paths of what no cage may see, those that exist."""
    paths = [Path(candidate).resolve() for candidate in candidates if candidate]
    return [path for path in paths if path.exists()]
