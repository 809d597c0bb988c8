"""JSON of strangers: refused by its counts, in words, in little memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.domain.errors import BadRequest, PayloadTooLarge
from holdfast.storage.transfer.importers import bounded_json
from holdfast.storage.transfer.importers.importer import Source

MIB = 1024**2
IMPORT = """
import resource, sys
from pathlib import Path
from holdfast.domain.errors import Refusal
from holdfast.storage.transfer.importers import holdfast_export
from holdfast.storage.transfer.importers.importer import Source
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    for _ in holdfast_export.read(Source(Path(sys.argv[1]))):
        pass
except Refusal as refusal:
    print(refusal.status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 5000 + b"]" * 5000, "levels"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "levels"),
        (b"[" + b"{}," * 600_000 + b"{}]", "objects and lists"),
        (b"[" + b"1," * 3_100_000 + b"1]", "values"),
    ],
    ids=["lists", "objects", "many objects", "many values"],
)
def test_a_text_that_would_take_too_much_is_refused_in_words(text: bytes, words: str) -> None:
    with pytest.raises((BadRequest, PayloadTooLarge), match=words):
        bounded_json.parse(text)


def test_brackets_and_commas_inside_of_texts_do_not_count() -> None:
    text = "[{,\\" * 1_000_000
    assert (
        bounded_json.parse(b'["' + text.replace("\\", '\\\\\\"').encode() + b'"]')[0][:3] == "[{,"
    )


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * (10 * MIB) + b"{}]",
        b"{}\n" * (10 * MIB),
        b'{"format": "holdfast.session", "version": 1, "archive": ' + b"[" * (30 * MIB),
        b"[" + b'"a",' * (8 * MIB) + b"1]",
        b'["' + ("\U0001f600" * (7 * MIB)).encode() + b'"]',
    ],
    ids=["objects", "lines", "depth", "strings", "wide letters"],
)
def test_thirty_megabytes_of_nothing_take_little_memory(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "body"
    path.write_bytes(body)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, path],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1024 * MIB, 1024 * MIB)),
    )
    status, used_kib = done.stdout.split()
    assert status in ("400", "413")
    assert int(used_kib) < 300 * 1024


def test_a_document_over_many_lines_and_lines_of_documents_are_told_apart() -> None:
    assert list(Source(b"a\nb").lines(bytes_max=9)) == [b"a\n", b"b"]
    with pytest.raises(PayloadTooLarge, match="at most 1 MiB"):
        next(Source(b" " * (MIB + 1)).lines(bytes_max=MIB))
