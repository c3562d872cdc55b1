"""POST /v1/embeddings around a scripted engine."""

from __future__ import annotations

import asyncio
import base64
import math
from typing import Any

import httpx
import numpy as np
import pytest

from lucebox.engine.messages import Embed, Event, Failed
from lucebox.errors import EngineError, QueueFullError
from lucebox.server.embedding_job import EmbeddingJob
from lucebox.server.embeddings import MAX_TEXTS, shortened
from tests.support.scripted_engine import BOS, EOS, N_CTX, N_EMBD, N_VOCAB, ScriptedEngine, says
from tests.support.serving import Connection, ask, http_scope, serving

PATH = "/v1/embeddings"
QUIET = says(b"")


def embed(body: Any, **config: Any) -> httpx.Response:
    return ask(QUIET, PATH, body, **config)


def vectors(response: httpx.Response) -> list[list[float]]:
    assert response.status_code == 200, response.text
    return [item["embedding"] for item in response.json()["data"]]


def test_a_text_in_openais_shape() -> None:
    response = embed({"input": "abc", "model": "tiny", "user": "u"})
    body = response.json()
    assert body["object"] == "list"
    assert body["model"] == "tiny"
    assert body["usage"] == {"prompt_tokens": 4, "total_tokens": 4}, "the model's first token counts"
    (item,) = body["data"]
    assert item["object"] == "embedding"
    assert item["index"] == 0
    assert len(item["embedding"]) == N_EMBD
    assert math.hypot(*item["embedding"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("ab", [[BOS, 97, 98]]),
        (["ab", "c"], [[BOS, 97, 98], [BOS, 99]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        (["a", [7]], [[BOS, 97], [7]]),
        ([f"<|{EOS}|>"], [[BOS, *f"<|{EOS}|>".encode()]]),  # the name of a control token is text
    ],
)
def test_every_form_of_input(given: Any, prompts: list[list[int]]) -> None:
    async def run() -> None:
        async with serving(QUIET, pooling="last") as server:
            response = await server.post(PATH, {"input": given})
            assert [item["index"] for item in response.json()["data"]] == list(range(len(prompts)))
            assert sorted(embed.prompt for embed in server.engine.embeds) == sorted(prompts)
            assert {embed.pooling for embed in server.engine.embeds} == {"last"}

    asyncio.run(run())


def test_many_texts_keep_their_order_and_leave_room_for_others() -> None:
    async def run() -> None:
        async with serving(QUIET) as server:
            texts = [[i % 250] * (1 + i % 3) for i in range(200)]
            response = await server.post(PATH, {"input": texts})
            alone = [np.eye(N_EMBD)[text[0] % N_EMBD] for text in texts]
            np.testing.assert_allclose(vectors(response), alone, atol=1e-6)

    asyncio.run(run())


def test_only_so_many_texts_are_at_the_engine_at_once() -> None:
    async def run() -> None:
        async with serving(QUIET) as server:
            server.engine.gate.clear()
            task = asyncio.create_task(server.post(PATH, {"input": ["a"] * 9}))
            while not server.engine.embeds:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            assert len(server.engine.embeds) == 1, "as many as the engine has slots"
            server.engine.gate.set()
            assert len(vectors(await task)) == 9

    asyncio.run(run())


def test_base64_is_what_floats_are() -> None:
    numbers = vectors(embed({"input": ["hello", "you"]}))
    texts = vectors(embed({"input": ["hello", "you"], "encoding_format": "base64"}))
    for number, text in zip(numbers, texts, strict=True):
        assert isinstance(text, str)
        assert np.frombuffer(base64.b64decode(text), "<f4").tolist() == number


@pytest.mark.parametrize("n", [1, 3, N_EMBD])
def test_dimensions_shorten_and_normalise(n: int) -> None:
    (whole,) = vectors(embed({"input": "abcdefgh"}))
    (part,) = vectors(embed({"input": "abcdefgh", "dimensions": n}))
    assert len(part) == n
    np.testing.assert_allclose(part, np.array(whole[:n]) / np.linalg.norm(whole[:n]), atol=1e-6)


def test_a_part_that_is_zero_stays_zero() -> None:
    assert shortened(np.array([0, 0, 1], np.float32), 2).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "input", "missing_required_parameter"),
        ({"input": None}, "input", "invalid_type"),
        ({"input": 7}, "input", "invalid_type"),
        ({"input": []}, "input", "empty_array"),
        ({"input": ""}, "input", "invalid_value"),
        ({"input": ["a", ""]}, "input[1]", "invalid_value"),
        ({"input": [[]]}, "input[0]", "invalid_value"),
        ({"input": [1, "a"]}, "input[0]", "invalid_type"),
        ({"input": [N_VOCAB]}, "input[0]", "invalid_value"),
        ({"input": [[1], [-1]]}, "input[1][0]", "invalid_value"),
        ({"input": [[1, True]]}, "input[0][1]", "invalid_type"),
        ({"input": "a" * N_CTX}, "input", "context_length_exceeded"),
        ({"input": ["a", [1] * (N_CTX + 1)]}, "input[1]", "context_length_exceeded"),
        ({"input": ["a"] * (MAX_TEXTS + 1)}, "input", "array_above_max_length"),
        ({"input": "a", "dimensions": 0}, "dimensions", "invalid_value"),
        ({"input": "a", "dimensions": N_EMBD + 1}, "dimensions", "invalid_value"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "invalid_value"),
        ({"input": "a", "pooling": "cls"}, "pooling", "unknown_parameter"),
        ({"input": "a", "model": "gpt-9"}, "model", "model_not_found"),
    ],
)
def test_what_is_refused_by_name(body: Any, param: str, code: str) -> None:
    response = embed(body)
    error = response.json()["error"]
    assert response.status_code == (404 if code == "model_not_found" else 400)
    assert (error["param"], error["code"]) == (param, code), error


def test_a_text_as_long_as_the_context_is_taken() -> None:
    assert len(vectors(embed({"input": [[1] * N_CTX]}))) == 1


def test_an_engine_that_fails_is_a_503_and_the_rest_is_cancelled() -> None:
    def fails(embed: Embed) -> Event:
        return Failed.of(embed.id, EngineError("no luck in /secret/folder/x.gguf"))

    async def run() -> None:
        async with serving(QUIET) as server:
            server.engine.embed = fails
            response = await server.post(PATH, {"input": ["a", "b"]})
            assert response.status_code == 503
            assert "no luck" in response.text
            assert "secret" not in response.text
            assert int(response.headers["retry-after"]) > 0
            assert len(server.engine.embeds) == 1

    asyncio.run(run())


def test_a_queue_that_is_full_of_our_own_is_waited_for() -> None:
    async def run() -> None:
        engine = ScriptedEngine(QUIET, max_in_flight=2)
        engine.start()
        texts = [[i] for i in range(20)]
        with EmbeddingJob(engine, "a", texts, "mean", n_at_once=5) as job:
            found = await job.vectors()
        np.testing.assert_allclose(found, [np.eye(N_EMBD)[i % N_EMBD] for i in range(20)])
        engine.gate.clear()
        for id in "bc":
            engine.submit(Embed(id=id, prompt=[1], pooling="mean"), lambda event: None)
        with EmbeddingJob(engine, "d", texts, "mean", n_at_once=5) as job, pytest.raises(QueueFullError):
            await job.vectors()
        engine.close()

    asyncio.run(run())


def test_a_client_that_leaves_cancels_its_texts() -> None:
    async def run() -> None:
        async with serving(QUIET) as server:
            server.engine.gate.clear()
            connection = Connection({"input": ["a", "b"]})
            task = asyncio.create_task(server.app(http_scope(PATH), connection.receive, connection.send))
            while not server.engine.embeds:
                await asyncio.sleep(0.001)
            connection.leave()
            await task
            assert server.engine.cancelled == [server.engine.embeds[0].id]
            server.engine.gate.set()

    asyncio.run(run())


def test_a_shutdown_ends_it() -> None:
    async def run() -> None:
        async with serving(QUIET) as server:
            server.engine.gate.clear()
            task = asyncio.create_task(server.post(PATH, {"input": "a"}))
            while not server.engine.embeds:
                await asyncio.sleep(0.001)
            server.service.abort(EngineError("the server is shutting down"))
            assert (await task).status_code == 503

    asyncio.run(run())
