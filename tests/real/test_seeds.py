"""A seed gives one text, whoever is served beside it, with drafts and without, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lucebox import Engine, SamplingParams
from lucebox.models import attention

ModelPath = Callable[[str], Path]
WORDS = (
    "the",
    "a",
    "sea",
    "code",
    "python",
    "list",
    "sort",
    "night",
    "river",
    "moon",
    "bank",
    "write",
    "read",
)
N_REQUESTS = 16
N_CLIENTS = 8


def requests() -> list[tuple[str, SamplingParams]]:
    """Prompts of up to 120 words: some are computed in one piece with others, some in several."""
    rng = random.Random(3)
    return [
        (
            " ".join(rng.choices(WORDS, k=rng.randrange(2, 120))),
            SamplingParams(temperature=1.0, seed=rng.randrange(2**60), max_tokens=32, logprobs=0),
        )
        for _ in range(N_REQUESTS)
    ]


@pytest.mark.skipif(not attention.is_available(), reason="rounding breaks ties without AVX-512")
def test_answers_are_the_same_alone_and_in_a_crowd(model_path: ModelPath) -> None:
    path, asked = str(model_path("smollm2-135m")), requests()
    with Engine(path, threads=2, ctx_size=512, parallel=1, drafter="none", prefix_cache="off") as engine:
        alone = [engine.generate(prompt, params) for prompt, params in asked]
    with (
        Engine(
            path, threads=2, ctx_size=512, parallel=4, drafter="suffix", draft_length="fixed:n=4"
        ) as engine,
        ThreadPoolExecutor(N_CLIENTS) as clients,
    ):
        crowd = list(clients.map(lambda request: engine.generate(*request), asked))
    assert sum(answer.timings.draft_n for answer in crowd) > 0
    for one, other in zip(alone, crowd, strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == other.logprobs, "to the last bit"
