"""Drafters without a draft model, and combinations with one: they change nothing that a real target says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lucebox import drafters
from lucebox.engine.messages import Submit
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.engine_harness import Answer
from tests.support.tiny_engines import LocalEngine, tiny_config

TARGET: dict[str, Any] = {"n_vocab": 30, "n_layer": 1, "sharpness": 3.0}
FREE = [name for name in drafters.names() if not drafters.get(name).needs_model]
SPECS = [*FREE, "ngram:n=2,n_min=1,recycle:p_min=0.0", "suffix:n_min=1,model", "recycle,model"]
N_TOKENS = 80


def ask(engine: LocalEngine, id: str, prompt: list[int], spec: str | None, prediction: list[int]) -> Answer:
    """A greedy answer, or one by seed, in which matches are frequent."""
    params = SamplingParams(
        temperature=0.0 if id.startswith("g") else 0.7,
        seed=3,
        max_tokens=N_TOKENS,
        ignore_eos=True,
        speculative=SpeculativeParams(enabled=False if spec is None else None, drafter=spec),
    )
    engine.answers[id] = Answer()
    submit = Submit(id=id, prompt=prompt, params=params, seed=3, prediction=prediction)
    engine.loaded.stepper.scheduler.add(engine.loaded.admission.admit(submit))
    return engine.answers[id]


def test_answers_stay_what_they_are(tmp_path: Path) -> None:
    """At temperature 0 and by seed, drafted and plain, one behind the other and side by side."""
    config = tiny_config(
        tmp_path, draft={"perturbation": 0.1}, n_ctx=256, n_parallel=3, draft_length="fixed:n=6", **TARGET
    )
    prompts = {"greedy": [1, 2, 3, 1, 2, 3, 1, 2], "sampled": [7, 7, 8, 9, 7, 7, 8]}
    with LocalEngine(msgspec.structs.replace(config, drafters=())) as engine:
        plain = {kind: ask(engine, kind, prompt, None, []) for kind, prompt in prompts.items()}
        engine.run()
        drafted = {
            (kind, spec): ask(engine, f"{kind} {spec}", prompts[kind], spec, plain[kind].tokens[:60])
            for spec in SPECS
            for kind in prompts
        }
        engine.run()
    for (kind, spec), answer in drafted.items():
        assert answer.tokens == plain[kind].tokens, (kind, spec)
        totals = answer.finish.timings.drafters
        assert set(totals) <= {spec}
    for spec in SPECS:
        timings = [drafted[kind, spec].finish.timings for kind in prompts]
        assert sum(t.draft_n_accepted for t in timings) > 0, f"{spec} was never right, and nothing is tested"


@pytest.mark.parametrize("strategy", ["specinfer", "rrs"])
def test_trees_of_recycled_tokens_change_nothing(tmp_path: Path, strategy: str) -> None:
    config = tiny_config(tmp_path, n_ctx=256, draft_length="fixed:n=7,shape=2x2", **TARGET)
    prompt = [1, 2, 3]

    def greedy(drafter: str | None) -> SamplingParams:
        speculative = SpeculativeParams(
            enabled=drafter is not None, drafter=drafter, acceptance=None if drafter is None else strategy
        )
        return SamplingParams(temperature=0.0, max_tokens=N_TOKENS, ignore_eos=True, speculative=speculative)

    with LocalEngine(config) as engine:
        plain = engine.ask(prompt, greedy(None))
        drafted = engine.ask(prompt, greedy("recycle:p_min=0.0"))
    assert drafted.tokens == plain.tokens
    assert drafted.finish.timings.draft_n_accepted > 0
