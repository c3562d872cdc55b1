"""Drafted trees on tiny models: what requests say must not differ from plain decoding."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lucebox import acceptance
from lucebox.core import Origin
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.tiny_engines import LocalEngine, tiny_config

N_VOCAB = 40
N_CTX = 64
ON_TREES = [name for name in acceptance.names() if acceptance.get(name).supports_trees]
SHAPES = ("fixed:n=6,shape=3x2", "fixed:n=3,shape=3", "fixed:n=12,shape=2x1x2", "fixed:n=30,shape=4x3x2")
TARGET: dict[str, Any] = {"n_vocab": N_VOCAB, "n_layer": 1, "sharpness": 3.0}
DRAFTS: dict[str, dict[str, Any]] = {
    "close": {"perturbation": 0.1},
    "unrelated": {"seed": 77, "arch": "qwen2"},
    "short context": {"perturbation": 0.1, "metadata": {"llama.context_length": 20}},
}


def requests(seed: str, *, sampled: bool) -> list[tuple[list[int], SamplingParams]]:
    """`match` where sampled, whose text does not depend on drafts; else all that judge trees."""
    rng = random.Random(seed)
    found = []
    for i in range(20):
        params = SamplingParams(
            temperature=rng.choice((0.5, 1.0)) if sampled else 0.0,
            top_p=rng.choice((1.0, 0.7)) if sampled else 1.0,
            repetition_penalty=rng.choice((1.0, 1.3)),
            frequency_penalty=rng.choice((0.0, 0.6)),
            stop=rng.choice(((), ("ab",))),
            max_tokens=rng.choice((3, 17, 30)),
            logprobs=2,
            speculative=SpeculativeParams(
                acceptance="match" if sampled else ON_TREES[i % len(ON_TREES)], draft_length=SHAPES[i % 4]
            ),
        )
        found.append(([rng.randrange(N_VOCAB) for _ in range(rng.choice((1, 5, 20)))], params))
    return found


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("draft", DRAFTS)
def test_trees_change_nothing(tmp_path: Path, draft: str, sampled: bool) -> None:
    asked = requests(draft, sampled=sampled)
    with LocalEngine(tiny_config(tmp_path, n_ctx=N_CTX, **TARGET)) as engine:
        plain = [engine.ask(prompt, params, seed=7) for prompt, params in asked]
    with LocalEngine(
        tiny_config(tmp_path, draft=DRAFTS[draft], n_ctx=N_CTX, n_parallel=3, **TARGET)
    ) as engine:
        drafted = [engine.submit(prompt, params, seed=7) for prompt, params in asked]
        engine.run()
    for ours, theirs in zip(drafted, plain, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.finish.reason == theirs.finish.reason
        for a, b in zip(ours.logprobs, theirs.logprobs, strict=True):
            assert a.token == b.token
            assert a.logprob == pytest.approx(b.logprob, abs=1e-3)
    timings = [answer.finish.timings for answer in drafted]
    assert sum(t.draft_n for t in timings) > 3 * sum(t.draft_n_accepted for t in timings) > 0


@pytest.mark.parametrize("name", ON_TREES)
def test_second_children_are_accepted(tmp_path: Path, name: str) -> None:
    """An unrelated draft model's first guess is seldom right: wide trees must help, and origins tell so."""
    rng = random.Random(3)
    prompts = [[rng.randrange(N_VOCAB) for _ in range(5)] for _ in range(6)]
    rates = []
    config = tiny_config(tmp_path, draft={"perturbation": 1.0}, n_ctx=N_CTX, **TARGET)
    with LocalEngine(config) as engine:
        for draft_length in ("fixed:n=1", "fixed:n=8,shape=8"):
            speculative = SpeculativeParams(acceptance=name, draft_length=draft_length)
            is_greedy = acceptance.get(name).temperature_0_only
            params = SamplingParams(
                temperature=0.0 if is_greedy else 1.0, max_tokens=40, speculative=speculative
            )
            answers = [engine.ask(prompt, params, seed=i) for i, prompt in enumerate(prompts)]
            origins = [origin for answer in answers for origin in answer.origins]
            rates.append(origins.count(Origin.ACCEPTED) / len(origins))
    assert rates[1] > 1.2 * rates[0] > 0
