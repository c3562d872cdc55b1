"""POST /v1/completions, streamed and whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.scripted_engine import says
from tests.support.serving import TEXT, ask, events, serving

HI = says(b"Hi ", b"there")


def test_whole_answer() -> None:
    answer = ask(HI, TEXT, {"model": "tiny", "prompt": "Say"}).json()
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": "Hi there", "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    assert answer["timings"]["predicted_n"] == 9


def test_streamed_answer_is_the_same() -> None:
    body = {"prompt": "Say", "stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = events(ask(HI, TEXT, body))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hi there"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert {chunk["object"] for chunk in [*chunks, last]} == {"text_completion"}
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 12


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("ab", [[97, 98]]),
        (["ab", "c"], [[97, 98], [99]]),
        ([97, 98], [[97, 98]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
    ],
)
def test_every_form_of_prompt(prompt: Any, prompts: list[list[int]]) -> None:
    async def run() -> None:
        async with serving(HI) as server:
            answer = (await server.post(TEXT, {"prompt": prompt, "n": 2})).json()
            got = sorted((submit.id.rsplit("/")[-1], submit.prompt) for submit in server.engine.submits)
            assert [tokens for _, tokens in got] == [tokens for tokens in prompts for _ in range(2)]
            assert len(answer["choices"]) == 2 * len(prompts)
            assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([], "prompt"),
        ("", "prompt"),
        (["a", ""], "prompt[1]"),
        ([[1], []], "prompt[1]"),
        ([1, "a"], "prompt[0]"),
        ([1, 9999], "prompt[1]"),
        ([[1], [2, -1]], "prompt[1][1]"),
        (["a"] * 129, "prompt"),
    ],
)
def test_wrong_prompts_are_named(prompt: Any, param: str) -> None:
    response = ask(HI, TEXT, {"prompt": prompt})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_prompt_over_the_context() -> None:
    error = ask(HI, TEXT, {"prompt": ["ok", "x" * 64]}).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["Say ", list(b"Say ")])
def test_echo(stream: bool, prompt: Any) -> None:
    response = ask(HI, TEXT, {"prompt": prompt, "echo": True, "stream": stream})
    if stream:
        text = "".join(chunk["choices"][0]["text"] for chunk in events(response))
    else:
        text = response.json()["choices"][0]["text"]
    assert text == "Say Hi there"


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(stream: bool) -> None:
    fox = "🦊".encode()
    body = {"prompt": "a", "logprobs": 1, "stream": stream}
    response = ask(says(b"a" + fox[:2], fox[2:] + b"b"), TEXT, body)
    parts = (
        [chunk["choices"][0]["logprobs"] for chunk in events(response)]
        if stream
        else [response.json()["choices"][0]["logprobs"]]
    )
    merged: dict[str, list[Any]] = {}
    for part in filter(None, parts):
        for name, values in part.items():
            merged.setdefault(name, []).extend(values)
    assert merged["tokens"] == ["a", "bytes:\\xf0", "bytes:\\x9f", "bytes:\\xa6", "bytes:\\x8a", "b"]
    assert merged["token_logprobs"] == [-0.5] * 6
    assert merged["top_logprobs"][0] == {"a": -0.5}
    assert merged["text_offset"] == [0, 1, 1, 1, 1, 2]
