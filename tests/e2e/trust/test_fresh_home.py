"""A fresh product, a new folder, no project file: what a model's shell can reach of the product."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client
from holdfast.client.errors import Refused
from tests.support.servers.product import PARTS, Product
from tests.support.waiting import wait_for

CONFIG = """\
[providers.stub]
driver = "scripted"
[providers.talks]
driver = "anthropic"
api_key_env = "TALK_KEY"
[aliases]
default = "stub:echo"
"""
SECRETS = {
    "TALK_KEY": "hush-talk",
    "OPENAI_API_KEY": "hush-openai",
    "HOLDFAST_TOKEN": "hush-token",
    "OTHER_SECRET": "hush-other",
}


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    """A product whose home lies in a folder that somebody works in, started with keys around."""
    around = Path(tempfile.mkdtemp(prefix="hp-", dir="/tmp"))
    (around / "h").mkdir(mode=0o700)
    made = Product(config=CONFIG, environment=SECRETS, home=around / "h")
    try:
        made.start()
        # The folder of large contents is there from the first of them on.
        (made.home / "blobs").mkdir(mode=0o700, exist_ok=True)
        yield made
    finally:
        made.close()
        shutil.rmtree(around, ignore_errors=True)


@pytest.fixture
def holdfast(product: Product) -> Iterator[Client]:
    with Client(product.url, (product.home / "token").read_text().strip()) as opened:
        yield opened


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")


@pytest.mark.parametrize("part", [part for part in PARTS if part != "supervisor"])
def test_a_part_has_only_the_secrets_that_it_uses(product: Product, part: str) -> None:
    found = environment_of(product.pids()[part])
    uses = {"worker": {"TALK_KEY", "OPENAI_API_KEY", "OTHER_SECRET"}, "api": {"OTHER_SECRET"}}
    assert {name for name, value in SECRETS.items() if value in found} == uses.get(part, set())
    knows_the_database = "HOLDFAST_DATABASE_URL" in found
    assert knows_the_database == (part in ("worker", "api"))


def attack(product: Product, folder: Path) -> str:
    """Tries for the token, the database, folders of others, keys and ports; `got` marks a hit."""
    home = product.home
    run = product.run_json()
    ports = [product.url, run["temporal_address"], run["temporal_ui_url"]]
    addresses = [one.removeprefix("http://").partition("/")[0].split(":") for one in ports]
    return "\n".join(
        [
            f"for file in token config.toml run.json holdfast.sqlite chats/other/note; do "
            f'head -c 90 "{home}/$file" | tr -d "\\0" | grep . && echo "got $file"; done',
            "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a hush | sort -u",
            f"ls {home} {folder.parent}/elsewhere; cat {folder.parent}/elsewhere/note",
            *(
                f"(exec 3<>/dev/tcp/{host}/{port}) 2>/dev/null && echo got port {port}"
                for host, port in addresses
            ),
            "true",
        ]
    )


def run_shell(holdfast: Client, project_id: str, command: str, **more: Any) -> str:
    """What the command printed as a tool call of a new session."""
    session = holdfast.create(project_id)
    call = {"call": "shell", "arguments": {"command": command, **more}}
    list(holdfast.ask(session["id"], json.dumps({"script": [call, {"say": "done"}]})))
    return texts(holdfast, session["id"], "tool")


def texts(holdfast: Client, session_id: str, role: str) -> str:
    said = holdfast.messages(session_id)
    return "\n".join(one["content"] for one in said if one["role"] == role)


@pytest.fixture
def elsewhere(tmp_path: Path, product: Product) -> Path:
    """Notes of others: in a neighbouring folder, and in a chat's folder of the home."""
    for folder in (tmp_path / "elsewhere", product.home / "chats" / "other"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "note").write_text("hush-note")
    return tmp_path


def test_a_shell_in_a_new_folder_reaches_nothing_of_the_product(
    product: Product, holdfast: Client, elsewhere: Path
) -> None:
    folder = elsewhere / "new"
    folder.mkdir()
    project = holdfast.load_project(str(folder))
    assert project["trust"]["state"] == "trusted"
    said = run_shell(holdfast, project["id"], attack(product, folder))
    assert "exit_code" in said
    assert "got" not in said
    assert "hush" not in said
    assert (product.home / "token").read_text().strip() not in said


def test_the_same_attack_succeeds_where_the_operator_took_the_cage_away(
    product: Product, holdfast: Client, elsewhere: Path
) -> None:
    """What shows that the attack would be seen."""
    folder = elsewhere / "free"
    (folder / ".holdfast").mkdir(parents=True)
    text = "version: 1\nproject: free\nprimary: {cage: disabled}\n"
    (folder / ".holdfast" / "project.yaml").write_text(text)
    project = holdfast.load_project(str(folder), trust=True)
    said = run_shell(holdfast, project["id"], attack(product, folder))
    for hit in ("got token", "got chats/other/note", "got port", "hush-note", "hush-talk"):
        assert hit in said


def test_a_session_around_the_home_does_not_see_into_it(
    product: Product, holdfast: Client, elsewhere: Path
) -> None:
    project = holdfast.load_project(str(product.home.parent))
    said = run_shell(holdfast, project["id"], attack(product, elsewhere / "new"))
    assert "exit_code" in said
    assert "got token" not in said
    assert "hush" not in said
    for inside in (product.home.name, f"{product.home.name}/blobs"):
        said = run_shell(holdfast, project["id"], "ls", working_directory=inside)
        assert f"a cage cannot work in {product.home.parent / inside}" in said
        assert "exit_code" not in said


def test_a_cage_is_given_nothing_of_the_home(product: Product, holdfast: Client) -> None:
    folder = product.home.parent
    (folder / ".holdfast").mkdir(exist_ok=True)
    text = "version: 1\nproject: around\nprimary: {cage: {fs: {read_only: [h]}}}\n"
    file = folder / ".holdfast" / "project.yaml"
    file.write_text(text)
    try:
        project = holdfast.load_project(str(folder), trust=True)
        said = run_shell(holdfast, project["id"], "cat h/token")
        assert "it holds secrets" in said
        assert (product.home / "token").read_text().strip() not in said
    finally:
        file.unlink()


@pytest.mark.parametrize("inside", ["", "blobs", "chats/other"])
def test_no_folder_of_the_home_becomes_a_project_or_a_working_directory(
    product: Product, holdfast: Client, elsewhere: Path, inside: str
) -> None:
    path = str(product.home / inside)
    with pytest.raises(Refused, match="Holdfast's own folders"):
        holdfast.load_project(path)
    project = holdfast.load_project(str(elsewhere))
    with pytest.raises(Refused, match="Holdfast's own folders"):
        holdfast.create(project["id"], working_directory=path)


def test_a_chat_works_in_a_folder_of_its_own_and_sees_no_other(
    product: Product, holdfast: Client, elsewhere: Path
) -> None:
    command = f"pwd; echo mine > mine; cat mine; cat {product.home}/chats/other/note; ls .."
    call = {"call": "shell", "arguments": {"command": command}}
    script = json.dumps({"script": [call, {"say": "done"}]})
    answer = holdfast.post("/chats/somebody/one/messages", {"content": script})
    session = answer["session"]["id"]
    wait_for(lambda: "done" in texts(holdfast, session, "primary"), "the chat's answer")
    said = texts(holdfast, session, "tool")
    assert "mine" in said
    assert f"{product.home}/chats/" in said
    assert "hush" not in said
