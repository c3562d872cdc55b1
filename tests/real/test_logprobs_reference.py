"""Log-probabilities of greedy continuations against llama.cpp's, recorded in reference/*.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox.bench.dequantised import f16_copy
from lucebox.gguf.reader import read
from lucebox.runtime.rows import Rows, Want
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
# Of |Δ|: ggml's kernels are llama.cpp's; our attention rounds in another place, no worse (see below).
MEDIAN_LIMIT = 0.005
OTHER_MEDIAN_LIMIT = 0.03
CASES = [
    ("smollm2-135m", "ggml", MEDIAN_LIMIT),
    ("smollm2-135m", "auto", OTHER_MEDIAN_LIMIT),
    ("qwen2.5-coder-0.5b", "auto", MEDIAN_LIMIT),
    ("qwen2.5-coder-1.5b", "auto", MEDIAN_LIMIT),
]
CLEAR_GAP = 0.3  # between the two likeliest tokens: equally right kernels differ by less


@pytest.mark.parametrize(("name", "kernels", "median_limit"), CASES)
def test_greedy_log_probabilities(
    name: str, kernels: str, median_limit: float, model_path: Callable[[str], Path]
) -> None:
    """The prompt in one forward, then one row per token, as the reference was made."""
    file_name, percentile_limit = MODELS[name]
    texts = json.loads((REFERENCE / file_name).read_text())["greedy"]
    differences: list[float] = []
    with (
        read(model_path(name)) as file,
        Runtime.load(file, device="CPU", n_threads=2, n_ctx=512, cpu_kernels=kernels) as runtime,
    ):
        tokenizer = Tokenizer.from_metadata(file.metadata, file.path)
        for text in texts:
            prompt = tokenizer.encode(text["prompt"], parse_special=True)
            rows = _teacher_forced(runtime, prompt, [step["token"] for step in text["steps"]])
            for step, row in zip(text["steps"], rows, strict=True):
                differences.append(_compare(step, row))
    assert len(differences) >= 100
    median, percentile = np.median(differences), np.percentile(differences, 95)
    print(
        f"{name}, {kernels} kernels: {len(differences)} tokens, |Δ| median {median:.5f}, p95 {percentile:.5f}"
    )
    assert median <= median_limit
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


def test_our_kernels_are_as_near_to_the_unrounded_model_as_ggml_s(model_path: Callable[[str], Path]) -> None:
    """By the mean divergence from the float16 copy of the model, whose activations nobody rounds."""
    path = model_path("smollm2-135m")
    steps = json.loads((REFERENCE / MODELS["smollm2-135m"][0]).read_text())["greedy"][0]["steps"]
    tokens = [step["token"] for step in steps]
    exact = _log_laws(f16_copy(path), tokens, "ggml", "f32")
    found = {}
    for kernels in ("auto", "ggml"):
        ours = _log_laws(path, tokens, kernels, "f16")
        found[kernels] = float((np.exp(exact) * (exact - ours)).sum(axis=1).mean())
    print(f"divergence {found}")
    assert found["auto"] <= 1.25 * found["ggml"] < 0.02


def _log_laws(path: Path, tokens: list[int], kernels: str, kv_type: str) -> NDArray[np.float64]:
    """Log-probabilities behind each token."""
    with Runtime.load(
        path, device="CPU", n_threads=2, n_ctx=512, kv_type=kv_type, cpu_kernels=kernels
    ) as runtime:
        logits = runtime.forward(Rows.chain(0, tokens, 0, want_all=Want.LOGITS)).logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))  # type: ignore[no-any-return]
