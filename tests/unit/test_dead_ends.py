"""Where a request leaves no token that could come next: drafts end there, answers that come there fail."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Answer, Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 9
PROMPT = [0, 1, 2, 0, 1, 2, 0, 1]
PATTERNS = ("[a-c](a|d)(b|c)h", "([ab][cd]|[ef]g)+", "(a|b(c|d(e|f(g|h))))*", "[a-d]{2}(ee|[f-h]{3})[a-h]*")
WAYS: dict[str, dict[str, Any]] = {
    "chains": {"draft_length": "fixed:n=4"},
    "block": {"draft_length": "fixed:n=6", "acceptance": "block"},
    "trees": {"draft_length": "fixed:n=6,shape=3x2", "acceptance": "specinfer"},
    "more trees": {"draft_length": "fixed:n=9,shape=2x2x1", "acceptance": "rrs"},
    "typical draft lengths": {"draft_length": "threshold:n=6,p_min=0.1"},
    "overlapped": {"draft_length": "fixed:n=3", "overlap": "on"},
}


def said(answer: Answer) -> tuple[list[int], str]:
    """Its tokens, and how it ended."""
    last = answer.events[-1]
    return answer.tokens, getattr(last, "message", None) or answer.finish.reason


def ask(harness: Harness, params: SamplingParams, seed: int) -> tuple[list[int], str]:
    try:
        return said(harness.ask(PROMPT, params, seed=seed))
    except RequestError as error:
        return [], error.message


def cases() -> list[SamplingParams]:
    """Grammars beside bans of one to four letters, some of which end the grammar's ways."""
    rng = random.Random(5)
    made = []
    for i in range(40):
        banned = rng.sample(range(N_VOCAB - 1), rng.randint(1, 4))
        made.append(
            SamplingParams(
                temperature=0.0 if i % 2 else 1.0,
                seed=i,
                max_tokens=12,
                grammar=Grammar("regex", PATTERNS[i % len(PATTERNS)]),
                logit_bias=dict.fromkeys(banned, -100.0),
                stop=("da",) if i % 3 == 0 else (),
            )
        )
    return made


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_speculation_says_what_plain_decoding_says(way: dict[str, Any]) -> None:
    """Also where that is a refusal; by the same draws, at temperature 1 under `match`."""
    n_failed = 0
    for i, params in enumerate(cases()):
        if way.get("acceptance"):  # which draws otherwise than plain decoding does
            params = replace(params, temperature=0.0)
        target = random_model(N_VOCAB, i)
        plain = ask(Harness(N_VOCAB, target, acceptance="match"), params, i)
        harness = Harness(
            N_VOCAB, target, random_model(N_VOCAB, i, noise=0.7), **{"acceptance": "match", **way}
        )
        spoken = ask(harness, params, i)
        if harness.overlap is not None:
            harness.stepper.close()
        assert spoken == plain, (params.grammar, params.logit_bias)
        n_failed += "logit_bias" in plain[1]
    assert n_failed >= 3


def test_forced_tokens_are_never_banned_ones() -> None:
    """With log-probabilities nothing is forced, and without the same is said."""
    for banned in range(N_VOCAB - 1):
        params = {
            "temperature": 0.0,
            "max_tokens": 8,
            "grammar": Grammar("regex", "(ab|cd)efg"),
            "logit_bias": {banned: -100.0},
        }
        target = random_model(N_VOCAB, 4)
        forced = ask(Harness(N_VOCAB, target), SamplingParams(**params), 1)  # type: ignore[arg-type]
        drawn = ask(Harness(N_VOCAB, target), SamplingParams(logprobs=0, **params), 1)  # type: ignore[arg-type]
        assert forced == drawn
        assert banned not in forced[0]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(logit_bias=dict.fromkeys(range(N_VOCAB), -100.0)),
        SamplingParams(logit_bias=dict.fromkeys(range(N_VOCAB), -99.9999999)),
        SamplingParams(logit_bias={0: -100.0}, grammar=Grammar("regex", "a+")),
        SamplingParams(logit_bias={0: -100.0, 1: -100.0}, grammar=Grammar("regex", "[ab]c")),
    ],
)
def test_what_can_never_begin_is_refused_at_once(params: SamplingParams) -> None:
    with pytest.raises(RequestError, match="bans every token") as raised:
        Harness(N_VOCAB, random_model(N_VOCAB, 0)).submit(PROMPT, params)
    assert raised.value.param == "logit_bias"


@pytest.mark.parametrize(
    "fields",
    [
        {"min_p": 1.0},
        {"top_k": 1},
        {"top_p": 1e-6},
        {"typical_p": 0.01},
        {"xtc_probability": 1.0, "xtc_threshold": 0.0},
        {"dry_multiplier": 100.0},
        {"repetition_penalty": 2.0},
        {"presence_penalty": 2.0, "frequency_penalty": 2.0},
    ],
    ids=str,
)
def test_every_filter_leaves_a_token_of_those_that_grammar_and_bias_allow(fields: dict[str, Any]) -> None:
    for seed in range(6):
        bias = {token: (-100.0 if token % 2 else 100.0) for token in range(N_VOCAB)}
        grammar = Grammar("regex", "[a-h]{9}")
        params = SamplingParams(temperature=1.0, max_tokens=6, logit_bias=bias, grammar=grammar, **fields)
        harness = Harness(N_VOCAB, random_model(N_VOCAB, seed), random_model(N_VOCAB, seed, noise=1.0))
        tokens = harness.ask(PROMPT, params, seed=seed).tokens
        assert len(tokens) == 6
        assert all(token % 2 == 0 for token in tokens)


def test_a_refusal_on_the_way_forgets_nothing_that_others_may_use() -> None:
    engine = Harness(N_VOCAB, random_model(N_VOCAB, 3), n_ctx=128)
    prompt = PROMPT * 6
    params = SamplingParams(
        temperature=0.0, max_tokens=8, grammar=Grammar("regex", "[a-d]{2}ee"), logit_bias={4: -100.0}
    )
    assert "logit_bias" in engine.ask(prompt, params).failure.message
    engine.target.n_rows_fed.clear()
    engine.ask([*prompt, 1], SamplingParams(temperature=0.0, max_tokens=1))
    assert engine.target.n_rows_fed[0] <= 17
