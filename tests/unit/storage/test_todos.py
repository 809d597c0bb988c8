"""Todos: ordered operations by text, one in progress, and Markdown there and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.errors import ValidationFailed
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.database.tables_library import Todo
from holdfast.storage.issues import todos
from holdfast.storage.issues.todo_markdown import BOXES, Task, parse, render

ISSUE = "issue"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> OpenStore:
    return open_store(None, tmp_path_factory.mktemp("todos") / "home", synchronous="OFF")


@pytest.fixture(autouse=True)
def _empty(store: OpenStore) -> None:
    store.write(lambda db: todos.replace(db, ISSUE, []))


def apply(store: OpenStore, *ops: dict[str, Any]) -> str:
    return shown(store.write(lambda db: todos.apply(db, ISSUE, list(ops))))


def shown(listed: list[Todo]) -> str:
    return render(Task(one.text, one.status, one.notes.splitlines()) for one in listed)


def op(name: str, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"op": name, **({"text": text} if text else {}), **fields}


def test_operations_are_carried_out_in_order_and_the_first_pending_is_promoted(
    store: OpenStore,
) -> None:
    assert apply(store, op("init", items=["a", "b", "c"])) == "- [/] a\n- [ ] b\n- [ ] c\n"
    assert apply(store, op("done", "a")) == "- [x] a\n- [/] b\n- [ ] c\n"
    assert apply(store, op("start", "c")) == "- [x] a\n- [ ] b\n- [/] c\n"
    assert apply(store, op("drop", "c"), op("append", "d")) == (
        "- [x] a\n- [/] b\n- [-] c\n- [ ] d\n"
    )
    assert apply(store, op("rm", "a"), op("note", "b", note="half  way\nthere")) == (
        "- [/] b\n  - half way there\n- [-] c\n- [ ] d\n"
    )
    assert apply(store, op("append", "c")) == ("- [/] b\n  - half way there\n- [ ] c\n- [ ] d\n")


def test_tasks_are_addressed_by_text_whatever_its_spaces(store: OpenStore) -> None:
    apply(store, op("init", items=["fix  the\nbug"]))
    assert apply(store, op("done", " fix the bug ")) == "- [x] fix the bug\n"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (op("done", "fix the bag"), "did you mean 'fix the bug'"),
        (op("done"), "text is missing"),
        (op("fly", "a"), "op must be one of"),
        (op("init"), "items must be a list"),
        (op("append", "x" * 501), "longer than 500"),
        (op("note", "fix the bug"), "note is missing"),
    ],
)
def test_a_batch_with_a_wrong_operation_changes_nothing(
    store: OpenStore, wrong: dict[str, Any], words: str
) -> None:
    before = apply(store, op("init", items=["fix the bug"]))
    with pytest.raises(ValidationFailed, match=words):
        apply(store, op("append", "another"), wrong)
    assert shown(store.read(lambda db: todos.of_issue(db, ISSUE))) == before


def test_a_list_has_a_limit(store: OpenStore) -> None:
    with pytest.raises(ValidationFailed, match="at most 200"):
        apply(store, op("init", items=[f"task {number}" for number in range(201)]))


def test_only_open_todos_are_reminded_of(store: OpenStore) -> None:
    apply(store, op("init", items=["a", "b", "c"]), op("done", "a"), op("drop", "b"))
    assert [one.text for one in store.read(lambda db: todos.open_todos(db, ISSUE))] == ["c"]


LINES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1
).map(lambda text: " ".join(text.split()))
TASKS = st.lists(
    st.builds(
        Task,
        text=LINES.filter(bool),
        status=st.sampled_from(["pending", "done", "abandoned"]),
        notes=st.lists(LINES.filter(lambda line: bool(line) and line[0].isalnum()), max_size=2),
    ),
    max_size=6,
    unique_by=lambda task: task.text,
)


@settings(deadline=None, max_examples=50)
@given(TASKS)
def test_markdown_there_and_back_is_the_same(tasks: list[Task]) -> None:
    assert parse(render(tasks)) == tasks


STEPS = st.tuples(
    st.sampled_from(["append", "start", "done", "drop", "rm"]), st.sampled_from("abcd")
)


@settings(deadline=None, max_examples=15)
@given(ops=st.lists(STEPS, min_size=1, max_size=12))
def test_at_most_one_is_in_progress_whatever_happens(
    store: OpenStore, ops: list[tuple[str, str]]
) -> None:
    for name, text in ops:
        try:
            listed = _apply_one(store, op(name, text))
        except ValidationFailed:
            continue
        states = [todo.status for todo in listed]
        assert states.count("in_progress") == ("pending" in states or "in_progress" in states)


def _apply_one(store: OpenStore, one: dict[str, Any]) -> list[Todo]:
    return store.write(lambda db: todos.apply(db, ISSUE, [one]))


def test_a_list_as_markdown_replaces_the_old_one_and_keeps_what_stays(store: OpenStore) -> None:
    apply(store, op("init", items=["a", "b"]))
    ids = {one.text: one.id for one in store.read(lambda db: todos.of_issue(db, ISSUE))}
    tasks = parse("# Todos\n\n- [x] b\n  - with a note\n* [ ] new\n")
    listed = store.write(lambda db: todos.replace(db, ISSUE, tasks))
    assert shown(listed) == "- [x] b\n  - with a note\n- [/] new\n"
    assert listed[0].id == ids["b"]
    with pytest.raises(ValidationFailed, match="at most one"):
        store.write(lambda db: todos.replace(db, ISSUE, parse("- [/] x\n- [/] y")))


@pytest.mark.parametrize("line", ["words", "- no box", "- [?] odd", "  - a note of nothing"])
def test_a_line_that_is_no_task_is_named(line: str) -> None:
    with pytest.raises(ValidationFailed, match="line 1"):
        parse(line)


def test_every_status_has_its_box() -> None:
    assert set(BOXES) == {"pending", "in_progress", "done", "abandoned"}
