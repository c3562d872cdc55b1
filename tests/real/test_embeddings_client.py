"""Embeddings of a real model through the real `openai` client: alike is close, and company changes little."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from openai import BadRequestError, OpenAI

from tests.support.server_process import ServerProcess

SMOL = "smollm2-135m"
N_CTX = 256
PAIRS = (
    ("A cat sleeps on the warm sofa.", "A kitten naps on the couch in the sun."),
    ("The central bank raised interest rates again.", "Interest rates went up once more, said the bank."),
    ("How do I sort a list in Python?", "Sorting Python lists: use sorted() or list.sort()."),
)
TEXTS = [text for pair in PAIRS for text in pair]


@pytest.fixture(scope="module")
def server(
    model_path: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("embeddings") / "log"
    flags = ["--target-model", str(model_path(SMOL)), "--draft-model", "none", "--ctx-size", str(N_CTX)]
    with ServerProcess(log, *flags) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def embed(client: OpenAI, texts: list[str], **fields: object) -> NDArray[np.float64]:
    answer = client.embeddings.create(model=SMOL, input=texts, **fields)  # type: ignore[arg-type]
    assert [item.index for item in answer.data] == list(range(len(texts)))
    return np.array([item.embedding for item in answer.data])


def test_what_means_the_same_is_closest(client: OpenAI) -> None:
    vectors = embed(client, TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    alike = vectors @ vectors.T - 2 * np.eye(len(TEXTS))
    assert alike.argmax(axis=1).tolist() == [1, 0, 3, 2, 5, 4]


def test_the_clients_base64_and_plain_numbers_agree(client: OpenAI, server: ServerProcess) -> None:
    by_client = embed(client, TEXTS[:2])  # which asks for base64
    plain = httpx.post(f"{server.url}/v1/embeddings", json={"input": TEXTS[:2]}, timeout=60).json()
    np.testing.assert_allclose([item["embedding"] for item in plain["data"]], by_client, atol=2e-3)
    shorter = embed(client, TEXTS[:2], dimensions=64)
    expected = by_client[:, :64] / np.linalg.norm(by_client[:, :64], axis=1, keepdims=True)
    np.testing.assert_allclose(shorter, expected, atol=2e-3)


def test_company_changes_nothing_but_the_last_digits(client: OpenAI, server: ServerProcess) -> None:
    """Beside an answer that is streamed, and in a crowd of texts."""
    alone = np.concatenate([embed(client, [text]) for text in TEXTS])
    body = {"prompt": "Once", "max_tokens": 150, "stream": True, "ignore_eos": True, "temperature": 0}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=120) as stream:
        lines = stream.iter_lines()
        next(lines)
        crowded = embed(client, TEXTS * 3)
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    for copy in np.split(crowded, 3):
        assert np.einsum("ij,ij->i", copy, alone).min() > 0.999


def test_a_text_that_is_too_long_is_named(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        embed(client, ["short", "long " * N_CTX])
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "input[1]"


def test_tokens_and_back(client: OpenAI, server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        text = "Grüße, 世界 👩‍👩‍👧!"
        tokens = http.post("/tokenize", json={"content": text}).json()["tokens"]
        assert http.post("/detokenize", json={"tokens": tokens}).json()["content"] == text
        by_tokens = client.embeddings.create(model=SMOL, input=[tokens]).data[0].embedding
        np.testing.assert_allclose(by_tokens, embed(client, [text])[0], atol=2e-3)
        (slot, *_) = http.get("/slots").json()
        assert slot["n_ctx"] == N_CTX
        props = http.get("/props").json()
        assert props["n_embd"] == len(by_tokens)
        assert "im_start" in props["chat_template"]
