"""Log-probabilities are the model's own, whatever the request's sampler does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lucebox.errors import LogitsError
from lucebox.sampling.logprobs import logprobs


def test_against_plain_python() -> None:
    row = np.random.default_rng(0).normal(0, 3, 500).astype(np.float32)
    total = math.log(math.fsum(math.exp(float(z)) for z in row))
    expected = {i: float(z) - total for i, z in enumerate(row)}
    chosen, likeliest = logprobs(row, 42, 5)
    assert chosen == pytest.approx(expected[42], abs=1e-5)
    assert [i for i, _ in likeliest] == sorted(expected, key=lambda i: -expected[i])[:5]
    assert [p for _, p in likeliest] == pytest.approx([expected[i] for i, _ in likeliest], abs=1e-5)


def test_ties_and_counts() -> None:
    row = np.zeros(10, np.float32)
    assert [i for i, _ in logprobs(row, 0, 3)[1]] == [0, 1, 2]
    assert logprobs(row, 9, 0) == (pytest.approx(-math.log(10)), [])
    assert len(logprobs(row, 9, 20)[1]) == 10


def test_nan_is_an_error() -> None:
    with pytest.raises(LogitsError):
        logprobs(np.array([0.0, np.nan], np.float32), 0, 1)
