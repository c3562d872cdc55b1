"""Sampling flags of `lucebox generate` and `lucebox chat`."""

from __future__ import annotations

import argparse

import pytest

from lucebox.cli import sampling
from lucebox.errors import RequestError
from lucebox.sampling import SamplingParams, SpeculativeParams

# Fields that have no flag of their own: they take more than a word, or are for programs.
WITHOUT_FLAG = {"logit_bias", "logprobs", "prompt_logprobs", "grammar"}


def params_of(*arguments: str) -> SamplingParams:
    parser = argparse.ArgumentParser()
    sampling.add_arguments(parser)
    return sampling.sampling_params(parser.parse_args(arguments))


def test_no_flag_sets_nothing() -> None:
    assert params_of() == SamplingParams()


def test_every_flag_reaches_the_sampler() -> None:
    wanted = SamplingParams(
        temperature=0.5,
        top_k=7,
        top_p=0.9,
        min_p=0.1,
        typical_p=0.8,
        xtc_probability=0.25,
        xtc_threshold=0.2,
        repetition_penalty=1.25,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        dry_multiplier=0.75,
        dry_base=2.0,
        dry_allowed_length=3,
        dry_penalty_last_n=64,
        dry_sequence_breakers=("x", "y z"),
        seed=5,
        max_tokens=9,
        stop=("a", "b"),
        ignore_eos=True,
        speculative=SpeculativeParams(enabled=False),
    )
    arguments = ["--no-draft", "--ignore-eos"]
    for name in SamplingParams.__struct_fields__:
        value = getattr(wanted, name)
        if name in {*WITHOUT_FLAG, "speculative", "ignore_eos"}:
            continue
        flag = {"dry_sequence_breakers": "dry_sequence_breaker"}.get(name, name)
        for item in value if isinstance(value, tuple) else [value]:
            arguments += ["--" + flag.replace("_", "-"), str(item)]
    assert params_of(*arguments) == wanted
    assert all(
        getattr(wanted, name) != getattr(SamplingParams(), name)
        for name in SamplingParams.__struct_fields__
        if name not in WITHOUT_FLAG
    )


def test_a_value_out_of_range_names_its_field() -> None:
    with pytest.raises(RequestError) as raised:
        params_of("--typical-p", "0")
    assert raised.value.param == "typical_p"
