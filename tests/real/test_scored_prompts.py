"""Prompts scored and gaps filled with real models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lucebox import Engine, SamplingParams
from lucebox.gguf import read
from lucebox.server.text_model import GgufTextModel
from lucebox.text.infill import InfillTokens
from lucebox.text.tokenizer import Tokenizer

REFERENCE = Path(__file__).parent / "reference" / "qwen2.5-coder-0.5b-instruct-q4_k_m.json"
MODEL = "qwen2.5-coder-0.5b"
# The reference was computed token by token, a scored prompt in chunks: other kernels, other roundings.
MEDIAN_LIMIT, PERCENTILE_LIMIT = 0.01, 0.15


@pytest.fixture(scope="module")
def engine(model_path: Callable[[str], Path]) -> Iterator[Engine]:
    with Engine(str(model_path(MODEL)), target_device="CPU", threads=2, ctx_size=1024) as engine:
        yield engine


def test_a_scored_prompt_is_llama_cpp_s(engine: Engine) -> None:
    """The continuations that llama.cpp recorded, as parts of prompts."""
    differences = []
    for text in json.loads(REFERENCE.read_text())["greedy"]:
        tokens = [step["token"] for step in text["steps"]]
        prompt = engine.tokenizer.encode(text["prompt"], parse_special=True) + tokens
        scored = engine.generate(prompt, SamplingParams(max_tokens=0, prompt_logprobs=1))
        assert scored.text == ""
        assert scored.prompt_logprobs is not None
        assert [entry.token for entry in scored.prompt_logprobs] == prompt[1:]
        for entry, step in zip(scored.prompt_logprobs[-len(tokens) :], text["steps"], strict=True):
            differences.append(abs(entry.logprob - step["logprob"]))
    median, percentile = np.median(differences), np.percentile(differences, 95)
    print(f"{len(differences)} tokens, |Δ| median {median:.5f}, p95 {percentile:.5f}")
    assert median <= MEDIAN_LIMIT
    assert percentile <= PERCENTILE_LIMIT


# The 0.5B, an instruct model, does not look at what stands behind; the 1.5B does.
FILLER = "qwen2.5-coder-1.5b"
QUICKSORT = """def quicksort(arr):
    if len(arr) <= 1:
        return arr
    pivot = arr[len(arr) // 2]
    |
    middle = [x for x in arr if x == pivot]
    right = [x for x in arr if x > pivot]
    return quicksort(left) + middle + quicksort(right)"""


def test_a_code_model_fills_in_the_middle(model_path: Callable[[str], Path]) -> None:
    path = str(model_path(FILLER))
    with read(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata, path)
        infill = InfillTokens.from_metadata(file.metadata, tokenizer.vocabulary, path)
    text = GgufTextModel(tokenizer, None, infill=infill)
    with Engine(path, target_device="CPU", threads=2, ctx_size=512) as engine:
        for code, gap in (
            ("def add(a, b):\n    return |\n\nprint(add(1, 2))\n", "a + b"),
            ('import os\n\nfor name in os.|("."):\n    print(name)\n', "listdir"),
            (QUICKSORT, "left = [x for x in arr if x < pivot]"),
        ):
            before, behind = code.split("|")
            prompt = text.encode_infill(before, behind)
            answer = engine.generate(prompt, SamplingParams(temperature=0.0, max_tokens=24))
            assert (answer.text, answer.finish_reason) == (gap, "stop")
