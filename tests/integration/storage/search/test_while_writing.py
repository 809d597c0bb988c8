"""Several processes append while another searches: nothing lost, nothing refused, all found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.storage.database.opening import OpenStore
from tests.support.sample_library import SampleLibrary

ROOT = Path(__file__).resolve().parents[4]


def append_and_search(store: OpenStore, *, processes: int, count: int) -> None:
    """Start the appenders, look each acknowledged message up at once, then count them all."""
    library = SampleLibrary(store)
    session = library.session()
    running = [
        subprocess.Popen(
            (
                *(sys.executable, "-m", "tests.support.appender"),
                *(str(store.home), session, f"p{number}", str(count)),
            ),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    acknowledged: set[str] = set()
    for process in running:
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                word, message_id = line.split()
                assert library.found(word) == {message_id}, word
                acknowledged.add(message_id)
    assert [process.returncode for process in running] == [0] * processes
    assert len(acknowledged) == processes * count
    found: set[str] = set()
    for offset in range(0, processes * count, 500):
        page = library.search("common", limit=500, offset=offset, sort="recency")
        found |= {item["id"] for item in page.items}
    assert found == acknowledged


@pytest.mark.req("H-001", "H-020", "H-022")
def test_two_processes_append_while_a_third_searches(sqlite_store: OpenStore) -> None:
    append_and_search(sqlite_store, processes=2, count=6)


@pytest.mark.slow
@pytest.mark.timeout(900)  # 2,000 appends, each searched for at once, on a busy machine
@pytest.mark.req("H-001", "H-020", "H-022")
def test_four_processes_append_while_a_fifth_searches(sqlite_store: OpenStore) -> None:
    append_and_search(sqlite_store, processes=4, count=500)
