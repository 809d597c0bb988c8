"""The local model: its words as numbers, meanings that are near, and a file that is checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.embedding import EmbeddingFailed
from memory.local_embedder import LocalEmbedder, available
from memory.wordpiece import encode, vocabulary

needs_model = pytest.mark.skipif(not available(), reason="the extra `embeddings` is not installed")


def pieces(text: str) -> list[str]:
    names = {number: piece for piece, number in vocabulary().items()}
    return [names[number] for number in encode(text, 64)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Hello, World!", ["hello", ",", "world", "!"]),
        ("embeddings", ["em", "##bed", "##ding", "##s"]),
        ("café NAÏVE", ["cafe", "naive"]),
        ("東京 tower", ["東", "京", "tower"]),
        ("a\u200bb\tc\x00d", ["ab", "cd"]),
        ("snake_case", ["snake", "_", "case"]),
        ("x" * 101, ["[UNK]"]),
        ("\U0001f389", ["[UNK]"]),
    ],
)
def test_words_become_pieces_that_bert_knows(text: str, expected: list[str]) -> None:
    assert pieces(text) == ["[CLS]", *expected, "[SEP]"]


def test_the_vocabulary_is_the_one_of_bert() -> None:
    known = vocabulary()
    assert len(known) == 30_522
    assert [known[one] for one in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")] == [0, 100, 101, 102]


@given(text=st.text(max_size=200), length_max=st.integers(2, 40))
def test_any_text_has_numbers_and_never_too_many(text: str, length_max: int) -> None:
    numbers = encode(text, length_max)
    assert 2 <= len(numbers) <= length_max
    assert (numbers[0], numbers[-1]) == (101, 102)


@needs_model
def test_texts_that_mean_the_same_are_near() -> None:
    texts = ["How do I restart the server?", "rebooting the machine", "A recipe for apple pie"]
    embedder = LocalEmbedder()
    question, near, far = embedder.embed(texts)
    assert len(question) == 384
    assert sum(value * value for value in question) == pytest.approx(1, abs=1e-4)

    def cosine(one: list[float], other: list[float]) -> float:
        return sum(first * second for first, second in zip(one, other, strict=True))

    assert cosine(question, near) > cosine(question, far) + 0.2
    # A text has the same vector whatever it is sent with.
    assert cosine(embedder.embed([texts[0]])[0], question) > 0.99


@needs_model
def test_nothing_is_loaded_before_the_first_text() -> None:
    embedder = LocalEmbedder(Path("/no/such/model"))
    assert (embedder.provider, embedder.model) == ("local", "all-MiniLM-L6-v2-onnx-int8")
    assert embedder.key != LocalEmbedder(sha256="another").key
    with pytest.raises(EmbeddingFailed) as failed:
        embedder.embed(["a"])
    assert not failed.value.passing


@needs_model
def test_a_model_that_is_not_the_one_it_should_be_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"something else")
    with pytest.raises(EmbeddingFailed, match=r"model\.onnx is not the model"):
        LocalEmbedder(model).embed(["a"])
