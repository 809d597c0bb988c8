"""What the type check says of calls of a step."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEAD = """
from holdfast.domain.steps import EndStep, Finished, Loaded, LoadStep, ToolStep
from workflows import steps

load, end = LoadStep(session_id="s"), EndStep(session_id="s", user_id="u")
tool = ToolStep(session_id="s", run_id="r", tool_call_id="c")

async def calls() -> None:
"""
# A call, and the error that it must lead to.
CALLS = {
    "loaded: Loaded = await steps.load_session(load)": None,
    "await steps.load_session(end)": "arg-type",
    "finished: Finished = await steps.load_session(load)": "assignment",
    "failed: bool = (await steps.call_tool(tool)).failed": None,
    "await steps.call_tool(load)": "arg-type",
    "(await steps.call_tool(tool)).state": "attr-defined",
}


def test_the_type_check_rejects_a_wrong_argument_and_a_wrong_use_of_the_result(
    tmp_path: Path,
) -> None:
    source = tmp_path / "calls.py"
    source.write_text(HEAD + "".join(f"    {call}\n" for call in CALLS), encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(source)]
    said = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    errors = re.findall(r":(\d+): error: .* \[(.+)\]$", said, re.MULTILINE)
    first = HEAD.count("\n") + 1
    expected = [(str(first + at), error) for at, error in enumerate(CALLS.values()) if error]
    assert errors == expected, said
