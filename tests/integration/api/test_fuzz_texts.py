"""Whatever is written into a project file or a search box: a plain answer, never a crash."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.errors import DslInvalid
from holdfast.storage.database.opening import OpenStore, open_store
from holdfast.storage.projects import project_file
from tests.support.sample_library import SampleLibrary

EXAMPLES = int(os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "60"))
KEYS = st.sampled_from(
    [
        *("version", "project", "primary", "limits", "model", "tools", "cage", "subagents"),
        *("compaction", "upper", "on_crash", "running_sessions", "system_prompt", "max_steps"),
        *("memory", "sources", "extra_paths", "sync", "chunks", "query", "enabled"),
        *("memory_mb", "*", "x", "on", "<<", "{}", ""),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["default", "disabled", "project:/../../etc/passwd", "config:/x", "1e400"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
YAML = st.text(alphabet="ab1: -[]{}&*!|>'\"#%@`?,\n\t\\<\u00e9\u2028\0", max_size=120)
SEARCHES = st.text(max_size=60) | st.text(alphabet="ab\"()*^:+-~ANDORTNE{}'\\\0漢字é", max_size=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fuzzed")
    (made / ".holdfast").mkdir()
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenStore]:
    store = open_store(None, tmp_path_factory.mktemp("searched"), synchronous="OFF")
    yield store
    store.close()


@pytest.fixture(scope="module")
def filled(store: OpenStore) -> SampleLibrary:
    library = SampleLibrary(store)
    session_id = library.session()
    for text in ("a AND b", "(redis OR postgres)", "漢字 with words", 'it\'s "quoted" ab*'):
        library.say(session_id, text)
    return library


def loads_or_refuses(folder: Path, text: bytes) -> None:
    (folder / ".holdfast" / "project.yaml").write_bytes(text)
    with contextlib.suppress(DslInvalid):
        project_file.load(folder)


@settings(max_examples=EXAMPLES)
@given(value=st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_structure_in_a_project_file_is_loaded_or_refused(
    folder: Path, value: dict[str, Any]
) -> None:
    loads_or_refuses(folder, json.dumps({"version": 1, "project": "fuzzed", **value}).encode())


@settings(max_examples=EXAMPLES)
@given(text=YAML)
def test_any_text_in_a_project_file_is_loaded_or_refused(folder: Path, text: str) -> None:
    loads_or_refuses(folder, f"version: 1\nproject: fuzzed\n{text}".encode())


@settings(max_examples=EXAMPLES)
@given(raw=st.binary(max_size=80))
def test_any_bytes_in_a_project_file_are_loaded_or_refused(folder: Path, raw: bytes) -> None:
    loads_or_refuses(folder, raw)


@settings(max_examples=EXAMPLES)
@given(query=SEARCHES, sort=st.sampled_from(["relevance", "recency"]))
def test_any_text_can_be_searched_for(filled: SampleLibrary, query: str, sort: str) -> None:
    answer = filled.search(query, sort=sort)
    assert all(item["session_id"] for item in answer.items)
