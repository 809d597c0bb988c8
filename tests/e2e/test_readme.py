"""The README is true: its commands run, its program works, its links lead somewhere."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from holdfast.cli.help import SECTIONS
from holdfast.cli.main import app
from holdfast.settings.config import parse_config
from tests.conftest import Account
from tests.support.command_line import run_here
from tests.support.servers.product import Product

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SESSION = "01KA5"
DEMO = "version: 1\nproject: readme\nprimary: {model: 'scripted:demo'}\n"
# docs/cli.md is generated from the commands themselves.
PAGES = [
    ROOT / "README.md",
    *sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "cli.md"}),
]


def blocks() -> list[str]:
    """The indented blocks of the README, without their indent; the picture, fenced, is none."""
    unfenced = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", unfenced, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block, flags=re.MULTILINE).strip("\n") for block in found]


def shell_commands() -> list[str]:
    lines = [line for block in blocks() for line in block.splitlines() if line.startswith("$ ")]
    return [line.removeprefix("$ ") for line in lines]


def the_block(text: str) -> str:
    [found] = [block for block in blocks() if text in block]
    return found


def test_every_block_is_one_that_a_test_below_knows() -> None:
    marks = ("make up", "$ holdfast", "providers.", "from holdfast import", "AsyncClient.from")
    assert [block for block in blocks() if not any(mark in block for mark in marks)] == []
    assert len(shell_commands()) > 8


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", the_block("make up"), re.MULTILINE)
    assert targets == ["up", "test"]
    assert [one for one in targets if not re.search(rf"^{one}:", makefile, re.MULTILINE)] == []


def test_the_real_provider_is_two_lines_that_load() -> None:
    block = the_block("providers.")
    assert len(block.splitlines()) == 2
    config = parse_config(block.encode(), Path("config.toml"))
    assert config.providers["openai"].driver == "openai"
    assert config.aliases["default"].startswith("openai:")


def test_every_shell_command_works_in_its_order(
    product: Product,
    operator: Account,
    make_project: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**product.environment(), "HOLDFAST_TOKEN": operator.token}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(make_project(DEMO)["path"])
    session_id = ""
    for line in shell_commands():
        words = shlex.split(line.replace(SESSION, session_id), comments=True)
        assert words[0] == "holdfast"
        code, out, err = run_here(*words[1:])
        assert code == 0, f"{line}\n{out}{err}"
        if not session_id:
            session_id = re.findall(r"session (\w+)", err)[0]
            assert "Holdfast's scripted demo model" in out


def test_status_names_the_home(product: Product, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in product.environment().items():
        monkeypatch.setenv(name, value)
    assert "(`holdfast status` names" in README.replace("\n", " ")
    assert f"Home: {product.home}" in run_here("status")[1]


def test_the_programs_print_an_answer(
    product: Product,
    operator: Account,
    make_project: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**product.environment(), "HOLDFAST_TOKEN": operator.token}.items():
        monkeypatch.setenv(name, value)
    program = the_block("from holdfast import").replace("http://127.0.0.1:8420", product.url)
    program = program.replace("/path/to/folder", make_project(DEMO)["path"])
    names: dict[str, Any] = {"token": operator.token}
    assert printed_by(program, names).strip() != ""
    kinds = printed_by(the_block("AsyncClient.from"), names).split()
    assert (kinds[0], kinds[-1]) == ("accepted", "run.completed")


def printed_by(program: str, names: dict[str, Any]) -> str:
    """What the program prints; it may await on its top level, as in an asyncio console."""
    code = compile(program, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        waiting = eval(code, names)
        if inspect.iscoroutine(waiting):
            asyncio.run(waiting)
    return printed.getvalue()


def test_every_link_of_every_page_leads_to_a_file() -> None:
    dead = []
    for page in PAGES:
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        ours = [link for link in links if not link.startswith(("http:", "https:"))]
        dead += [f"{page.name}: {link}" for link in ours if not (page.parent / link).exists()]
    assert dead == []


def test_every_command_that_a_page_names_exists() -> None:
    top = typer.main.get_command(app)
    unknown = []
    for page in PAGES:
        # In a table a bar of one's own is written with a backslash.
        text = page.read_text(encoding="utf-8").replace("\\|", "|")
        named = re.findall(r"`holdfast ([a-z][^`\n]*)`", text)
        named += re.findall(r"^ *(?:\$ )?holdfast ([a-z][^#\n]*)", text, re.MULTILINE)
        unknown += [f"{page.name}: {words}" for words in named if not _exists(top, words.split())]
    assert unknown == []


def test_every_configuration_that_a_page_shows_loads() -> None:
    shown = [
        (page, block)
        for page in PAGES
        for block in re.findall(
            r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    ]
    assert len(shown) > 1
    for page, block in shown:
        parse_config(block.encode(), page)


def test_help_shows_every_command_with_its_whole_sentence() -> None:
    code, out, _ = run_here("--help")
    assert code == 0
    assert sorted(one for names in SECTIONS.values() for one in names) == sorted(
        getattr(typer.main.get_command(app), "commands")  # noqa: B009 - a group's
    )
    assert "..." not in out.partition("\n")[2]
    assert "Pause, go back, branch:" in out


def _exists(command: Any, words: list[str]) -> bool:
    """Whether these words name a command and options that it has; `a|b` names two."""
    children = getattr(command, "commands", {})
    if children and words and words[0][0].isalpha():
        names = words[0].split("|")
        return all(name in children and _exists(children[name], words[1:]) for name in names)
    options = {name for one in command.params for name in [*one.opts, *one.secondary_opts]}
    wanted = {word.strip("[],").partition("=")[0] for word in words if "--" in word}
    return wanted <= options | {"--help"}
