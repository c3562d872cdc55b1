"""Architectures against `transformers`: the same random weights, float32 keys and values, the same logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox import models
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support.oracle_models import CASES, N_CTX, N_VOCAB, Oracle, OracleCase

TOLERANCE = 1e-4
N_TOKENS = 120  # behind the sliding window and the original context of the scaled ropes


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Oracle, Runtime]]:
    case: OracleCase = request.param
    oracle = Oracle(case, Path(tmp_path_factory.mktemp("oracle")))
    with Runtime.load(
        oracle.path, device="CPU", n_threads=2, n_ctx=N_CTX, n_sequences=2, kv_type="f32"
    ) as runtime:
        yield oracle, runtime


def test_every_architecture_has_an_oracle() -> None:
    assert {case.arch for case in CASES} == set(models.names())


def test_prefill_then_decode_then_a_batch(pair: tuple[Oracle, Runtime]) -> None:
    oracle, runtime = pair
    tokens = _tokens(0)
    expected = oracle.logits(tokens)
    assert np.ptp(expected, axis=1).min() > 2, "logits so flat would agree by accident"
    got = [_append(runtime, 0, tokens[:77])]
    got += [_append(runtime, 0, tokens[i : i + 1]) for i in range(77, 90)]
    got += [_append(runtime, 0, tokens[90:97]), _append(runtime, 0, tokens[97:])]
    runtime.cache.release(0)
    _assert_close(np.concatenate(got), expected)


def test_prompt_in_silence_then_only_the_last_row(pair: tuple[Oracle, Runtime]) -> None:
    oracle, runtime = pair
    tokens = _tokens(1)
    runtime.forward(Rows.chain(0, tokens[:64], 0, want_last=Want.NOTHING))
    runtime.cache.commit(0, range(64))
    output = runtime.forward(Rows.chain(0, tokens[64:], 64))
    assert output.row_index.tolist() == [-1] * (N_TOKENS - 65) + [0]
    logits = output.logits.copy()
    runtime.cache.commit(0, range(N_TOKENS - 64))
    runtime.cache.release(0)
    _assert_close(logits, oracle.logits(tokens)[-1:])


def test_two_sequences_in_one_batch(pair: tuple[Oracle, Runtime]) -> None:
    oracle, runtime = pair
    first, second = _tokens(2)[:50], _tokens(3)[:41]
    for start, stop in ((0, 30), (30, 33), (33, 50)):
        a, b = first[start:stop], second[start : min(stop, 41)]
        rows = [Rows.chain(0, a, start, want_all=Want.LOGITS), Rows.chain(1, b, start, want_all=Want.LOGITS)]
        logits = runtime.forward(Rows.concatenate(rows)).logits.copy()
        runtime.cache.commit(0, range(len(a)))
        runtime.cache.commit(1, range(len(a), len(a) + len(b)))
        _assert_close(logits[: len(a)], oracle.logits(first[:stop])[start:])
        _assert_close(logits[len(a) :], oracle.logits(second[:stop])[start:])
    for sequence in (0, 1):
        runtime.cache.release(sequence)
    runtime.cache.check_integrity()


def test_a_tree(pair: tuple[Oracle, Runtime]) -> None:
    """Each row is the end of a text of its own: the prompt and the row's ancestors."""
    oracle, runtime = pair
    prompt, tokens = _tokens(4)[:40], _tokens(5)[:11]
    parents = [-1, -1, 0, 0, 1, 2, 2, 3, 5, 5, 8]
    _append(runtime, 0, prompt)
    logits = runtime.forward(Rows.tree(0, tokens, parents, len(prompt))).logits.copy()
    runtime.cache.release(0)
    for i, got in enumerate(logits):
        path = [i]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        text = [*prompt, *(tokens[row] for row in path)]
        _assert_close(got[None], oracle.logits(text)[-1:])


def _tokens(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, N_VOCAB, N_TOKENS).tolist()


def _append(runtime: Runtime, sequence: int, tokens: list[int]) -> NDArray[np.float32]:
    rows = Rows.chain(sequence, tokens, runtime.cache.length(sequence), want_all=Want.LOGITS)
    logits = runtime.forward(rows).logits.copy()
    runtime.cache.commit(sequence, range(len(tokens)))
    return logits


def _assert_close(got: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert got.shape == expected.shape
    assert float(np.abs(got - expected).max()) <= TOLERANCE
