"""Whoever guesses, the text follows the target's law: χ² of joint laws over several rounds and requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from lucebox import acceptance, drafters
from lucebox.core import Draft, Float32Array
from lucebox.drafters.base import Drafter, DraftRequest
from lucebox.drafters.combination import Combination
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.drafter_laws import DraftedDecoder, ToyModelDrafter
from tests.support.drafting import drafter_context
from tests.support.engine_harness import Harness
from tests.support.enumerate import Model, Outcomes, distribution, joint_law, law
from tests.support.laws import p_value

N_VOCAB = 3
N_TOKENS = 3
N_RUNS = 2000
PROMPT = (0, 1, 2, 0, 1, 1, 2, 0)
PREDICTION = (1, 2, 0, 2, 1)
CONTEXT = drafter_context(N_VOCAB)
LOSSLESS = [
    name
    for name in acceptance.names()
    if acceptance.get(name).lossless and not acceptance.get(name).temperature_0_only
]
FREE = [name for name in drafters.names() if not drafters.get(name).needs_model]


def favouring(*favourites: int) -> Model:
    """A law for each last token, whose favourite comes next with probability 1/2."""
    laws = [law(*(2 if token == favourite else 1 for token in range(N_VOCAB))) for favourite in favourites]
    return lambda text: laws[text[-1]] if text else laws[0]


TARGET, OTHER = favouring(1, 2, 0), favouring(1, 1, 2)


class Toy(ToyModelDrafter):
    """A model that does not quite agree."""

    def __init__(self) -> None:
        super().__init__(CONTEXT, OTHER)


class OneOfToy(Toy):
    """Its first token: what is left of the round is somebody else's."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return super().propose([replace(request, n_max=1, shape=()) for request in requests])


class Lying(Toy):
    """Names laws that nothing was drawn from."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        q = distribution(law(1, 1, 1))
        return [Draft.chain([1], [q]) for _ in requests]


def free(spec: str) -> Callable[[], Drafter]:
    return lambda: drafters.create(spec, CONTEXT)


def combined(*makes: Callable[[], Drafter]) -> Callable[[], Drafter]:
    return lambda: Combination(CONTEXT, [make() for make in makes])


# Without thresholds, so that unlikely guesses are made, too.
OPTIONS = {
    "ngram": "n=2,n_min=1",
    "prediction": "n_match=1",
    "recycle": "k=2,p_min=0.0",
    "suffix": "n_min=1,p_min=0.0",
}
GUESSING = {name: free(f"{name}:{OPTIONS[name]}" if name in OPTIONS else name) for name in FREE} | {
    "suffix, then a model": combined(free("suffix:n_min=2,p_min=0.3"), Toy),
    "a model, then ngram": combined(OneOfToy, free("ngram:n=2,n_min=1")),
}


def decoder(strategy: str, make: Callable[[], Drafter]) -> DraftedDecoder:
    """Strategies that judge trees get some from those who make them."""
    judging = acceptance.create(strategy)
    return DraftedDecoder(judging, TARGET, make(), PROMPT, n_max=4, shape=(2, 1), prediction=PREDICTION)


@pytest.mark.parametrize("name", GUESSING)
@pytest.mark.parametrize("strategy", LOSSLESS)
def test_drafts_keep_the_law(strategy: str, name: str) -> None:
    decoding = decoder(strategy, GUESSING[name])
    assert p_value(decoding, decoding.exact(N_TOKENS), N_RUNS) > 1e-3
    assert 0 < decoding.n_accepted < decoding.n_drafted
    assert decoding.n_rounds > 1.4 * N_RUNS


def test_a_drafter_that_lies_would_be_seen() -> None:
    decoding = decoder("token", Lying)
    assert p_value(decoding, decoding.exact(N_TOKENS), N_RUNS) < 1e-6


class Asking:
    """The engine itself, with a draft model, at one request a seed."""

    def __init__(self, drafter: str, strategy: str) -> None:
        speculative = SpeculativeParams(drafter=drafter, acceptance=strategy)
        self._params = SamplingParams(ignore_eos=True, max_tokens=N_TOKENS, speculative=speculative)
        self._harness = Harness(N_VOCAB, logits_of(TARGET), logits_of(OTHER), draft_length="fixed:n=2")

    def tokens(self, seed: int, n: int) -> tuple[int, ...]:
        return tuple(self._harness.ask(PROMPT, self._params, seed=seed).tokens[:n])


def logits_of(model: Model) -> Callable[[tuple[int, ...]], Float32Array]:
    return lambda context: np.log(distribution(model(context)).dense())


@pytest.mark.parametrize(
    ("drafter", "strategy"),
    [("suffix:n_min=1,model", "block"), ("suffix:n_min=3,model", "gumbel"), ("model,recycle", "rrs")],
)
def test_the_engine_keeps_the_law(drafter: str, strategy: str) -> None:
    exact: Outcomes = joint_law(lambda text: TARGET((*PROMPT, *text)), N_TOKENS)
    assert p_value(Asking(drafter, strategy), exact, 700) > 1e-3
