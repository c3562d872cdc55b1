"""Log-probabilities of greedy continuations against llama.cpp's, recorded in reference/*.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox.gguf.reader import read
from lucebox.runtime.rows import Rows
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.logprobs import logprobs
from lucebox.text.tokenizer import Tokenizer

REFERENCE = Path(__file__).parent / "reference"
# The 95th percentile of |Δ| that other kernels may reach: rounded activations move the 135M most.
MODELS = {
    "smollm2-135m": ("smollm2-135m-instruct-q4_1.json", 0.3),
    "qwen2.5-coder-0.5b": ("qwen2.5-coder-0.5b-instruct-q4_k_m.json", 0.12),
    "qwen2.5-coder-1.5b": ("qwen2.5-coder-1.5b-instruct-q4_k_m.json", 0.12),
}
MEDIAN_LIMIT = 0.005
CLEAR_GAP = 0.3  # between the two likeliest tokens: equally right kernels differ by less


@pytest.mark.parametrize("name", MODELS)
def test_greedy_log_probabilities(name: str, model_path: Callable[[str], Path]) -> None:
    """The prompt in one forward, then one row per token, as the reference was made."""
    file_name, percentile_limit = MODELS[name]
    texts = json.loads((REFERENCE / file_name).read_text())["greedy"]
    differences: list[float] = []
    with (
        read(model_path(name)) as file,
        Runtime.load(file, device="CPU", n_threads=2, n_ctx=512) as runtime,
    ):
        tokenizer = Tokenizer.from_metadata(file.metadata, file.path)
        for text in texts:
            prompt = tokenizer.encode(text["prompt"], parse_special=True)
            rows = _teacher_forced(runtime, prompt, [step["token"] for step in text["steps"]])
            for step, row in zip(text["steps"], rows, strict=True):
                differences.append(_compare(step, row))
    assert len(differences) >= 100
    median, percentile = np.median(differences), np.percentile(differences, 95)
    print(f"{name}: {len(differences)} tokens, |Δ| median {median:.5f}, p95 {percentile:.5f}")
    assert median <= MEDIAN_LIMIT
    assert percentile <= percentile_limit


def _teacher_forced(runtime: Runtime, prompt: list[int], tokens: list[int]) -> list[NDArray[np.float32]]:
    """The row of logits ahead of each token."""
    rows = []
    for chunk in [prompt, *([token] for token in tokens[:-1])]:
        output = runtime.forward(Rows.chain(0, chunk, runtime.cache.length(0)))
        rows.append(output.logits[0].copy())
        runtime.cache.commit(0, range(len(chunk)))
    runtime.cache.release(0)
    return rows


def _compare(step: dict[str, Any], row: NDArray[np.float32]) -> float:
    """|Δ| of the chosen token's log-probability; asserts that it is ours too where the choice was clear."""
    (_, first), (_, second) = step["top"][:2]
    if first - second > CLEAR_GAP:
        assert int(row.argmax()) == step["token"]
    logprob, _ = logprobs(row, step["token"], 0)
    return abs(logprob - step["logprob"])
