"""The exact joint law of a model's first tokens, and how well a sample of runs agrees with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from msgspec.structs import replace
from scipy import stats

from lucebox.core import Float32Array
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.sampler import Sampler

MIN_EXPECTED = 5.0


def joint_law(
    logits_of: Callable[[tuple[int, ...]], Float32Array],
    n_vocab: int,
    prompt: Sequence[int],
    params: SamplingParams,
    n_tokens: int,
) -> dict[tuple[int, ...], float]:
    """The probability of every continuation of `n_tokens` tokens, by enumeration of the chain's laws.

    Over all seeds: XTC strikes a place with its probability, whatever came before. DRY knows no breakers.
    """
    strikes = params.xtc_probability
    samplers = [
        (weight, Sampler(replace(params, xtc_probability=p), n_vocab, prompt, token_bytes=lambda token: b""))
        for weight, p in ((1.0 - strikes, 0.0), (strikes, 1.0))
        if weight > 0.0
    ]
    joint = {(): 1.0}
    for _ in range(n_tokens):
        longer: dict[tuple[int, ...], float] = {}
        for path, weight in joint.items():
            if weight == 0.0:
                continue
            law = np.zeros(n_vocab)
            for share, sampler in samplers:
                probs = sampler.law(logits_of((*prompt, *path)), path).dense().astype(np.float64)
                law += share * probs / probs.sum()
            for token in range(n_vocab):
                longer[(*path, token)] = weight * law[token]
        joint = longer
    return joint


def chi_squared_p(
    counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float], n_vocab: int, n_tokens: int
) -> float:
    """The p-value of Pearson's test; rare continuations are pooled. Zero if an impossible one was seen."""
    n_runs = counts.total()
    observed, expected = [], []
    rest_observed, rest_expected = 0, 0.0
    for path in product(range(n_vocab), repeat=n_tokens):
        p, n = law.get(path, 0.0), counts[path]
        if p == 0.0:
            if n:
                return 0.0
        elif p * n_runs < MIN_EXPECTED:
            rest_observed += n
            rest_expected += p * n_runs
        else:
            observed.append(n)
            expected.append(p * n_runs)
    if rest_expected >= MIN_EXPECTED:
        observed.append(rest_observed)
        expected.append(rest_expected)
    scale = sum(observed) / sum(expected)
    return float(stats.chisquare(observed, np.array(expected) * scale).pvalue)
