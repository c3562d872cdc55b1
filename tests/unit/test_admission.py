"""What is refused before a request becomes a sequence, and what it is told."""

from __future__ import annotations

from typing import NoReturn

import pytest

from lucebox import acceptance
from lucebox.errors import ConfigError, RequestError, VocabularyMismatchError
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 12
TARGET = random_model(N_VOCAB, 1)


def params(temperature: float, acceptance: str | None = None) -> SamplingParams:
    speculative = SpeculativeParams(acceptance=acceptance)
    return SamplingParams(temperature=temperature, max_tokens=4, speculative=speculative)


@pytest.mark.parametrize("engines", ["auto", "greedy"])
def test_greedy_is_refused_where_it_would_change_the_law(engines: str) -> None:
    harness = Harness(N_VOCAB, TARGET, acceptance=engines)
    asked = params(0.7, "greedy" if engines == "auto" else None)
    with pytest.raises(RequestError, match=r"'greedy'.*temperature is 0\.7") as caught:
        harness.submit([1], asked)
    assert caught.value.param == "speculative.acceptance"
    assert "temperature to 0" in caught.value.remedy
    assert harness.stepper.scheduler.is_idle


def test_the_remedies_help() -> None:
    harness = Harness(N_VOCAB, TARGET, acceptance="greedy")
    assert harness.ask([1], params(0.0)).tokens
    assert harness.ask([1], params(0.7, "auto")).tokens


@pytest.mark.parametrize("name", acceptance.names())
def test_every_strategy_says_if_it_can_judge_sampled_requests(name: str) -> None:
    harness = Harness(N_VOCAB, TARGET)
    assert harness.ask([1], params(0.0, name)).tokens
    if not acceptance.get(name).temperature_0_only:
        assert harness.ask([1], params(1.0, name)).tokens


def test_a_wrong_acceptance_of_the_engine_fails_its_start() -> None:
    with pytest.raises(ConfigError, match="did you mean greedy"):
        Harness(N_VOCAB, TARGET, acceptance="gredy")


@pytest.mark.parametrize(
    ("drafter", "words"),
    [
        ("ngramm", "did you mean ngram"),
        ("ngram:k=2", "ngram"),
        ("ngram,ngram", "has a drafter twice"),
        ("ngram,suffix:memory_mib=4000", "memory_mib from whoever starts the engine"),
        ("model", "`model` needs a draft model"),
    ],
)
def test_a_drafter_that_cannot_be_had_is_named(drafter: str, words: str) -> None:
    harness = Harness(N_VOCAB, TARGET)
    asked = SamplingParams(speculative=SpeculativeParams(drafter=drafter))
    with pytest.raises(RequestError, match=words) as caught:
        harness.submit([1], asked)
    assert caught.value.param == "speculative.drafter"


def test_a_draft_model_that_no_drafter_can_translate_is_the_requests_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get(spec: str) -> NoReturn:
        raise VocabularyMismatchError("no text in common", remedy="use --drafter slem")

    harness = Harness(N_VOCAB, TARGET)
    monkeypatch.setattr(harness.pool, "get", get)
    with pytest.raises(RequestError, match="no text in common") as caught:
        harness.submit([1], SamplingParams(speculative=SpeculativeParams(drafter="tli")))
    assert caught.value.param == "speculative.drafter"
