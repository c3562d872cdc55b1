"""DRY: what goes on with a repetition loses, against a plain oracle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucebox.sampling import SamplingParams
from lucebox.sampling.dry import MAX_PENALTY, Repetitions
from lucebox.sampling.sampler import Sampler

SPELLINGS = [b"a", b"b", b"ab", b"\n", b"x:", b"<", b">", b""]


def spelling(token: int) -> bytes:
    return SPELLINGS[token]


def asked(**values: object) -> SamplingParams:
    return SamplingParams(dry_multiplier=0.8, **values)  # type: ignore[arg-type]


def penalties(params: SamplingParams, tokens: Sequence[int]) -> dict[int, float]:
    ids, values = Repetitions(params, spelling, tokens).penalties()
    return dict(zip(ids.tolist(), values.tolist(), strict=True))


def oracle(params: SamplingParams, tokens: Sequence[int]) -> dict[int, float]:
    """Byte by byte and match by match."""
    breakers = [s.encode() for s in params.dry_sequence_breakers]
    ends = np.cumsum([0, *(len(spelling(t)) for t in tokens)])
    text = b"".join(map(spelling, tokens))
    breaks = [
        any(text.endswith(s, 0, end) for s in breakers for end in range(ends[i] + 1, ends[i + 1] + 1))
        for i in range(len(tokens))
    ]
    if params.dry_penalty_last_n >= 0:
        first = max(0, len(tokens) - params.dry_penalty_last_n)
        tokens, breaks = tokens[first:], breaks[first:]
    n, longest = len(tokens), {}
    for i in range(1, n):
        length = 0
        while length < i and tokens[i - 1 - length] == tokens[n - 1 - length] and not breaks[n - 1 - length]:
            length += 1
        if length >= params.dry_allowed_length and not breaks[i]:
            longest[tokens[i]] = max(length, longest.get(tokens[i], 0))
    exponent = params.dry_allowed_length
    return {t: params.dry_multiplier * params.dry_base ** (m - exponent) for t, m in longest.items()}


@given(
    st.lists(st.integers(0, 7), max_size=40) | st.lists(st.integers(0, 1), max_size=40),
    st.sampled_from([(), (":",), ("\n", ":"), ("ab", "<>"), ("b\n",)]),
    st.integers(1, 4),
    st.sampled_from([-1, 0, 1, 5, 20, 100]),
)
def test_penalties(tokens: list[int], breakers: tuple[str, ...], allowed: int, last_n: int) -> None:
    params = asked(dry_sequence_breakers=breakers, dry_allowed_length=allowed, dry_penalty_last_n=last_n)
    assert penalties(params, tokens) == pytest.approx(oracle(params, tokens))


def test_the_longer_the_repetition_the_dearer() -> None:
    params = asked(dry_sequence_breakers=(), dry_base=2.0)
    assert penalties(params, [0, 1, 2, 5, 1, 2]) == pytest.approx({5: 0.8})
    assert penalties(params, [0, 1, 2, 5, 6, 0, 1, 2]) == pytest.approx({5: 1.6})
    assert penalties(params, [0, 1, 2, 5, 6, 1]) == {}


def test_a_breaker_may_be_spread_over_tokens() -> None:
    params = asked(dry_sequence_breakers=("<>",), dry_allowed_length=1)
    assert penalties(params, [0, 5, 6, 1, 0, 5, 6]) == {}  # "<" and ">" end it, "a" would be a repetition
    assert penalties(params, [0, 5, 1, 0, 5]) == pytest.approx({1: 0.8 * 1.75})


def test_no_penalty_is_infinite() -> None:
    params = asked(dry_sequence_breakers=(), dry_base=100.0)
    assert penalties(params, [0] * 500) == pytest.approx({0: MAX_PENALTY})


@given(st.lists(st.integers(0, 7), max_size=12), st.lists(st.integers(0, 7), max_size=6))
def test_extra_tokens_count_as_if_they_were_committed(text: list[int], extra: list[int]) -> None:
    params = asked(dry_allowed_length=1, dry_sequence_breakers=("ab", "\n"))
    row = np.linspace(-1, 1, 8, dtype=np.float32)

    def sampler(generated: Sequence[int]) -> Sampler:
        return Sampler(params, 8, [0, 1, 3, 0, 1], generated, token_bytes=spelling)

    once, whole = sampler(text), sampler([*text, *extra])
    before = once.law(row).dense()
    assert np.array_equal(once.law(row, extra).dense(), whole.law(row).dense())
    assert np.array_equal(once.ahead(extra).law(row).dense(), whole.law(row).dense())
    assert np.array_equal(once.law(row).dense(), before)  # and are forgotten again
    assert once.argmax(row, extra) == whole.law(row).argmax()
    once.commit(extra)
    assert np.array_equal(once.law(row).dense(), whole.law(row).dense())


def test_the_text_grows() -> None:
    params = asked(dry_sequence_breakers=())
    grown = Repetitions(params, spelling, [0, 1])
    for _ in range(1200):
        grown.append([0, 1])
    assert grown.penalties()[0].tolist() == [0]
    with grown.extended([0] * 3000):
        assert grown.penalties()[1].tolist() == [pytest.approx(MAX_PENALTY)]
    assert grown.penalties()[0].tolist() == [0]
