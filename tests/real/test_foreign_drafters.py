"""A SmolLM2 draft for a Qwen2.5 target: greedy text stays the target's, and some guesses are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lucebox import Completion, Engine, SamplingParams, SpeculativeParams
from lucebox.cores import physical_cores
from lucebox.errors import VocabularyMismatchError

# Two kernels for one and for several rows move logits by up to 0.4, so that closer pairs may swap.
MAX_TIED_GAP = 0.5
N_TOKENS = 24
PROMPT = "Explain in a few sentences what a hash map is, to Zoë 🤖."


def answer(engine: Engine, *, speculate: bool) -> Completion:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=N_TOKENS,
        ignore_eos=True,
        logprobs=2,
        speculative=SpeculativeParams(enabled=speculate),
    )
    return engine.chat([{"role": "user", "content": PROMPT}], params)


def top_gap(completion: Completion, i: int) -> float:
    """Distance of the two likeliest tokens at place `i`, in nats."""
    assert completion.logprobs is not None
    (_, first), (_, second) = completion.logprobs[i].top
    return first - second


@pytest.mark.parametrize("drafter", ["tli", "slem"])
def test_greedy_text_is_the_targets(model_path: Callable[[str], Path], drafter: str) -> None:
    target, draft = model_path("qwen2.5-coder-0.5b"), model_path("smollm2-135m")
    options = {"ctx_size": 256, "threads": min(physical_cores(), 4), "draft_length": "fixed:n=3"}
    with Engine(str(target), str(draft), drafter=drafter, **options) as engine:
        plain, drafted = answer(engine, speculate=False), answer(engine, speculate=True)
    timings = drafted.timings
    print(
        f"{drafter}: {timings.draft_n_accepted} of {timings.draft_n} accepted: {timings.acceptance_rate:.0%}"
    )
    assert plain.timings.draft_n == 0
    assert timings.acceptance_rate > 0.1
    pairs = zip(plain.tokens, drafted.tokens, strict=True)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if first is not None:
        gap = min(top_gap(plain, first), top_gap(drafted, first))
        print(f"first difference at token {first}, where the two likeliest are {gap:.3f} apart")
        assert gap < MAX_TIED_GAP


def test_without_translation_the_draft_is_refused(model_path: Callable[[str], Path]) -> None:
    target, draft = model_path("qwen2.5-coder-0.5b"), model_path("smollm2-135m")
    with pytest.raises(VocabularyMismatchError, match=r"does not share the vocabulary .*--drafter tli"):
        Engine(str(target), str(draft), drafter="model", ctx_size=64)
