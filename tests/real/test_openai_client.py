"""The real `openai` client against a real server with real models."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.support.server_process import ServerProcess, is_alive, wait_for

KEY = "test-key"
SMOL = "smollm2-135m"
QWEN = "qwen2.5-coder-1.5b"
Models = Callable[[str], Path]


@pytest.fixture(scope="module")
def smol(model_path: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("smol") / "log"
    flags = ["--target-model", str(model_path(SMOL)), "--draft-model", "none", "--ctx-size", "512"]
    with ServerProcess(log, *flags, environ={"LUCEBOX_API_KEY": KEY}) as server:
        yield server


@pytest.fixture(scope="module")
def qwen(model_path: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The default pair: the 1.5B, whose tokens the 0.5B guesses."""
    log = tmp_path_factory.mktemp("qwen") / "log"
    target, draft = model_path(QWEN), model_path("qwen2.5-coder-0.5b")
    flags = ["--target-model", str(target), "--draft-model", str(draft), "--ctx-size", "2048"]
    with ServerProcess(log, *flags, "--draft-length", "fixed:n=3") as server:
        yield server


def client_of(server: ServerProcess, key: str = KEY) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=300)


@pytest.fixture
def client(smol: ServerProcess) -> Iterator[OpenAI]:
    with client_of(smol) as client:
        yield client


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == SMOL
    assert client.models.retrieve(SMOL) == model


def test_chat(client: OpenAI) -> None:
    messages = ask("What is the capital of France? Answer in one sentence.")
    answer = client.chat.completions.create(model=SMOL, messages=messages, temperature=0, max_tokens=32)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 32
    assert answer.model_extra is not None
    assert answer.model_extra["timings"]["predicted_n"] == answer.usage.completion_tokens
    # The answer goes back as the client holds it, empty fields and all.
    messages += [answer.choices[0].message, *ask("And of Italy?")]
    again = client.chat.completions.create(model=SMOL, messages=messages, temperature=0, max_tokens=16)
    assert again.choices[0].message.content


def test_streaming_chat(client: OpenAI) -> None:
    messages = ask("Count from one to five.")
    whole = client.chat.completions.create(model=SMOL, messages=messages, temperature=0, max_tokens=24)
    chunks = list(
        client.chat.completions.create(
            model=SMOL,
            messages=messages,
            temperature=0,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert reasons == [whole.choices[0].finish_reason]
    both = (chunks[-1].usage, whole.usage)
    assert both[0].prompt_tokens_details.cached_tokens >= both[1].prompt_tokens_details.cached_tokens
    streamed, collected = (usage.model_copy(update={"prompt_tokens_details": None}) for usage in both)
    assert streamed == collected


def test_predicted_outputs(client: OpenAI) -> None:
    """An answer that is predicted whole takes a few rounds, and says so."""
    messages = ask("Count from one to five.")
    whole = client.chat.completions.create(model=SMOL, messages=messages, temperature=0, max_tokens=24)
    predicted = client.chat.completions.create(
        model=SMOL,
        messages=messages,
        temperature=0,
        max_tokens=24,
        prediction={"type": "content", "content": whole.choices[0].message.content or ""},
        extra_body={"speculative": {"draft_length": "fixed:n=8"}},
    )
    assert whole.usage is not None
    assert predicted.usage is not None
    assert whole.usage.completion_tokens_details is None
    details = predicted.usage.completion_tokens_details
    assert details is not None
    assert details.accepted_prediction_tokens is not None
    assert details.accepted_prediction_tokens >= predicted.usage.completion_tokens // 2
    assert details.rejected_prediction_tokens is not None


def test_completions(client: OpenAI) -> None:
    answer = client.completions.create(
        model=SMOL, prompt="The capital of France is", temperature=0, max_tokens=4, logprobs=2
    )
    choice = answer.choices[0]
    assert "Paris" in choice.text
    assert choice.finish_reason == "length"
    assert choice.logprobs is not None
    assert "".join(choice.logprobs.tokens or []) == choice.text
    pieces = client.completions.create(
        model=SMOL, prompt="The capital of France is", temperature=0, max_tokens=4, stream=True
    )
    assert "".join(piece.choices[0].text for piece in pieces) == choice.text


def test_context_length_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=SMOL, messages=ask("word " * 600))
    assert raised.value.code == "context_length_exceeded"
    assert raised.value.param == "messages"
    assert "maximum context length is 512 tokens" in raised.value.message


def test_a_wrong_type_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=SMOL, messages=ask("x"), temperature="hot")  # type: ignore[call-overload]
    assert raised.value.param == "temperature"


def test_an_image_is_a_bad_request(client: OpenAI) -> None:
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=SMOL, messages=[{"role": "user", "content": content}])  # type: ignore[call-overload]
    assert raised.value.param == "messages[0].content[0]"


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="gpt-4o", messages=ask("x"))
    assert raised.value.code == "model_not_found"


def test_a_wrong_key_is_an_authentication_error(smol: ServerProcess) -> None:
    with client_of(smol, "wrong") as client, pytest.raises(openai.AuthenticationError) as raised:
        client.models.list()
    assert raised.value.code == "invalid_api_key"


def test_the_pair_answers_as_the_target_alone(qwen: ServerProcess) -> None:
    messages = ask("Write a Python function that adds two numbers. Only code.")
    with client_of(qwen) as client:
        pair, alone = (
            client.chat.completions.create(
                model=QWEN, messages=messages, temperature=0, max_tokens=40, extra_body={"speculative": on}
            )
            for on in (True, False)
        )
    assert "def " in (pair.choices[0].message.content or "")
    assert pair.choices[0].message.content == alone.choices[0].message.content
    assert pair.model_extra is not None
    assert alone.model_extra is not None
    assert pair.model_extra["timings"]["draft_n_accepted"] > 0
    assert alone.model_extra["timings"]["draft_n"] == 0


def test_an_abandoned_stream_frees_the_engine(qwen: ServerProcess) -> None:
    with client_of(qwen) as client, httpx.Client(base_url=qwen.url) as health:
        stream = client.chat.completions.create(model=QWEN, messages=ask("Count to 1000."), stream=True)
        next(iter(stream))
        stream.close()
        wait_for(lambda: health.get("/health").json()["n_in_flight"] == 0, "an idle engine")


def test_a_stream_survives_the_engine(qwen: ServerProcess) -> None:
    messages = ask("Count from 1 to 30, separated by spaces.")
    with client_of(qwen) as client:
        stream = client.chat.completions.create(
            model=QWEN, messages=messages, temperature=0, max_tokens=48, stream=True
        )
        chunks = iter(stream)
        text = "".join(next(chunks).choices[0].delta.content or "" for _ in range(6))
        engine = qwen.engine_pid()
        os.kill(engine, signal.SIGKILL)
        text += "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text.split()[:8] == [str(i) for i in range(1, 9)]
        assert qwen.engine_pid() != engine
        answer = client.chat.completions.create(model=QWEN, messages=ask("Say hi."), max_tokens=4)
        assert answer.choices[0].message.content


def test_the_engine_ends_with_the_server_in_mid_forward(model_path: Models, tmp_path: Path) -> None:
    flags = ["--target-model", str(model_path(QWEN)), "--draft-model", "none", "--ctx-size", "4096"]
    with ServerProcess(tmp_path / "log", *flags) as server:
        engine = server.engine_pid()
        # A prompt of several thousand tokens keeps it in forwards of seconds.
        body = json.dumps({"prompt": list(range(1000, 4000)), "max_tokens": 1})
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
        connection.request("POST", "/v1/completions", body)
        time.sleep(1.5)
        assert is_alive(engine)
        server.kill()
        connection.close()
        start_s = time.monotonic()
        wait_for(lambda: not is_alive(engine), "the engine's end", 1.0)
        print(f"the engine ended {1000 * (time.monotonic() - start_s):.0f} ms after the server")
