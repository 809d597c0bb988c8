"""The project file: what it may say, how it merges, and where it is said to be broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.errors import DslInvalid, NotFound, ValidationFailed
from holdfast.storage.projects import project_file

GOOD = """\
version: 1
project: demo-project
primary:
  model: default
  tools:
    shell: {enabled: false}
limits:
  running_sessions: 2
"""


def write(folder: Path, text: str | bytes, name: str = "project.yaml") -> Path:
    (folder / ".holdfast").mkdir(exist_ok=True)
    raw = text.encode() if isinstance(text, str) else text
    (folder / ".holdfast" / name).write_bytes(raw)
    return folder


def refused(folder: Path) -> dict[str, object]:
    with pytest.raises(DslInvalid) as refusal:
        project_file.load(folder)
    assert refusal.value.details is not None
    return refusal.value.details


def test_a_file_is_read_with_its_defaults_and_a_hash(tmp_path: Path) -> None:
    loaded = project_file.load(write(tmp_path, GOOD))
    assert loaded.file.project == "demo-project"
    assert loaded.file.limits.running_sessions == 2
    assert loaded.file.on_crash == "resume"
    assert loaded.models == ((("primary", "model"), "default"),)
    assert len(loaded.hash) == 64


@pytest.mark.req("K-127")
def test_the_hash_changes_with_every_byte_of_the_file(tmp_path: Path) -> None:
    first = project_file.load(write(tmp_path, GOOD)).hash
    assert project_file.load(write(tmp_path, GOOD)).hash == first
    for other in ("# a remark\n" + GOOD, GOOD + "\n", GOOD.replace(": ", ":  ", 1)):
        assert project_file.load(write(tmp_path, other)).hash != first
    assert project_file.load(write(tmp_path, GOOD.replace("2", "3"))).hash != first


@pytest.mark.parametrize(
    ("folder", "name"),
    [("My Work!", "my-work"), ("x", "project-x"), ("日本", "project"), ("a" * 80, "a" * 63)],
)
def test_a_folder_without_a_file_is_named_after_itself(
    tmp_path: Path, folder: str, name: str
) -> None:
    (tmp_path / folder).mkdir()
    assert project_file.load(tmp_path / folder).file.project == name


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("version: 1\nproject: ab\nprimry: {}\n", 3, "unknown key 'primry'"),
        ("version: 1\nproject: ab\nprimary:\n  tols: {}\n", 4, "unknown key 'tols'"),
        ("version: 1\nproject: ab\nproject: cd\n", 3, "duplicate key 'project'"),
        ("version: 2\nproject: ab\n", 1, "Input should be 1"),
        ("project: ab\nprimary: [1\n", 3, "expected"),
        ("project: ab\nprimary:\n\tmodel: x\n", 3, "cannot start any token"),
        ("project: ab\nlimits: {max_cost_usd: .inf}\n", 2, "finite"),
        ("project: ab\n---\nproject: cd\n", 2, "more than one document"),
        ("project: &a ab\ndescription: *a\n", 1, "anchors"),
        ("project: !!python/object:os.system ab\n", 1, "not supported"),
        ('project: ab\ndescription: "\\ud800"\n', 2, "Unicode"),
        ("- a\n- b\n", 1, "mapping"),
        ("1: a\n", 1, "plain text"),
        ("", 1, "Field required"),
        ("project: ab\nx: " + "[" * 5000, 2, "nested deeper"),
        ("project: ab\nlimits: {running_sessions: " + "9" * 5000 + "}\n", 2, ""),
    ],
)
def test_a_broken_file_says_where_and_why(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    details = refused(write(tmp_path, text))
    assert details["line"] == line
    assert reason in str(details["reason"])
    assert isinstance(details["column"], int)


def test_bytes_that_are_no_text_are_placed_too(tmp_path: Path) -> None:
    details = refused(write(tmp_path, b"project: ab\ndescription: \xff\n"))
    assert (details["line"], details["column"]) == (2, 14)
    assert refused(write(tmp_path, b"\xef\xbb\xbfproject: ab\n"))["reason"]
    assert "256 KiB" in str(refused(write(tmp_path, b"#" * 300_000))["reason"])


def test_the_local_file_merges_over_the_shared_one(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    local = "primary: {model: 'scripted:demo', tools: {grep: {enabled: false}}}\nlimits: null\n"
    loaded = project_file.load(write(tmp_path, local, "project.local.yaml")).file
    assert loaded.primary.model == "scripted:demo"
    assert set(loaded.primary.tools) == {"shell", "grep"}
    assert loaded.limits.running_sessions == 4


def test_the_local_file_cannot_change_what_is_locked(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    details = refused(write(tmp_path, "\nproject: other\n", "project.local.yaml"))
    assert details["file"] == "project.local.yaml"
    assert details["line"] == 2


def test_only_an_existing_folder_is_a_project(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFound):
        project_file.folder_of(str(tmp_path / "missing"))
    for path in ("", "relative", "/a\0b", str(tmp_path / "file"), "/\ud800"):
        with pytest.raises(ValidationFailed):
            project_file.folder_of(path)
    assert project_file.folder_of(str(tmp_path)) == tmp_path.resolve()


def test_the_schema_knows_every_key(tmp_path: Path) -> None:
    schema = project_file.json_schema()
    assert set(schema["properties"]) >= {"version", "project", "primary", "limits", "on_crash"}
    assert schema["additionalProperties"] is False
