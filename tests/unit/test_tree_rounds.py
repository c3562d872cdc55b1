"""Rounds with drafted trees, over fake runtimes that read each row's context from the cells it sees."""

from __future__ import annotations

import pytest

from lucebox import acceptance
from lucebox.core import Origin
from lucebox.sampling.logprobs import logprobs
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 12
PROMPT = [1, 2, 3]
GREEDY = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
ON_TREES = [name for name in acceptance.names() if acceptance.get(name).supports_trees]
SHAPES = ["fixed:n=6,shape=3x2", "fixed:n=4,shape=4", "fixed:n=9,shape=2x1x2"]


@pytest.mark.parametrize("draft_length", SHAPES)
@pytest.mark.parametrize("name", ON_TREES)
def test_greedy_text_is_that_of_plain_decoding(name: str, draft_length: str) -> None:
    target = random_model(N_VOCAB, 2)
    plain = Harness(N_VOCAB, target).ask(PROMPT, GREEDY)
    harness = Harness(
        N_VOCAB,
        target,
        random_model(N_VOCAB, 2, noise=1.5),
        draft_length=draft_length,
        acceptance=name,
        n_parallel=2,
    )
    ids = [harness.submit(PROMPT, GREEDY), harness.submit(PROMPT, GREEDY)]
    harness.run()
    for id in ids:
        answer = harness.answers[id]
        assert answer.tokens == plain.tokens
        timings = answer.finish.timings
        assert timings.draft_n_accepted == answer.origins.count(Origin.ACCEPTED) > 0


def test_origins_and_positions_of_a_tree() -> None:
    """A bonus behind a leaf, a correction behind a row whose children all fell; depths count, not tokens."""
    target = random_model(N_VOCAB, 4)
    draft_length = "fixed:n=6,shape=2x2"
    harness = Harness(
        N_VOCAB, target, random_model(N_VOCAB, 4, noise=1.0), draft_length=draft_length, acceptance="greedy"
    )
    answer = harness.ask(PROMPT, GREEDY)
    for step in answer.steps:
        *accepted, last = step.origins
        assert set(accepted) <= {Origin.ACCEPTED}
        if step.drafted and step.drafted[0].depth == 2 and step.finish is None:
            assert last is (Origin.BONUS if len(accepted) == 2 else Origin.CORRECTED)
    assert {Origin.BONUS, Origin.CORRECTED} <= set(answer.origins)
    timings = answer.finish.timings
    assert len(timings.drafted_per_position) == 2
    assert sum(timings.accepted_per_position) == timings.draft_n_accepted
    assert timings.draft_n > sum(timings.drafted_per_position)


def test_the_accepted_one_of_equal_siblings_is_kept() -> None:
    """`specinfer` keeps duplicates; whatever follows sees the path that was accepted, and no sibling."""
    target = random_model(N_VOCAB, 5, sharpness=4.0)
    params = SamplingParams(max_tokens=40, ignore_eos=True, logprobs=0)
    harness = Harness(N_VOCAB, target, target, draft_length="fixed:n=20,shape=4x4", acceptance="specinfer")
    answer = harness.ask(PROMPT, params, seed=3)
    text = [*PROMPT, *answer.tokens]
    for i, entry in enumerate(answer.logprobs):
        logits = target(tuple(text[: len(PROMPT) + i]))
        assert entry.logprob == pytest.approx(logprobs(logits, entry.token, 0)[0], abs=1e-5)
    assert answer.finish.timings.draft_n_accepted > 20
