"""The local model: its words as numbers, meanings that are near, and a file that is checked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.embedders import local
from holdfast.memory.embedders.embedding import EmbeddingFailed
from holdfast.memory.embedders.local import LocalEmbedder, available
from holdfast.memory.embedders.wordpiece import encode, vocabulary

needs_model = pytest.mark.skipif(not available(), reason="the extra `embeddings` is not installed")


def pieces(text: str) -> list[str]:
    names = {number: piece for piece, number in vocabulary().items()}
    [window] = encode(text, length_max=64, windows_max=1)
    return [names[number] for number in window]


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
        ("a\ufffdb", ["ab"]),
        ("\ua000\ua001", ["[UNK]"]),  # letters that stand for syllables, but not Chinese ones
        ("one“two”", ["one", "“", "two", "”"]),
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


@given(text=st.text(max_size=200), length_max=st.integers(3, 40), windows_max=st.integers(1, 4))
def test_any_text_has_windows_and_never_too_many(
    text: str, length_max: int, windows_max: int
) -> None:
    windows = encode(text, length_max=length_max, windows_max=windows_max)
    assert 1 <= len(windows) <= windows_max
    assert all((window[0], window[-1]) == (101, 102) for window in windows)
    assert all(len(window) == length_max for window in windows[:-1])
    [whole] = encode(text, length_max=10_000, windows_max=1)
    read = [number for window in windows for number in window[1:-1]]
    assert read == whole[1:-1][: (length_max - 2) * windows_max]


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


@needs_model
def test_the_end_of_a_long_text_counts_too() -> None:
    filler = "The meeting was moved to another room again and nobody knew why. " * 20
    embedder = LocalEmbedder()
    [plain, with_end, question] = embedder.embed(
        [filler * 2, filler + "Volcanoes erupt molten lava. " * 40, "volcano lava"]
    )

    def nearness(vector: list[float]) -> float:
        return sum(first * second for first, second in zip(vector, question, strict=True))

    assert nearness(with_end) > nearness(plain) + 0.1


def test_what_the_model_says_is_averaged_over_the_tokens_and_of_length_one() -> None:
    numpy = pytest.importorskip("numpy")

    class Session:
        """Says the same small numbers of every token, and large ones of what only fills up."""

        def get_inputs(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name="input_ids"), SimpleNamespace(name="attention_mask")]

        def run(self, _: None, given: dict[str, Any]) -> list[Any]:
            assert sorted(given) == ["attention_mask", "input_ids"]
            return [numpy.where(given["attention_mask"][:, :, None] == 1, [0.003, 0.004], 9.0)]

    rows = local._run(Session(), [[5, 6, 7], [8]])
    assert rows.tolist() == [pytest.approx([0.6, 0.8]), pytest.approx([0.6, 0.8])]
