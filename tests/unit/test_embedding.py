"""Texts that become vectors inside the engine: pooled as they are computed, beside all else that runs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox.config import Pooling
from lucebox.core import Float32Array
from lucebox.engine.messages import Embed, Embedded, Event, Message, StepEvent, is_last
from lucebox.engine.outbox import Outbox
from lucebox.errors import ContextLengthError, RequestError
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 12
N_CTX = 200
TARGET = random_model(N_VOCAB, 3)
POOLINGS: tuple[Pooling, ...] = ("mean", "last", "cls")


def text(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n).tolist()


def expected(tokens: list[int], pooling: Pooling) -> NDArray[np.float64]:
    states = np.array([TARGET(tuple(tokens[: i + 1])) for i in range(len(tokens))], np.float64)
    pooled = {"mean": states.mean(axis=0), "last": states[-1], "cls": states[0]}[pooling]
    return np.asarray(pooled / np.linalg.norm(pooled))


def vector(harness: Harness, id: str) -> Float32Array:
    (event,) = harness.answers[id].events
    assert isinstance(event, Embedded)
    return np.frombuffer(event.vector, "<f4")


def harness(n_parallel: int = 2, **options: object) -> Harness:
    return Harness(N_VOCAB, TARGET, n_ctx=N_CTX, n_parallel=n_parallel, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("n_tokens", [1, 2, 63, 64, 65, N_CTX])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_text_in_chunks_of_every_size(n_tokens: int, pooling: Pooling) -> None:
    engine, tokens = harness(), text(n_tokens)
    id = engine.embed(tokens, pooling)
    engine.run()
    np.testing.assert_allclose(vector(engine, id), expected(tokens, pooling), atol=1e-6)
    assert np.linalg.norm(vector(engine, id)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_shared_beginning_is_no_shortcut(pooling: Pooling) -> None:
    """The mean needs the states of all tokens, which the prefix cache does not have."""
    engine = harness(n_parallel=3)
    engine.ask([*text(50), 1], SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
    texts = [[*text(50), 1, *text(n, seed=n)] for n in (1, 40, 90, 7)]
    ids = [engine.embed(tokens, pooling) for tokens in texts]
    engine.run()
    for id, tokens in zip(ids, texts, strict=True):
        np.testing.assert_allclose(vector(engine, id), expected(tokens, pooling), atol=1e-6)


def test_answers_beside_it_stay_what_they_are_and_do_not_wait() -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    alone = harness().ask([1, 2, 3], greedy)
    draft = random_model(N_VOCAB, 3, noise=0.7)
    engine = harness(draft=draft)
    answer = engine.submit([1, 2, 3], greedy)
    engine.step()
    ids = [engine.embed(text(N_CTX, seed=i)) for i in range(4)]
    n_steps = 0
    while not isinstance(last := engine.answers[answer].events[-1], StepEvent) or last.finish is None:
        n_before = len(engine.answers[answer].events)
        engine.step()
        assert len(engine.answers[answer].events) == n_before + 1, "an answer waited for an embedding"
        n_steps += 1
    engine.run()
    assert engine.answers[answer].tokens == alone.tokens
    for i, id in enumerate(ids):
        tokens = text(N_CTX, seed=i)
        np.testing.assert_allclose(vector(engine, id), expected(tokens, "mean"), atol=1e-6)


@pytest.mark.parametrize("n_steps", [0, 1, 2])
def test_a_cancelled_text_frees_its_cells(n_steps: int) -> None:
    engine = harness(n_parallel=1)
    id = engine.embed(text(N_CTX))
    for _ in range(n_steps):
        engine.step()
    engine.cancel(id)
    (event,) = engine.answers[id].events
    assert isinstance(event, StepEvent)
    assert event.finish is not None
    assert event.finish.reason == "cancelled"
    assert engine.target.cache.n_free == engine.target.cache.n_cells
    again = engine.embed(text(5))
    engine.run()
    np.testing.assert_allclose(vector(engine, again), expected(text(5), "mean"), atol=1e-6)


def test_states_that_are_no_numbers_fail_one_text_alone() -> None:
    def broken(context: tuple[int, ...]) -> Float32Array:
        logits = TARGET(context)
        return logits * np.float32(np.nan) if context[0] == 7 else logits

    engine = Harness(N_VOCAB, broken, n_ctx=N_CTX, n_parallel=2)
    bad, good = engine.embed([7, 1, 2]), engine.embed([1, 2])
    engine.run()
    assert "no numbers" in engine.answers[bad].failure.message
    np.testing.assert_allclose(vector(engine, good), expected([1, 2], "mean"), atol=1e-6)


def test_what_is_refused() -> None:
    engine = harness()
    with pytest.raises(RequestError, match="empty"):
        engine.embed([])
    with pytest.raises(RequestError, match="outside the vocabulary"):
        engine.embed([N_VOCAB])
    with pytest.raises(ContextLengthError):
        engine.embed(text(N_CTX + 1))


def test_messages_cross_the_wire_and_the_outbox() -> None:
    embed = Embed(id="a", prompt=[1], pooling="cls")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(embed), type=Message) == embed
    outbox = Outbox()
    events = [Embedded(id=id, vector=b"1234") for id in "ab"]
    for event in events:
        assert is_last(event)
        outbox.put(event)
    assert [outbox.take(), outbox.take()] == events, "one came in place of another"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(events[0]), type=Event) == events[0]
