"""Who guesses for a request: the engine's own, whom the request names, and who knows its prediction."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lucebox.core import Origin
from lucebox.engine.messages import Submit
from lucebox.engine.sequence import EngineSequence
from lucebox.errors import RequestError
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.engine_harness import PLUGIN, Answer, Harness
from tests.support.fake_runtime import random_model, scripted

N_VOCAB = 12
TARGET = random_model(N_VOCAB, 1)
PROMPT = [1, 2, 3]
SCRIPT = [4, 5, 6, 7, 8, 9, 10, 4, 5, 3]


def harness(**options: Any) -> Harness:
    """Its target says SCRIPT, then zeros."""
    return Harness(N_VOCAB, scripted(N_VOCAB, SCRIPT, len(PROMPT)), **options)


def submit(*, prediction: list[int] | None = None, seed: int | None = None, **speculative: Any) -> Submit:
    params = SamplingParams(
        temperature=0.0,
        max_tokens=len(SCRIPT),
        ignore_eos=True,
        seed=seed,
        speculative=SpeculativeParams(**speculative),
    )
    return Submit(id="r", prompt=PROMPT, params=params, seed=1, prediction=prediction or [])


def run(engine: Harness, request: Submit) -> Answer:
    engine.answers["r"] = Answer()
    engine.stepper.scheduler.add(engine.admission.admit(request))
    engine.run()
    return engine.answers["r"]


def admitted(engine: Harness, request: Submit) -> EngineSequence:
    return engine.admission.admit(request)


def test_the_engines_own_are_for_requests_that_name_none() -> None:
    engine = harness(specs=["suffix", "ngram"])
    for request in (submit(), submit(drafter="auto")):
        assert admitted(engine, request).drafters == ("suffix", "ngram")


def test_a_request_gets_whom_it_names_and_nobody_else() -> None:
    engine = harness(specs=["suffix"])
    for spec in ("ngram", "ngram:n=3,n_min=1,suffix", "recycle"):
        assert admitted(engine, submit(drafter=spec)).drafters == (spec,)
        answer = run(engine, submit(drafter=spec))
        assert answer.tokens == SCRIPT
        assert set(answer.finish.timings.drafters) <= {spec}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("sufix", "did you mean suffix"),
        ("suffix:n=3", "no option 'n'"),
        ("suffix:n_min=0", "n_min must be 1 or more"),
        ("suffix,", "has no name"),
        ("model", "needs a draft model"),
        ("suffix,model", "needs a draft model"),
    ],
)
def test_who_cannot_guess_is_refused_by_name(spec: str, words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        admitted(harness(), submit(drafter=spec))
    assert caught.value.param == "speculative.drafter"


def test_a_request_may_have_a_drafter_where_the_engine_has_none() -> None:
    engine = harness()
    with pytest.raises(RequestError, match="no drafter"):
        admitted(engine, submit(enabled=True))
    assert admitted(engine, submit(enabled=True, drafter="ngram")).controller is not None
    assert admitted(engine, submit(enabled=False, drafter="ngram")).controller is None


def test_a_prediction_is_tried_first() -> None:
    engine = harness(specs=["suffix"])
    request = submit(prediction=SCRIPT[:8])
    assert admitted(engine, request).drafters == ("prediction", "suffix")
    answer = run(engine, request)
    assert answer.tokens == SCRIPT
    totals = answer.finish.timings.drafters["prediction"]
    assert totals.n_accepted == totals.n_drafted == 6
    # The prompt's own round is plain; then four and a bonus, then the last two of the prediction.
    assert answer.origins[:6] == [Origin.PLAIN, *[Origin.ACCEPTED] * 4, Origin.BONUS]
    assert admitted(engine, submit(prediction=SCRIPT, drafter="suffix")).drafters == ("suffix",)


def test_a_wrong_prediction_changes_nothing() -> None:
    answer = run(harness(), submit(prediction=[4, 5, 9, 9, 8, 9]))
    assert answer.tokens == SCRIPT
    assert answer.finish.timings.drafters["prediction"].n_accepted > 0


@pytest.mark.parametrize("prediction", [[-1], [3, N_VOCAB]])
def test_predictions_outside_the_vocabulary_are_refused(prediction: list[int]) -> None:
    with pytest.raises(RequestError, match="outside the vocabulary") as caught:
        admitted(harness(), submit(prediction=prediction))
    assert caught.value.param == "prediction"


def test_an_answer_is_remembered_for_the_next_request() -> None:
    engine = harness(specs=["suffix"])
    n_rounds = [run(engine, submit()).finish.timings.n_rounds for _ in range(2)]
    assert n_rounds[1] < n_rounds[0]


@pytest.mark.parametrize("spec", ["suffix", "recycle"])
def test_an_engine_that_forgets_answers_every_request_as_the_first(spec: str) -> None:
    engine = harness(specs=[spec], remembers=False)
    first, again = (run(engine, submit()).finish.timings for _ in range(2))
    assert (again.n_rounds, again.drafters) == (first.n_rounds, first.drafters)
    learned = harness(specs=[spec])
    assert [run(learned, submit()).finish.timings.n_rounds for _ in range(2)][1] < first.n_rounds


def test_answers_drawn_by_a_seed_are_not_remembered() -> None:
    """The next request of that seed meets the same random numbers: a draft that knows what came of them
    would be judged by them."""
    engine = Harness(N_VOCAB, TARGET, specs=["suffix"])
    suffix = engine.pool.get("suffix")
    for seed, temperature, n_known in ((5, 1.0, 0), (None, 1.0, 1), (5, 0.0, 2)):
        params = SamplingParams(temperature=temperature, seed=seed, max_tokens=5, ignore_eos=True)
        engine.ask(PROMPT, params)
        assert suffix.memory.n_tokens == n_known * (len(PROMPT) + 5 + 1)  # type: ignore[attr-defined]


def test_a_drafter_that_cannot_remember_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    from lucebox.drafters.ngram import NgramDrafter
    from tests.support.drafting import drafter_context

    class Forgetful(NgramDrafter):
        def remember(self, tokens: Any, n_prompt: int) -> None:
            raise RuntimeError("cannot remember")

    engine = harness(drafter=Forgetful(drafter_context(N_VOCAB)))
    with caplog.at_level(logging.ERROR):
        assert run(engine, submit(drafter=PLUGIN)).tokens == SCRIPT
    assert "cannot remember" in caplog.text
