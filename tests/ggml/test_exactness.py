"""Random requests, alone without drafts and in company with them: what they say must not differ."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lucebox.engine.messages import TokenLogprobs
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.engine_harness import Answer
from tests.support.tiny_engines import LocalEngine, tiny_config

N_VOCAB = 40  # letters, other bytes and the end token: stop strings and ends are met often
N_CTX = 48
N_REQUESTS = 24
DRAFT_LENGTHS = ("fixed:n=0", "fixed:n=1", "fixed:n=7", "fixed:n=100000", "threshold:n=9,p_min=0.3", None)
TARGET: dict[str, Any] = {"n_vocab": N_VOCAB, "n_layer": 1, "sharpness": 3.0}
DRAFTS: dict[str, dict[str, Any]] = {
    "close": {"perturbation": 0.1},
    "unrelated": {"seed": 77, "arch": "qwen2"},
    "short context": {"perturbation": 0.1, "metadata": {"llama.context_length": 20}},
}


def any_request(rng: random.Random) -> tuple[list[int], SamplingParams]:
    prompt = [rng.randrange(N_VOCAB) for _ in range(rng.choice((1, 2, 11, 30, N_CTX - 1)))]
    is_greedy = rng.random() < 0.5
    params = SamplingParams(
        temperature=0.0 if is_greedy else rng.choice((0.3, 1.0, 2.5)),
        seed=rng.choice((None, 5)) if is_greedy else rng.randrange(-(2**63), 2**64),
        top_k=rng.choice((0, 0, 1, 4, 10_000)),
        top_p=rng.choice((1.0, 1.0, 0.8, 0.2)),
        min_p=rng.choice((0.0, 0.0, 0.1)),
        typical_p=rng.choice((1.0, 1.0, 0.7)),
        xtc_probability=rng.choice((0.0, 0.0, 0.5)),
        xtc_threshold=rng.choice((0.02, 0.1)),
        dry_multiplier=rng.choice((0.0, 0.0, 1.0)),
        dry_allowed_length=rng.choice((1, 2)),
        dry_sequence_breakers=rng.choice(((), ("a", "xyz"))),
        repetition_penalty=rng.choice((1.0, 1.0, 1.4, 0.7)),
        frequency_penalty=rng.choice((0.0, 0.0, 0.9, -0.5)),
        presence_penalty=rng.choice((0.0, 0.0, 1.5)),
        logit_bias=rng.choice(
            ({}, {}, {N_VOCAB - 1: 3.0}, {0: -100.0, 1: 2.0}, dict.fromkeys(range(20), -100.0))
        ),
        stop=rng.choice(((), (), ("a",), ("ab", "b", "xyz"), ("éa",))),
        ignore_eos=rng.random() < 0.3,
        max_tokens=rng.choice((None, None, 0, 1, 2, 9)),
        logprobs=rng.choice((None, 0, 3)),
        prompt_logprobs=rng.choice((None, None, 2)),
        speculative=SpeculativeParams(
            draft_length=rng.choice(DRAFT_LENGTHS),
            acceptance=rng.choice((None, "greedy", "match") if is_greedy else (None, "match")),
        ),
    )
    return prompt, params


def outcome(answer: Answer) -> tuple[Any, ...]:
    finish = answer.finish
    return answer.tokens, finish.reason, finish.stop_string, finish.keep_bytes


def all_logprobs(answer: Answer) -> list[TokenLogprobs]:
    """Those of the prompt, if asked for, then those of the answer."""
    return [*(answer.steps[0].prompt_logprobs or ()), *answer.logprobs]


def same_logprobs(ours: Answer, theirs: Answer) -> None:
    for a, b in zip(all_logprobs(ours), all_logprobs(theirs), strict=True):
        assert a.token == b.token
        assert a.logprob == pytest.approx(b.logprob, abs=1e-3)
        assert [value for _, value in a.top] == pytest.approx([value for _, value in b.top], abs=1e-3)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("n_parallel", [1, 3])
def test_drafts_change_nothing(tmp_path: Path, draft: str, n_parallel: int) -> None:
    rng = random.Random(f"{draft} {n_parallel}")
    requests = [any_request(rng) for _ in range(N_REQUESTS)]
    with LocalEngine(tiny_config(tmp_path, n_ctx=N_CTX, **TARGET)) as engine:
        plain = [engine.ask(prompt, params, seed=params.seed or 0) for prompt, params in requests]
    config = tiny_config(tmp_path, draft=DRAFTS[draft], n_ctx=N_CTX, n_parallel=n_parallel, **TARGET)
    with LocalEngine(config) as engine:
        drafted = [engine.submit(prompt, params, seed=params.seed or 0) for prompt, params in requests]
        engine.run()
    for (prompt, params), ours, theirs in zip(requests, drafted, plain, strict=True):
        assert outcome(ours) == outcome(theirs), (prompt, msgspec.to_builtins(params))
        same_logprobs(ours, theirs)
    timings = [answer.finish.timings for answer in drafted]
    assert sum(t.draft_n_accepted for t in timings) > 0
    assert any(t.draft_n_accepted < t.draft_n for t in timings)
    assert {answer.finish.reason for answer in drafted} == {"stop", "length"}
