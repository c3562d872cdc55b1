"""Speculation on the real pair: at temperature 0 the text of the target alone, up to ties in its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lucebox import Completion, Engine, SamplingParams, SpeculativeParams
from lucebox.cores import physical_cores

# Two kernels for one and for several rows move logits by up to 0.4, so that closer pairs may swap.
MAX_TIED_GAP = 0.5
N_TOKENS = 128
PROMPTS = [
    "Write a Python function that merges two sorted lists without using sort.",
    "Explain in a few sentences what a hash map is and when it is slow.",
    "Translate into French: The weather is nice today, so we are going to the beach with our friends.",
]


@pytest.fixture(scope="module")
def engine(model_path: Callable[[str], Path]) -> Iterator[Engine]:
    target, draft = model_path("qwen2.5-coder-1.5b"), model_path("qwen2.5-coder-0.5b")
    threads = min(physical_cores(), 4)
    with Engine(str(target), str(draft), ctx_size=1024, threads=threads) as engine:
        yield engine


def answer(engine: Engine, prompt: str, **speculative: str | bool) -> Completion:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=N_TOKENS,
        ignore_eos=True,
        logprobs=2,
        speculative=SpeculativeParams(**speculative),  # type: ignore[arg-type]
    )
    return engine.chat([{"role": "user", "content": prompt}], params)


def top_gap(completion: Completion, i: int) -> float:
    """Distance of the two likeliest tokens at place `i`, in nats."""
    assert completion.logprobs is not None
    (_, first), (_, second) = completion.logprobs[i].top
    return first - second


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_with_a_draft_is_the_text_without(engine: Engine, prompt: str) -> None:
    plain = answer(engine, prompt, enabled=False)
    drafted = answer(engine, prompt, draft_length="fixed:n=3")
    assert len(plain.tokens) == len(drafted.tokens) == N_TOKENS
    assert plain.timings.draft_n == 0
    print(
        f"plain {plain.timings.predicted_per_second:.1f} tokens/s, with draft "
        f"{drafted.timings.predicted_per_second:.1f}, accepted {drafted.timings.acceptance_rate:.0%}"
    )
    assert drafted.timings.acceptance_rate > 0.3
    pairs = zip(plain.tokens, drafted.tokens, strict=True)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if first is None:
        print("the same text")
        return
    gap = min(top_gap(plain, first), top_gap(drafted, first))
    print(f"first difference at token {first}, where the two likeliest are {gap:.3f} apart")
    assert gap < MAX_TIED_GAP
