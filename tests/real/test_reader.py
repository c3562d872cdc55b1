"""The reader on real files: fast, and right about what it must know."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lucebox.gguf import read
from lucebox.gguf.describe import describe
from lucebox.hub import CATALOGUE

ModelPath = Callable[[str], Path]


def test_the_largest_opens_in_less_than_300_ms_with_its_vocabulary(model_path: ModelPath) -> None:
    path = model_path("qwen2.5-coder-1.5b")
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        with read(path) as file:
            tokens = file.strings("tokenizer.ggml.tokens", length=151_936)
            merges = file.strings("tokenizer.ggml.merges", length=151_387)
        seconds.append(time.perf_counter() - begin)
        assert (tokens[151_645], merges[0]) == ("<|im_end|>", "Ġ Ġ")
    print(f"opened in {[f'{s * 1000:.0f} ms' for s in seconds]}")
    assert min(seconds) < 0.3


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue_models_are_what_they_say(model_path: ModelPath, name: str) -> None:
    with read(model_path(name)) as file:
        found = describe(file)
    assert found.n_bytes == CATALOGUE[name].n_bytes
    assert (found.architecture, found.n_vocab, found.n_layer) == {
        "smollm2-135m": ("llama", 49_152, 30),
        "qwen2.5-coder-0.5b": ("qwen2", 151_936, 24),
        "qwen2.5-coder-1.5b": ("qwen2", 151_936, 28),
    }[name]
    assert found.has_chat_template
