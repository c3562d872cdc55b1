"""Traces: what is kept, what is read back, and what is refused."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucebox import acceptance
from lucebox.core import Distribution, Draft
from lucebox.drafters.base import Drafter, DraftRequest
from lucebox.errors import ConfigError, TraceError
from lucebox.research import KeptLaw, Trace, TraceHeader, Truncation
from lucebox.research.kept_law import keep
from lucebox.research.recorder import Recorder
from lucebox.research.trace_file import MAGIC, VERSION, TraceWriter
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import RoundRandom
from tests.support.drafting import drafter_context
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 12
EXACT = Truncation(exact=True)
FEW = Truncation(top_k=4, mass=0.8)
PARAMS = SamplingParams(temperature=1.0, max_tokens=24, ignore_eos=True)


def header(truncation: Truncation, params: SamplingParams = PARAMS) -> TraceHeader:
    return TraceHeader(
        target="target",
        draft="draft",
        n_vocab=N_VOCAB,
        acceptance="token",
        draft_length="fixed:n=3",
        drafters=("model",),
        params=params,
        truncation=truncation,
    )


def recorded(
    path: Path, truncation: Truncation, params: SamplingParams = PARAMS, strategy: str = "token"
) -> tuple[Trace, Harness]:
    """A trace of two requests over fake models, and the engine that made it."""
    with TraceWriter(path, header(truncation, params)) as writer:
        harness = Harness(
            N_VOCAB,
            random_model(N_VOCAB, 1),
            random_model(N_VOCAB, 1, noise=1.0),
            draft_length="fixed:n=3",
            acceptance=strategy,
            n_parallel=2,
            on_round=Recorder(writer, truncation),
        )
        harness.submit([1, 2, 3], params, seed=5)
        harness.submit([4, 5], params, seed=6)
        harness.run()
    return Trace.read(path), harness


def test_a_trace_tells_the_run(tmp_path: Path) -> None:
    trace, harness = recorded(tmp_path / "run.trace", EXACT)
    assert trace.header == header(EXACT)
    requests = sorted((r.id, r.prompt, r.seed) for r in trace.requests)  # the shorter prompt is done first
    assert requests == [("r0", [1, 2, 3], 5), ("r1", [4, 5], 6)]
    for request in trace.requests:
        answer = harness.answers[request.id]
        assert trace.answer(request.id)[: len(answer.tokens)] == answer.tokens
        rounds = [r for r in trace.rounds if r.request == request.id]
        assert len(rounds) == answer.finish.timings.n_rounds
        assert sum(len(r) for r in rounds) == answer.finish.timings.draft_n
        n_prefix = len(request.prompt)
        for r in rounds:
            assert r.n_prefix == n_prefix
            n_prefix += len(r.verdict.path) + 1
            assert (r.drafter, r.n_rows - len(r)) == ("model" if len(r) else "", 1) or r is rounds[0]
            assert r.verify_ms > 0
            assert (r.draft_ms > 0) == (len(r) > 0)


def test_laws_are_those_that_judged(tmp_path: Path) -> None:
    """Judged again with the seed of the run, every round ends as it did."""
    trace, _ = recorded(tmp_path / "run.trace", EXACT)
    seeds = {request.id: request.seed for request in trace.requests}
    assert trace.drafted
    for r in trace.rounds:
        assert r.is_exact
        random = RoundRandom(seeds[r.request], r.n_prefix)
        assert (
            acceptance.create("token").verify(r.draft(), [law.lumped() for law in r.p], random) == r.verdict
        )


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    exact, _ = recorded(tmp_path / "exact.trace", EXACT)
    short, _ = recorded(tmp_path / "short.trace", FEW)
    assert not all(r.is_exact for r in short.rounds)
    for full, kept in zip(exact.rounds, short.rounds, strict=True):
        pairs = [(full.p[row], kept.p[row], kept.tokens[kept.parents == row]) for row in range(len(full) + 1)]
        pairs += [(full.q[i], kept.q[i], kept.tokens[i : i + 1]) for i in range(len(full))]
        for whole, law, drafted in pairs:
            assert whole is not None
            assert law is not None
            ids = law.known.ids
            assert ids is not None
            assert set(drafted.tolist()) <= set(ids.tolist())
            dense = whole.known.dense()
            np.testing.assert_array_equal(law.known.probs, dense[ids])
            assert law.rest == pytest.approx(1.0 - float(dense[ids].sum()), abs=1e-6)


def test_a_seeded_argmax_trace_is_deterministic_and_small(tmp_path: Path) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    trace, _ = recorded(tmp_path / "greedy.trace", EXACT, params, "auto")
    assert all(r.has_q for r in trace.rounds)
    assert all(q is None for r in trace.rounds for q in r.q)
    assert all(law.known.ids is not None and len(law.known.ids) == 1 for r in trace.rounds for law in r.p)


def test_strategies_without_q_leave_a_mark(tmp_path: Path) -> None:
    class Sampling(Drafter):
        def propose(self, requests: list[DraftRequest]) -> list[Draft]:  # type: ignore[override]
            return [Draft.chain([1, 2], [None, None]) for _ in requests]

        def release(self, sequence: int) -> None: ...

    with TraceWriter(tmp_path / "t", header(EXACT)) as writer:
        harness = Harness(
            N_VOCAB,
            random_model(N_VOCAB, 1),
            acceptance="gumbel",
            drafter=Sampling(drafter_context(N_VOCAB)),
            on_round=Recorder(writer, EXACT),
        )
        harness.ask([1], PARAMS)
    trace = Trace.read(tmp_path / "t")
    assert trace.drafted
    assert not any(r.has_q for r in trace.rounds)


laws = st.lists(st.integers(0, 20), min_size=2, max_size=9).filter(any)


@given(laws, laws, st.booleans(), st.booleans(), st.integers(1, 9), st.floats(0.1, 1.0), st.data())
def test_kept_laws_agree_with_the_whole(
    p: list[int], q: list[int], sparse_p: bool, sparse_q: bool, top_k: int, mass: float, data: st.DataObject
) -> None:
    n = max(len(p), len(q))
    drafted = data.draw(st.lists(st.integers(0, n - 1), max_size=3))
    whole = [distribution(p, n, sparse_p), distribution(q, n, sparse_q)]
    kept_p, kept_qs = keep(whole[0], [whole[1]], drafted, Truncation(top_k=top_k, mass=mass))
    assert kept_qs[0] is not None
    for law, kept in zip(whole, (kept_p, kept_qs[0]), strict=True):
        held = [token for token in range(n) if kept.holds(token)]
        assert set(drafted) <= set(held)
        assert [kept.prob(t) for t in held] == [law.prob(t) for t in held]
        assert kept.rest == pytest.approx(sum(law.prob(t) for t in range(n) if t not in held), abs=1e-6)
        lumped = kept.lumped()
        assert lumped.dense().sum() == pytest.approx(1.0, abs=1e-5)
        assert [lumped.prob(t) for t in held] == [law.prob(t) for t in held]
        if sum(law.prob(t) for t in held) < mass - 1e-6:
            assert len(held) >= min(top_k, np.count_nonzero(law.dense()))


def distribution(weights: list[int], n: int, sparse: bool) -> Distribution:
    probs = np.zeros(n, np.float32)
    probs[: len(weights)] = np.array(weights) / sum(weights)
    if not sparse:
        return Distribution(n, probs)
    ids = np.flatnonzero(probs).astype(np.int32)
    return Distribution(n, probs[ids], ids)


def test_a_token_that_was_left_out_cannot_be_asked_for() -> None:
    law = KeptLaw(Distribution(4, np.array([0.5], np.float32), np.array([2], np.int32)), 0.5)
    with pytest.raises(AssertionError, match="left out"):
        law.prob(1)


@pytest.mark.parametrize("truncation", [Truncation(top_k=0), Truncation(mass=0.0), Truncation(mass=1.5)])
def test_impossible_truncations_are_refused(truncation: Truncation) -> None:
    with pytest.raises(ConfigError):
        truncation.validate()


def test_a_run_that_fails_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.trace"
    with pytest.raises(AttributeError), TraceWriter(path, header(EXACT)) as writer:
        writer.write(None)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("trace") / "run.trace"
    recorded(path, FEW)
    return path.read_bytes()


def test_damage_is_noticed(intact: bytes, tmp_path: Path) -> None:
    """Cut off anywhere, or with bits of the first frames changed; but for those that pad zlib's streams."""
    path = tmp_path / "damaged.trace"
    for n in (0, 5, 8, 11, 100, len(intact) // 2, len(intact) - 30, len(intact) - 1):
        path.write_bytes(intact[:n])
        with pytest.raises(TraceError):
            Trace.read(path)
    for i in range(0, 600, 7):
        damaged = intact[:i] + bytes([intact[i] ^ 0x10]) + intact[i + 1 :]
        path.write_bytes(damaged)
        try:
            Trace.read(path)
        except TraceError:
            continue
        assert list(frames(damaged)) == list(frames(intact))
    path.write_bytes(intact + b"more")
    with pytest.raises(TraceError):
        Trace.read(path)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    for content in (data, MAGIC + bytes([VERSION]) + data):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            with pytest.raises(TraceError):
                Trace.read(file.name)


def test_another_version_is_named(intact: bytes, tmp_path: Path) -> None:
    path = tmp_path / "new.trace"
    path.write_bytes(MAGIC + bytes([VERSION + 1]) + intact[8:])
    with pytest.raises(TraceError, match=f"version {VERSION + 1}"):
        Trace.read(path)


def frames(data: bytes) -> Iterator[dict[str, object]]:
    """The records of a file, decoded without checks."""
    i = len(MAGIC) + 1
    while i < len(data):
        n = int.from_bytes(data[i : i + 4], "little")
        yield msgspec.msgpack.decode(zlib.decompress(data[i + 8 : i + 8 + n]))
        i += 8 + n


def written(records: list[dict[str, object]]) -> bytes:
    out = MAGIC + bytes([VERSION])
    for record in records:
        raw = msgspec.msgpack.encode(record)
        packed = zlib.compress(raw)
        out += len(packed).to_bytes(4, "little") + len(raw).to_bytes(4, "little") + packed
    return out


@pytest.mark.parametrize(
    "change",
    [
        {"n_prefix": 0},
        {"n_prefix": 2**40},
        {"tokens": b"\xff\xff\xff\x7f" * 3},
        {"tokens": b"\0\0\0"},
        {"parents": b"\0\0\0\0\2\0\0\0\2\0\0\0"},
        {"path": (2, 1, 0)},
        {"path": (7,)},
        {"row": 3, "path": ()},
        {"token": N_VOCAB},
        {"request": "nobody"},
        {"q": []},
        {"p": []},
        {"surprise": 1},
    ],
)
def test_rounds_that_contradict_themselves_are_refused(
    intact: bytes, tmp_path: Path, change: dict[str, object]
) -> None:
    records = list(frames(intact))
    path = tmp_path / "odd.trace"
    path.write_bytes(written(records))
    assert len(Trace.read(path).rounds) == sum(record["type"] == "round" for record in records)
    first = next(r for r in records if r["type"] == "round" and r["tokens"])
    first.update(change)
    path.write_bytes(written(records))
    with pytest.raises(TraceError):
        Trace.read(path)


@pytest.mark.parametrize(
    "law",
    [
        [None, b"\0\0\0\0", 1.0],
        [b"\1\0\0\0\0\0\0\0", b"\0\0\0\x3f\0\0\0\x3f", 0.0],
        [b"\1\0\0\0", b"\0\0\0\x3f\0\0\0\x3f", 0.0],
        [b"\1\0\0\0\2\0\0\0", b"\0\0\xc0\x7f\0\0\0\x3f", 0.5],
        [b"\1\0\0\0\2\0\0\0", b"\0\0\0\x3f\0\0\0\x3f", 0.5],
        [b"\1\0\0\0\x0c\0\0\0", b"\0\0\0\x3f\0\0\0\x3f", 0.0],
    ],
    ids=["dense and cut", "descending", "lengths", "nan", "too much", "beyond the vocabulary"],
)
def test_laws_that_are_none_are_refused(intact: bytes, tmp_path: Path, law: list[object]) -> None:
    records = list(frames(intact))
    plain = next(r for r in records if r["type"] == "round" and not r["tokens"])
    plain["p"] = [law]
    path = tmp_path / "odd.trace"
    path.write_bytes(written(records))
    with pytest.raises(TraceError, match="a law"):
        Trace.read(path)


def test_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(50_000_000), 9)
    path = tmp_path / "bomb.trace"
    for claim in (100, 2**30):
        sizes = len(packed).to_bytes(4, "little") + claim.to_bytes(4, "little")
        path.write_bytes(MAGIC + bytes([VERSION]) + sizes + packed)
        with pytest.raises(TraceError):
            Trace.read(path)
