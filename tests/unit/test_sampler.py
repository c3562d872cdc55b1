"""The sampler chain against a plain float64 oracle, one parameter at a time and all together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lucebox.core import Distribution, Float32Array
from lucebox.errors import LogitsError, NoTokenError
from lucebox.sampling import SamplingParams
from lucebox.sampling.draw import sample
from lucebox.sampling.history import TokenHistory
from lucebox.sampling.random import Purpose, RoundRandom
from lucebox.sampling.sampler import Sampler

N_VOCAB = 40
PROMPT, GENERATED = [3, 3, 5, 7], [7, 8, 8, 8]


def logits(seed: int = 0) -> Float32Array:
    return np.random.default_rng(seed).normal(0, 2, N_VOCAB).astype(np.float32)


def oracle(
    row: Float32Array, params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]
) -> list[float]:
    """The law in plain Python: probabilities of all tokens."""
    z = [float(x) for x in row]
    for token, bias in params.logit_bias.items():
        z[token] = -math.inf if bias == -100 else z[token] + bias
    for token in {*prompt, *generated}:
        r = params.repetition_penalty
        z[token] = z[token] / r if z[token] > 0 else z[token] * r
        z[token] -= params.frequency_penalty * list(generated).count(token)
        z[token] -= params.presence_penalty * (token in generated)
    if params.temperature == 0:
        return [float(i == z.index(max(z))) for i in range(len(z))]
    weights = [math.exp((x - max(z)) / params.temperature) for x in z]
    likeliest = sorted(range(len(z)), key=lambda i: (-weights[i], i))
    likeliest = [i for i in likeliest if weights[i] > 0 and weights[i] >= params.min_p]
    if params.top_k:
        likeliest = likeliest[: params.top_k]
    if params.typical_p < 1:
        total = sum(weights[i] for i in likeliest)
        surprise = {i: -math.log(weights[i] / total) for i in likeliest}
        entropy = sum(weights[i] / total * surprise[i] for i in likeliest)
        typical, cumulated = [], 0.0
        for i in sorted(likeliest, key=lambda i: abs(surprise[i] - entropy)):
            if cumulated >= params.typical_p * total:
                break
            typical.append(i)
            cumulated += weights[i]
        likeliest = [i for i in likeliest if i in typical]
    total, kept, cumulated = sum(weights[i] for i in likeliest), [], 0.0
    for i in likeliest:
        if params.top_p < 1 and cumulated >= params.top_p * total:
            break
        kept.append(i)
        cumulated += weights[i]
    return [weights[i] / cumulated if i in kept else 0.0 for i in range(len(z))]


def assert_law(
    params: SamplingParams,
    row: Float32Array,
    prompt: Sequence[int] = PROMPT,
    generated: Sequence[int] = GENERATED,
) -> Distribution:
    before = row.copy()
    law = Sampler(params, N_VOCAB, prompt, generated).law(row)
    assert np.array_equal(row, before)
    expected = oracle(row, params, prompt, generated)
    np.testing.assert_allclose(law.dense(), expected, rtol=2e-5, atol=1e-12)
    return law


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.3),
        SamplingParams(temperature=3.0),
        SamplingParams(top_k=1),
        SamplingParams(top_k=5),
        SamplingParams(top_k=1000),
        SamplingParams(top_p=0.01),
        SamplingParams(top_p=0.9),
        SamplingParams(min_p=0.1),
        SamplingParams(min_p=1.0),
        SamplingParams(typical_p=0.2),
        SamplingParams(typical_p=0.9),
        SamplingParams(typical_p=0.9, top_p=0.8, top_k=20),
        SamplingParams(repetition_penalty=1.7),
        SamplingParams(repetition_penalty=0.6),
        SamplingParams(frequency_penalty=0.9),
        SamplingParams(frequency_penalty=-2.0),
        SamplingParams(presence_penalty=1.5),
        SamplingParams(presence_penalty=-0.5),
        SamplingParams(logit_bias={3: 2.5, 9: -1.5}),
        SamplingParams(logit_bias={3: 4.0}, repetition_penalty=2.0, temperature=0.5, min_p=0.05),
        SamplingParams(temperature=0.0, frequency_penalty=2.0, logit_bias={8: 3.0}),
    ],
)
def test_each_parameter(params: SamplingParams) -> None:
    for seed in range(5):
        assert_law(params, logits(seed))


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.5, 0.8, 1.0, 1.7]),
        top_k=st.sampled_from([0, 1, 4, 10]),
        top_p=st.sampled_from([0.31, 0.93, 1.0]),
        min_p=st.sampled_from([0.0, 0.0137]),
        typical_p=st.sampled_from([0.2713, 0.8519, 1.0]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
        frequency_penalty=st.sampled_from([0.0, 0.4]),
        presence_penalty=st.sampled_from([0.0, 0.7]),
        logit_bias=st.dictionaries(
            st.integers(0, N_VOCAB - 1), st.sampled_from([-100.0, -1.0, 5.0]), max_size=3
        ),
    ),
    st.lists(st.integers(0, N_VOCAB - 1), max_size=6),
    st.lists(st.integers(0, N_VOCAB - 1), max_size=6),
    st.integers(0, 50),
)
def test_whole_chain(params: SamplingParams, prompt: list[int], generated: list[int], seed: int) -> None:
    assert_law(params, logits(seed), prompt, generated)


def test_filtered_laws_are_sparse_and_unfiltered_ones_dense() -> None:
    assert assert_law(SamplingParams(), logits()).ids is None
    for params in [SamplingParams(top_k=3), SamplingParams(top_p=0.9), SamplingParams(min_p=0.1)]:
        ids = assert_law(params, logits()).ids
        assert ids is not None
        assert (np.diff(ids) > 0).all()


def test_temperature_zero_takes_the_lowest_id_of_a_tie() -> None:
    row = np.zeros(N_VOCAB, np.float32)
    row[[9, 30]] = 1.0
    assert Sampler(SamplingParams(temperature=0.0), N_VOCAB, []).law(row).argmax() == 9


def test_temperatures_close_to_zero_tend_to_the_argmax() -> None:
    for temperature in (1e-3, 1e-30, 1e-300):
        for params in [
            SamplingParams(temperature=temperature),
            SamplingParams(temperature=temperature, top_k=5),
        ]:
            law = Sampler(params, N_VOCAB, []).law(logits())
            assert law.prob(int(np.argmax(logits()))) == pytest.approx(1.0)


def test_biases_at_their_limits_ban_and_force() -> None:
    for temperature in (0.0, 1.0, 100.0):
        best = int(np.argmax(logits()))
        params = SamplingParams(temperature=temperature, logit_bias={best: -100.0})
        assert Sampler(params, N_VOCAB, []).law(logits()).prob(best) == 0.0
    params = SamplingParams(logit_bias={11: 100.0})
    assert Sampler(params, N_VOCAB, []).law(logits()).prob(11) == pytest.approx(1.0)


def test_what_is_counted() -> None:
    """Frequency and presence: generated tokens. Repetition: the prompt too."""
    row = np.ones(N_VOCAB, np.float32)

    def odds(token: int, **penalty: float) -> float:
        law = Sampler(SamplingParams(**penalty), N_VOCAB, PROMPT, GENERATED).law(row)
        return math.log(law.prob(token) / law.prob(0))

    assert [odds(t, frequency_penalty=0.5) for t in (3, 5, 7, 8)] == pytest.approx(
        [0, 0, -0.5, -1.5], abs=1e-5
    )
    assert [odds(t, presence_penalty=0.5) for t in (3, 5, 7, 8)] == pytest.approx(
        [0, 0, -0.5, -0.5], abs=1e-5
    )
    assert [odds(t, repetition_penalty=2.0) for t in (3, 5, 7, 8)] == pytest.approx([-0.5] * 4, abs=1e-5)


ALL_PENALTIES = SamplingParams(repetition_penalty=1.4, frequency_penalty=0.6, presence_penalty=0.3)


@given(st.lists(st.integers(0, N_VOCAB - 1), max_size=8), st.lists(st.integers(0, N_VOCAB - 1), max_size=8))
def test_extra_tokens_count_as_if_they_were_committed(extra: list[int], later: list[int]) -> None:
    sampler = Sampler(ALL_PENALTIES, N_VOCAB, PROMPT)
    plain = sampler.law(logits()).dense()
    committed = Sampler(ALL_PENALTIES, N_VOCAB, PROMPT, extra).law(logits()).dense()
    assert np.array_equal(sampler.law(logits(), extra).dense(), committed)
    assert np.array_equal(sampler.law(logits()).dense(), plain)  # and are forgotten again
    sampler.commit(later)
    resumed = Sampler(ALL_PENALTIES, N_VOCAB, PROMPT, later)
    assert np.array_equal(sampler.law(logits(), extra).dense(), resumed.law(logits(), extra).dense())


def test_extra_tokens_are_forgotten_after_an_error() -> None:
    sampler = Sampler(ALL_PENALTIES, N_VOCAB, PROMPT)
    expected = sampler.law(logits()).dense()
    with pytest.raises(LogitsError):
        sampler.law(np.full(N_VOCAB, np.nan, np.float32), [1, 2, 2])
    with pytest.raises(IndexError):
        sampler.law(logits(), [1, N_VOCAB])
    assert np.array_equal(sampler.law(logits()).dense(), expected)


def test_history_grows() -> None:
    history = TokenHistory([1, 1], [2])
    history.append([*range(5000), 4999])
    assert len(history.ids) == 5000
    assert history.counts[history.ids.tolist().index(4999)] == 2
    assert history.counts[history.ids.tolist().index(1)] == 1


@pytest.mark.parametrize(
    "params", [SamplingParams(), SamplingParams(temperature=0.0), SamplingParams(top_k=4)]
)
def test_a_broken_model_is_not_silent(params: SamplingParams) -> None:
    row = logits()
    row[17] = np.nan
    with pytest.raises(LogitsError, match=r"NaN.*hash"):
        Sampler(params, N_VOCAB, []).law(row)
    with pytest.raises(LogitsError, match="no token"):
        Sampler(params, N_VOCAB, []).law(np.full(N_VOCAB, -np.inf, np.float32))


@pytest.mark.parametrize(
    "params", [SamplingParams(), SamplingParams(temperature=0.0), SamplingParams(top_k=4)]
)
def test_a_request_that_bans_all_that_a_sound_model_knows_is_to_blame(params: SamplingParams) -> None:
    banned = replace(params, logit_bias={0: -100.0})
    with pytest.raises(NoTokenError, match="bans every token") as raised:
        Sampler(banned, 1, []).law(np.zeros(1, np.float32))
    assert raised.value.param == "logit_bias"
    with pytest.raises(LogitsError):
        Sampler(banned, 1, []).law(np.full(1, np.nan, np.float32))


def test_rows_of_a_batch_may_be_views() -> None:
    rows = np.stack([logits(0), logits(1)])
    sampler = Sampler(SamplingParams(top_k=3), N_VOCAB, [])
    assert np.array_equal(sampler.law(rows[1]).probs, sampler.law(logits(1)).probs)
    rows.flags.writeable = False
    assert np.array_equal(sampler.law(rows[1]).probs, sampler.law(logits(1)).probs)


def test_sample_follows_the_law() -> None:
    law = Sampler(SamplingParams(temperature=0.7, top_k=6), N_VOCAB, []).law(logits())
    n = 10_000
    drawn = np.bincount([sample(law, (i + 0.5) / n) for i in range(n)], minlength=N_VOCAB) / n
    np.testing.assert_allclose(drawn, law.dense(), atol=1.01 / n)


def test_argmax_is_the_law_s_without_the_law() -> None:
    rng = np.random.default_rng(4)
    params = SamplingParams(temperature=0.7, top_k=5, frequency_penalty=2.0, logit_bias={3: 1.0})
    sampler = Sampler(params, 30, [1, 2, 3], [4, 4])
    for _ in range(50):
        logits = (2.0 * rng.standard_normal(30)).astype(np.float32)
        extra = rng.integers(0, 30, 3).tolist()
        assert sampler.argmax(logits, extra) == sampler.law(logits, extra).argmax()


def test_temperature_zero_knows_nothing_atypical() -> None:
    params = SamplingParams(temperature=0.0, typical_p=0.01, xtc_probability=1.0, xtc_threshold=0.0)
    sampler = Sampler(params, N_VOCAB, [])
    best = int(np.argmax(logits()))
    assert sampler.law(logits()).dense()[best] == 1.0
    assert sampler.argmax(logits()) == best
    assert sampler.law(logits(), uncollapsed=True).argmax() == best


def test_argmax_is_the_law_s_where_the_likeliest_is_left_out() -> None:
    for params in (
        SamplingParams(typical_p=0.3),
        SamplingParams(xtc_probability=1.0, xtc_threshold=0.05),
        SamplingParams(xtc_probability=0.5, xtc_threshold=0.05),
    ):
        sampler = Sampler(params, N_VOCAB, [1], seed=3)
        rows = [logits(seed) for seed in range(20)]
        assert [sampler.argmax(row, [5]) for row in rows] == [sampler.law(row, [5]).argmax() for row in rows]
        assert any(sampler.argmax(row) != int(np.argmax(row)) for row in rows)


XTC = SamplingParams(xtc_probability=0.5, xtc_threshold=0.02)


def test_xtc_strikes_by_seed_and_place_alone() -> None:
    """The same law at a place, whatever rounds led there, and whoever asks: what keeps speculation exact."""
    row, text = logits(), [4, 9, 2, 2, 7, 1, 30, 3]
    alone = [Sampler(XTC, N_VOCAB, PROMPT, text[:n], seed=11).law(row).dense() for n in range(9)]
    sampler = Sampler(XTC, N_VOCAB, PROMPT, seed=11)
    for n in range(9):
        assert np.array_equal(sampler.law(row, text[:n]).dense(), alone[n])
        assert np.array_equal(sampler.ahead(text[:n]).law(row).dense(), alone[n])
    sampler.commit(text[:5])
    assert np.array_equal(sampler.law(row, text[5:7]).dense(), alone[7])
    assert len({law.tobytes() for law in alone}) == 2  # struck or not, and both occur


def test_xtc_strikes_as_often_as_asked() -> None:
    params = SamplingParams(xtc_probability=0.3, xtc_threshold=0.02)
    best = int(np.argmax(logits()))
    struck = sum(
        Sampler(params, N_VOCAB, [0] * place, seed=seed).law(logits()).prob(best) == 0.0
        for seed in range(40)
        for place in range(50)
    )
    assert abs(struck / 2000 - 0.3) < 0.04


def test_xtc_does_not_use_the_numbers_of_anybody_else() -> None:
    """Were the strike's number the draw's too, a struck place would always draw from one end of the law."""
    random = RoundRandom(5, 7)
    draws = {random.at_position(7, purpose) for purpose in Purpose}
    assert len(draws) == len(Purpose)
