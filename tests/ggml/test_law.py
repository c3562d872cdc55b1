"""Speculation leaves the law of the text alone: the joint law of four tokens, against exact enumeration."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lucebox.core import Float32Array
from lucebox.runtime.rows import Rows
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.params import SamplingParams
from tests.support.exact_law import chi_squared_p, joint_law
from tests.support.tiny_engines import LocalEngine, tiny_config

N_VOCAB = 5
N_TOKENS = 4
N_RUNS = 20_000
PROMPT = [1, 2]
MODEL = {"n_vocab": N_VOCAB, "n_layer": 1, "n_embd": 32, "n_ff": 32, "sharpness": 1.0}


def exact(path: str, params: SamplingParams) -> dict[tuple[int, ...], float]:
    with Runtime.load(path, device="CPU", n_threads=1, n_ctx=16, kv_type="f32") as runtime:

        def logits_of(context: tuple[int, ...]) -> Float32Array:
            return runtime.forward(Rows.chain(0, context, 0)).logits[0].copy()

        return joint_law(logits_of, N_VOCAB, PROMPT, params, N_TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("acceptance", "draft_length", "filters"),
    [
        ("block", "threshold:n=3,p_min=0.3", {}),
        ("block", "fixed:n=3", {"top_k": 4, "frequency_penalty": 0.6, "temperature": 1.3}),
        ("token", "fixed:n=3", {"top_k": 4, "frequency_penalty": 0.6, "temperature": 1.3}),
        ("match", "fixed:n=2", {}),
        ("gumbel", "fixed:n=3", {"top_p": 0.9, "presence_penalty": 0.5}),
        ("block", "fixed:n=3", {"typical_p": 0.8, "xtc_probability": 0.4, "xtc_threshold": 0.15}),
        ("match", "fixed:n=3", {"xtc_probability": 0.4, "xtc_threshold": 0.15, "top_p": 0.95}),
        ("block", "fixed:n=3", {"dry_multiplier": 0.7, "dry_allowed_length": 1, "dry_sequence_breakers": ()}),
        ("traversal", "fixed:n=5,shape=2x1", {}),
    ],
)
def test_joint_law_of_the_first_tokens(
    tmp_path: Path, acceptance: str, draft_length: str, filters: dict[str, Any]
) -> None:
    config = tiny_config(
        tmp_path,
        draft={"perturbation": 0.5},
        acceptance=acceptance,
        draft_length=draft_length,
        n_ctx=16,
        n_parallel=64,
        **MODEL,
    )
    params = SamplingParams(max_tokens=N_TOKENS, ignore_eos=True, **filters)
    law = exact(config.target.path, params)
    with LocalEngine(config) as engine:
        answers = [engine.submit(PROMPT, params, seed=seed) for seed in range(N_RUNS)]
        engine.run()
    counts = Counter(tuple(answer.tokens) for answer in answers)
    timings = [answer.finish.timings for answer in answers]
    n_accepted, n_drafted = sum(t.draft_n_accepted for t in timings), sum(t.draft_n for t in timings)
    assert 0.1 < n_accepted / n_drafted < 0.95
    assert sum(t.n_rounds for t in timings) > 2 * N_RUNS  # several rounds, so that keys of the RNG matter
    p_value = chi_squared_p(counts, law, N_VOCAB, N_TOKENS)
    print(f"{acceptance} {draft_length} {filters}: p = {p_value:.3f}, {n_accepted / n_drafted:.0%} accepted")
    assert p_value > 1e-3


def test_the_test_sees_a_biased_law() -> None:
    """Deviations of two points, as known bugs cause them, are found with this many runs."""
    law = {(0,): 0.5, (1,): 0.3, (2,): 0.2}
    fair = Counter({(0,): 10_020, (1,): 5_990, (2,): 3_990})
    biased = Counter({(0,): 10_420, (1,): 5_690, (2,): 3_890})
    assert chi_squared_p(fair, law, 3, 1) > 0.5
    assert chi_squared_p(biased, law, 3, 1) < 1e-6
    assert chi_squared_p(Counter({(0,): 10, (3,): 1}), law, 4, 1) == 0.0
