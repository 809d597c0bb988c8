"""Whatever is done to a session, and whatever dies: an acknowledged message is there once.

It is in the conversation exactly once, or it waits; a refused or withdrawn one is in neither.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from holdfast.domain.errors import Conflict, NotFound, Refusal
from holdfast.storage.database.engine import Db
from holdfast.storage.sessions import messages, waiting
from tests.support.local_worker import LocalWorker, script, until
from worker.recovery import restart_lost

STEPS = 14
SLOW = script({"deltas": 25, "every_ms": 10})
TOOLS = script({"call": "list_files"}, {"deltas": 10, "every_ms": 10})
QUICK_SEEDS = range(3)
SEEDS = range(3, 40)


class Interleaving:
    """One session, what was acknowledged to its operator, and what happens to it."""

    def __init__(self, worker: LocalWorker, seed: int) -> None:
        self.worker = worker
        self.random = Random(seed)
        self.session = worker.session()
        self.live: dict[str, str] = {}  # word by message id, of what must be there once
        self.gone: list[str] = []
        self.queued: list[str] = []
        self.done: list[str] = []
        self.words = 0

    async def play(self) -> None:
        """One random step; a refusal is an answer like another."""
        acts = [self.send] * 6 + [self.pause, self.go_on, self.go_on, self.cancel, self.withdraw]
        acts += [self.edit, self.lose_workflow, self.restart_worker]
        act = self.random.choice(acts)
        self.done.append(act.__name__)
        try:
            await act()
        except (Conflict, NotFound) as refusal:
            self.done[-1] += f": {refusal.message}"
        self.check()

    async def send(self) -> None:
        kind = self.random.choice(("reject", "queue", "queue", "steer", "steer", "interrupt"))
        word = self.word()
        self.done[-1] += f" {kind} {word}"
        content = f"{word}\n```script\n{self.random.choice((SLOW, TOOLS))}\n```"
        try:
            answer = await self.worker.send(self.session, content, when_busy=kind)
        except Refusal:
            self.gone.append(word)
            raise
        assert answer.message_id is not None
        self.live[answer.message_id] = word
        if kind == "queue":
            self.queued.append(word)

    async def pause(self) -> None:
        await self.worker.pause(self.session)

    async def go_on(self) -> None:
        row = self.worker.row(self.session)
        if row.state != "paused":
            return
        word = self.word() if self.random.random() < 0.5 else None
        await self.worker.resume(self.session, row.current_checkpoint, words=word)
        if word is not None:
            self.live[f"words {word}"] = word

    async def cancel(self) -> None:
        await self.worker.cancel(self.session)

    async def withdraw(self) -> None:
        kept = self.worker.store.read(lambda db: waiting.of_session(db, self.session))
        if kept:
            one = self.random.choice(kept)
            self.worker.store.write(lambda db: waiting.withdraw(db, self.session, one.id))
            word = one.content.split("\n")[0]
            self.live = {key: known for key, known in self.live.items() if known != word}
            self.gone.append(word)

    async def edit(self) -> None:
        kept = self.worker.store.read(lambda db: waiting.of_session(db, self.session))
        if kept:
            one, word = self.random.choice(kept), self.word()
            before = one.content.split("\n")[0]
            self.worker.store.write(lambda db: waiting.edit(db, self.session, one.id, word))
            key = next(key for key, known in self.live.items() if known == before)
            self.live[key] = word
            self.queued = [word if known == before else known for known in self.queued]
            self.gone.append(before)

    async def lose_workflow(self) -> None:
        if "session.state" in self.worker.kinds(self.session):
            await self.worker.handle(self.session).terminate("lost")
            await restart_lost(self.worker.sessions, self.worker.store)

    async def restart_worker(self) -> None:
        await self.worker.stop_worker()
        await self.worker.start_worker()

    async def come_to_rest(self) -> None:
        """Let everything go on until nothing waits."""

        def at_rest() -> bool:
            row = self.worker.row(self.session)
            assert row.state in ("idle", "running", "paused"), row.state
            return row.state == "paused" or (row.state == "idle" and row.waiting == 0)

        await until(at_rest, "the session to come to rest")
        row = self.worker.row(self.session)
        if row.state == "paused":
            await self.worker.resume(self.session, row.current_checkpoint)
            await self.come_to_rest()

    def check(self) -> None:
        """The promise, at this moment."""

        def look(db: Db) -> Counter[str]:
            said = messages.page(db, self.session, limit=1000)
            contents = [one.content for one, _ in said if one.role == "operator"]
            contents += [one.content for one in waiting.of_session(db, self.session)]
            return Counter(content.split("\n")[0] for content in contents)

        found = self.worker.store.read(look)
        assert found == Counter(self.live.values()), self.done
        assert not found.keys() & set(self.gone), self.done

    def word(self) -> str:
        self.words += 1
        return f"word-{self.words}"


@pytest.mark.parametrize(
    "seed", [*QUICK_SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS)]
)
async def test_each_acknowledged_message_is_seen_once_or_still_waits(
    worker: LocalWorker, seed: int
) -> None:
    story = Interleaving(worker, seed)
    for _ in range(STEPS):
        await story.play()
    await story.come_to_rest()
    await worker.run(story.session, "the end")
    story.live["the end"] = "the end"
    story.check()
    asked = [one.content.split("\n")[0] for one in worker.messages(story.session)]
    queued = [word for word in asked if word in story.queued]
    still = [word for word in story.queued if word in story.live.values()]
    assert queued == still, story.done
    assert worker.row(story.session).waiting == 0
