from __future__ import annotations

import math
from typing import Any

import pytest

from lucebox.errors import RequestError
from lucebox.sampling.params import SamplingParams, SpeculativeParams

N_VOCAB = 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", 1e9),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", math.inf),
        ("top_k", -1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-300),  # would make logits infinite
        ("frequency_penalty", 2.1),
        ("presence_penalty", -2.1),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("max_tokens", -1),
        ("typical_p", 0.0),
        ("typical_p", 1.01),
        ("xtc_probability", -0.1),
        ("xtc_threshold", math.nan),
        ("dry_multiplier", -1.0),
        ("dry_base", 0.99),
        ("dry_allowed_length", 0),
        ("dry_penalty_last_n", -2),
        ("dry_sequence_breakers", ("a", "")),
        ("dry_sequence_breakers", ("a" * 65,)),
        ("dry_sequence_breakers", ("a",) * 65),
        ("prompt_logprobs", 21),
        ("logprobs", 21),
        ("stop", ("",)),
        ("stop", ("a",) * 17),
        ("logit_bias", {N_VOCAB: 0.0}),
        ("logit_bias", {-1: 0.0}),
        ("logit_bias", {0: 100.1}),
        ("logit_bias", {0: math.nan}),
        ("logit_bias", dict.fromkeys(range(N_VOCAB), -100.0)),
        ("speculative", {"drafter": "suffix"}),
        ("speculative", SpeculativeParams(drafter=5)),  # type: ignore[arg-type]
        ("speculative", SpeculativeParams(draft_length=4)),  # type: ignore[arg-type]
        ("speculative", SpeculativeParams(acceptance=["block"])),  # type: ignore[arg-type]
        ("speculative", SpeculativeParams(enabled="no")),  # type: ignore[arg-type]
    ],
)
def test_a_value_out_of_range_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value}).validate(N_VOCAB)
    assert caught.value.param == field
    assert field in str(caught.value)


@pytest.mark.parametrize(
    "extreme",
    [
        {"temperature": 100.0, "top_p": 5e-324, "min_p": 1.0, "top_k": 2**31 - 1},
        {"temperature": 5e-324, "repetition_penalty": 0.01, "seed": -(2**63)},
        {"seed": 2**64 - 1, "max_tokens": 2**31 - 1, "logprobs": 20, "stop": ("a",) * 16},
        {
            "max_tokens": 0,
            "prompt_logprobs": 20,
            "typical_p": 5e-324,
            "xtc_probability": 1.0,
            "xtc_threshold": 1.0,
        },
        {"dry_base": 100.0, "dry_multiplier": 100.0, "dry_allowed_length": 1, "dry_penalty_last_n": 0},
        {"logit_bias": {0: -100.0, 1: -100.0, 2: -99.0}},
    ],
)
def test_the_limits_themselves_are_allowed(extreme: dict[str, Any]) -> None:
    SamplingParams(**extreme).validate(N_VOCAB)
