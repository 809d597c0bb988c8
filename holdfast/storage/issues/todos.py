"""Todos of an issue: changed by ordered batches of operations, each task addressed by its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from sqlmodel import col, select

from holdfast.domain.clock import now_ms
from holdfast.domain.errors import ValidationFailed
from holdfast.domain.ids import new_id
from holdfast.storage.database.engine import Db
from holdfast.storage.database.tables_library import Todo
from holdfast.storage.issues.todo_markdown import Task

TODOS_MAX = 200
OPS_MAX = 100
TEXT_CHARS_MAX = 500
NOTE_CHARS_MAX = 2000
NOTES_CHARS_MAX = 16_384
OPEN = ("pending", "in_progress")


def of_issue(db: Db, issue_id: str) -> list[Todo]:
    """All todos of the issue, in their order."""
    rows = select(Todo).where(Todo.issue_id == issue_id).order_by(col(Todo.position))
    return list(db.exec(rows.limit(TODOS_MAX)))


def open_todos(db: Db, issue_id: str) -> list[Todo]:
    """Those that are still to be done, in their order."""
    return [todo for todo in of_issue(db, issue_id) if todo.status in OPEN]


def apply(db: Db, issue_id: str, ops: Sequence[dict[str, Any]]) -> list[Todo]:
    """Carry out the operations in order, all or none; the list as it is then."""
    if not 0 < len(ops) <= OPS_MAX:
        raise ValidationFailed(f"ops: give 1 to {OPS_MAX} operations")
    todos = _Todos(db, issue_id)
    for number, op in enumerate(ops):
        name = op.get("op")
        act = _OPS.get(name) if isinstance(name, str) else None
        if act is None:
            raise ValidationFailed(f"ops[{number}]: op must be one of {', '.join(_OPS)}")
        try:
            act(todos, op)
        except ValidationFailed as problem:
            raise ValidationFailed(f"ops[{number}] ({name}): {problem.message}") from None
    return todos.keep()


def replace(db: Db, issue_id: str, tasks: Sequence[Task]) -> list[Todo]:
    """Make the list be these tasks; one that was there before keeps its id."""
    todos = _Todos(db, issue_id)
    todos.set_all(tasks)
    return todos.keep()


def view(todo: Todo) -> dict[str, Any]:
    """A todo as it is sent."""
    return {
        "id": todo.id,
        "text": todo.text,
        "status": todo.status,
        "notes": todo.notes.splitlines(),
        "position": todo.position,
        "created_at": todo.created_at,
        "updated_at": todo.updated_at,
    }


class _Todos:
    """The list while a batch changes it; nothing is written before `keep`."""

    def __init__(self, db: Db, issue_id: str) -> None:
        self._db = db
        self._issue_id = issue_id
        self._stored = {todo.id: todo for todo in of_issue(db, issue_id)}
        self._list = list(self._stored.values())

    def keep(self) -> list[Todo]:
        """Promote a task if none is in progress, and store what changed."""
        if not any(todo.status == "in_progress" for todo in self._list):
            pending = (todo for todo in self._list if todo.status == "pending")
            self._set(next(pending, None), "in_progress")
        kept = {todo.id for todo in self._list}
        for todo in self._stored.values():
            if todo.id not in kept:
                self._db.delete(todo)
        self._db.flush()  # a text may be free again only after its old row is gone
        for position, todo in enumerate(self._list):
            todo.position = position
            self._db.add(todo)
        self._db.flush()
        return self._list

    def init(self, op: dict[str, Any]) -> None:
        """Begin anew with these items."""
        self._list = []
        for item in _items(op):
            self._add(item)

    def append(self, op: dict[str, Any]) -> None:
        """Add items at the end; one that was finished is opened again."""
        for item in [op["text"]] if "items" not in op and "text" in op else _items(op):
            self._add(item)

    def start(self, op: dict[str, Any]) -> None:
        """Work on this one now; the one before waits again."""
        chosen = self._named(op)
        for todo in self._list:
            if todo.status == "in_progress":
                self._set(todo, "pending")
        self._set(chosen, "in_progress")

    def done(self, op: dict[str, Any]) -> None:
        """This one is finished."""
        self._set(self._named(op), "done")

    def drop(self, op: dict[str, Any]) -> None:
        """This one is abandoned, and stays to be seen."""
        self._set(self._named(op), "abandoned")

    def rm(self, op: dict[str, Any]) -> None:
        """This one was a mistake."""
        self._list.remove(self._named(op))

    def note(self, op: dict[str, Any]) -> None:
        """Add a note, and never change one."""
        todo = self._named(op)
        note = _line(op.get("note"), "note", NOTE_CHARS_MAX)
        notes = f"{todo.notes}\n{note}".strip()
        if len(notes) > NOTES_CHARS_MAX:
            raise ValidationFailed(f"the notes of one task have at most {NOTES_CHARS_MAX} letters")
        todo.notes = notes
        todo.updated_at = now_ms()

    def set_all(self, tasks: Sequence[Task]) -> None:
        """Take over a whole list, the order included."""
        before = {todo.text: todo for todo in self._list}
        self._list = []
        for task in tasks:
            text = _line(task.text, "text", TEXT_CHARS_MAX)
            if any(todo.text == text for todo in self._list):
                raise ValidationFailed(f"the task {text[:80]!r} is there twice")
            todo = before.get(text) or self._fresh(text)
            todo.notes = "\n".join(_line(note, "note", NOTE_CHARS_MAX) for note in task.notes)
            self._insert(todo)
            self._set(todo, task.status)
        if sum(todo.status == "in_progress" for todo in self._list) > 1:
            raise ValidationFailed("at most one task is in progress ([/])")

    def _add(self, item: Any) -> None:
        text = _line(item, "text", TEXT_CHARS_MAX)
        known = next((todo for todo in self._list if todo.text == text), None)
        if known is not None:
            self._set(known, known.status if known.status in OPEN else "pending")
            return
        stored = next((todo for todo in self._stored.values() if todo.text == text), None)
        if stored is not None:
            stored.status, stored.notes = "pending", ""
        self._insert(stored or self._fresh(text))

    def _fresh(self, text: str) -> Todo:
        now = now_ms()
        return Todo(
            id=new_id(),
            issue_id=self._issue_id,
            position=0,
            text=text,
            created_at=now,
            updated_at=now,
        )

    def _insert(self, todo: Todo) -> None:
        if len(self._list) >= TODOS_MAX:
            raise ValidationFailed(f"an issue has at most {TODOS_MAX} todos")
        self._list.append(todo)

    def _named(self, op: dict[str, Any]) -> Todo:
        text = _line(op.get("text"), "text", TEXT_CHARS_MAX)
        for todo in self._list:
            if todo.text == text:
                return todo
        near = get_close_matches(text, [todo.text for todo in self._list], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValidationFailed(f"there is no task {text[:80]!r}{hint}")

    @staticmethod
    def _set(todo: Todo | None, status: str) -> None:
        if todo is not None and todo.status != status:
            todo.status = status
            todo.updated_at = now_ms()


_OPS: dict[str, Callable[[_Todos, dict[str, Any]], None]] = {
    "init": _Todos.init,
    "start": _Todos.start,
    "done": _Todos.done,
    "rm": _Todos.rm,
    "drop": _Todos.drop,
    "append": _Todos.append,
    "note": _Todos.note,
}


def _items(op: dict[str, Any]) -> list[Any]:
    items = op.get("items")
    if not isinstance(items, list):
        raise ValidationFailed("items must be a list of texts")
    return items


def _line(value: Any, name: str, chars_max: int) -> str:
    """One line of text: tasks are addressed by it, so spaces do not count."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if not text:
        raise ValidationFailed(f"{name} is missing")
    if len(text) > chars_max:
        raise ValidationFailed(f"{name} is longer than {chars_max} characters")
    return text
