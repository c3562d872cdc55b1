"""Embeddings against `transformers`: its last hidden states, pooled by the book."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox.config import EngineConfig, ModelConfig, Pooling
from lucebox.engine.messages import Embed, Embedded, RequestEvent
from lucebox.engine.thread_client import ThreadClient
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support.oracle_models import CASES, N_CTX, N_VOCAB, Oracle

TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=["llama", "mistral-window", "qwen2-tied", "qwen3moe"])
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    (case,) = (case for case in CASES if case.name == request.param)
    return Oracle(case, tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="module")
def engine(oracle: Oracle) -> Iterator[ThreadClient]:
    target = ModelConfig(path=str(oracle.path), device="CPU", n_threads=1, kv_type="f32")
    config = EngineConfig(
        target=target,
        draft=None,
        drafters=(),
        acceptance="auto",
        draft_length="fixed:n=4",
        n_ctx=N_CTX,
        n_parallel=2,
    )
    with ThreadClient(config) as client:
        client.wait_ready(60)
        yield client


def embed(engine: ThreadClient, texts: list[list[int]], pooling: Pooling) -> list[NDArray[np.float32]]:
    answers: list[SimpleQueue[RequestEvent]] = [SimpleQueue() for _ in texts]
    for i, (tokens, answer) in enumerate(zip(texts, answers, strict=True)):
        engine.submit(Embed(id=f"{pooling}{i}", prompt=tokens, pooling=pooling), answer.put)
    events = [answer.get(timeout=60) for answer in answers]
    assert all(isinstance(event, Embedded) for event in events), events
    return [np.frombuffer(event.vector, "<f4") for event in events if isinstance(event, Embedded)]


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_pooled_hidden_states(oracle: Oracle, engine: ThreadClient, pooling: Pooling) -> None:
    texts = [np.random.default_rng(n).integers(0, N_VOCAB, n).tolist() for n in (1, 2, 77, N_CTX, 130)]
    for tokens, got in zip(texts, embed(engine, texts, pooling), strict=True):
        states = oracle.hidden(tokens)
        pooled = {"mean": states.mean(axis=0), "last": states[-1], "cls": states[0]}[pooling]
        np.testing.assert_allclose(got, pooled / np.linalg.norm(pooled), atol=TOLERANCE)


def test_states_alone_spare_the_head(tmp_path: Path, oracle: Oracle) -> None:
    tokens = list(range(9))
    with Runtime.load(oracle.path, device="CPU", n_threads=1, n_ctx=N_CTX, kv_type="f32") as runtime:
        output = runtime.forward(Rows.chain(0, tokens, 0, want_all=Want.STATE))
        assert output.logits.shape == (0, N_VOCAB)
        assert output.hidden is not None
        np.testing.assert_allclose(output.hidden, oracle.hidden(tokens), atol=10 * TOLERANCE)
        rows = Rows.chain(0, tokens, 0, want_all=Want.STATE)
        rows.wants[-1] = Want.LOGITS
        rows.wants[2:5] = Want.NOTHING
        output = runtime.forward(rows)
        assert output.hidden is not None
        np.testing.assert_allclose(output.logits_of(8), oracle.logits(tokens)[-1], atol=TOLERANCE)
        states = output.hidden[output.row_index[[1, 5]]]
        np.testing.assert_allclose(states, oracle.hidden(tokens)[[1, 5]], atol=10 * TOLERANCE)
