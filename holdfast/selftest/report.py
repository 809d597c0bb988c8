"""What the self-test tells a person, and what it writes for a program."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.selftest.record import Finding, Record

FINDINGS_SHOWN_MAX = 20


def as_json(
    record: Record, findings: list[Finding], *, seed: str, minutes: float
) -> dict[str, Any]:
    """The whole outcome."""
    return {
        "verdict": "failed" if findings else "passed",
        "seed": seed,
        "minutes": minutes,
        "kills": dict(record.kills),
        "acknowledged": dict(Counter(one.kind for one in record.acknowledged)),
        "requests": dict(record.requests),
        "shell_commands": len(record.lines),
        "frames_seen": sum(len(f) for seen in record.seen for f in seen.frames.values()),
        "findings": [asdict(finding) for finding in findings],
    }


def write(path: Path, outcome: dict[str, Any]) -> None:
    """The report file."""
    path.write_text(json.dumps(outcome, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def progress(record: Record, *, elapsed_s: float, total_s: float) -> str:
    """One line: how far, how many kills, how many promises so far."""
    width = 20
    filled = min(width, int(width * elapsed_s / max(total_s, 1.0)))
    bar = "#" * filled + "-" * (width - filled)
    kills, promises = sum(record.kills.values()), len(record.acknowledged)
    left = max(0, int(total_s - elapsed_s))
    return f"[{bar}] {left:4d} s left, {kills} kills, {promises} commands acknowledged"


def verdict(outcome: dict[str, Any], *, home: str | None) -> str:
    """What a person reads at the end."""
    kills = ", ".join(f"{part} {count}" for part, count in sorted(outcome["kills"].items()))
    total = sum(outcome["acknowledged"].values())
    lines = [f"A fleet: {outcome['fleet']}."] if "fleet" in outcome else []
    noun = "faults" if "fleet" in outcome else "kills"
    lines += [
        f"{sum(outcome['kills'].values())} {noun} ({kills or 'none'}); {total} commands were "
        f"acknowledged, {outcome['shell_commands']} shell commands handed over, "
        f"{outcome['frames_seen']} frames watched.",
    ]
    findings = outcome["findings"]
    if not findings:
        lines.append("PASSED: everything acknowledged is stored, once and in order.")
    else:
        lines.append(f"FAILED: {len(findings)} promises were not kept:")
        for finding in findings[:FINDINGS_SHOWN_MAX]:
            where = f" (session {finding['session_id']})" if finding["session_id"] else ""
            lines.append(f"  {finding['kind']}: {finding['detail'][:300]}{where}")
        if home is not None:
            lines.append(f"The home was kept for a look: {home}")
    fleet = "--fleet " if "fleet" in outcome else ""
    lines.append(
        f"The same choices again: holdfast selftest {fleet}--seed {outcome['seed']} "
        f"--minutes {outcome['minutes']:g} (moments differ a little from run to run)"
    )
    return "\n".join(lines)
