"""A draft model that is lost and comes back: requests go on without it, and with it again."""

from __future__ import annotations

import logging

import pytest

from lucebox.config import Overlap
from lucebox.core import Origin
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Answer, Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 12
PROMPTS = ([1, 2, 3], [4, 5])
TARGET = random_model(N_VOCAB, 1)
DRAFT = random_model(N_VOCAB, 1, noise=0.3)


def harness(overlap: Overlap = "off", **options: object) -> Harness:
    return Harness(N_VOCAB, TARGET, DRAFT, n_ctx=128, n_parallel=2, overlap=overlap, **options)  # type: ignore[arg-type]


def params() -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)


def n_accepted(answer: Answer, n_before: int = 0) -> int:
    return answer.origins[n_before:].count(Origin.ACCEPTED)


def run(engine: Harness) -> None:
    while not engine.stepper.scheduler.is_idle:
        engine.step()


def plain() -> list[list[int]]:
    engine = Harness(N_VOCAB, TARGET, n_ctx=128, n_parallel=2)
    ids = [engine.submit(prompt, params()) for prompt in PROMPTS]
    run(engine)
    return [engine.answers[id].tokens for id in ids]


@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize("n_steps", [1, 2, 5])
def test_the_text_stays_and_drafts_come_back(
    overlap: Overlap, n_steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    engine = harness(overlap)
    ids = [engine.submit(prompt, params()) for prompt in PROMPTS]
    answers = [engine.answers[id] for id in ids]
    with caplog.at_level(logging.WARNING):
        for _ in range(n_steps):
            engine.step()
        engine.draft.why_lost = "the worker is gone"
        engine.step()  # may take over what was drafted ahead
        n_before = [len(answer.tokens) for answer in answers]
        for _ in range(4):
            engine.step()
        assert [n_accepted(*pair) for pair in zip(answers, n_before, strict=True)] == [0, 0]
        n_fed = len(engine.draft.n_rows_fed)
        engine.draft.why_lost, engine.draft.is_new = "", True
        n_before = [len(answer.tokens) for answer in answers]
        run(engine)
    assert [answer.tokens for answer in answers] == plain()
    assert len(engine.draft.n_rows_fed) > n_fed
    assert min(n_accepted(*pair) for pair in zip(answers, n_before, strict=True)) > 0
    assert not caplog.records
    engine.stepper.close()


def test_a_loss_in_the_middle_of_a_draft_costs_that_draft(caplog: pytest.LogCaptureFixture) -> None:
    engine = harness()
    asked = engine.draft.forward
    n_forwards = 0

    def dies(rows: object) -> object:
        nonlocal n_forwards
        n_forwards += 1
        if n_forwards % 7 == 0:
            engine.draft.is_new = True
            engine.draft.why_lost = "killed"
        try:
            return asked(rows)  # type: ignore[arg-type]
        finally:
            engine.draft.why_lost = ""

    engine.draft.forward = dies  # type: ignore[method-assign, assignment]
    ids = [engine.submit(prompt, params()) for prompt in PROMPTS]
    with caplog.at_level(logging.WARNING):
        run(engine)
    assert [engine.answers[id].tokens for id in ids] == plain()
    assert n_forwards > 14
    assert all(n_accepted(engine.answers[id]) for id in ids)
    assert not caplog.records


def test_drafters_without_a_model_go_on() -> None:
    engine = harness(specs=("suffix,model", "suffix"))
    engine.draft.why_lost = "the worker is gone"
    id = engine.submit(PROMPTS[0], params())
    run(engine)
    answer = engine.answers[id]
    assert answer.tokens == plain()[0]
    assert not engine.draft.n_rows_fed
    assert {name for step in answer.steps for name in step.drafters} == {"suffix"}
