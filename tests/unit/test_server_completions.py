"""POST /v1/completions, streamed and whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from lucebox.engine.messages import StepEvent, Submit
from tests.support.scripted_engine import ByteText, says, steps
from tests.support.serving import TEXT, ask, events, serving

HI = says(b"Hi ", b"there")


def test_whole_answer() -> None:
    answer = ask(HI, TEXT, {"model": "tiny", "prompt": "Say"}).json()
    assert answer["id"].startswith("cmpl-")
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [{"index": 0, "text": "Hi there", "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 9,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
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


def test_the_echo_of_half_a_character_shows_that_something_is_there() -> None:
    response = ask(HI, TEXT, {"prompt": list(b"a\xe2"), "echo": True})
    assert response.json()["choices"][0]["text"].startswith("a\ufffd")


def test_echoed_prompts_have_log_probabilities() -> None:
    """The first token has none; all offsets count from the start of the text."""
    body = {"prompt": "Say", "echo": True, "logprobs": 1}
    choice = ask(HI, TEXT, body).json()["choices"][0]
    assert choice["text"] == "SayHi there"
    scores = choice["logprobs"]
    assert "".join(scores["tokens"]) == "SayHi there"
    assert scores["token_logprobs"] == [None, -1.0, -2.0, *[-0.5] * 8]
    assert scores["top_logprobs"][:2] == [None, {"<|256|>": -0.25, "a": -1.0}]
    assert scores["top_logprobs"][3] == {"H": -0.5}
    assert scores["text_offset"] == list(range(11))


@pytest.mark.parametrize("prompt", ["Say", "S", list(b"Say")])
def test_echoed_log_probabilities_stream(prompt: Any) -> None:
    body = {"prompt": prompt, "echo": True, "logprobs": 0, "n": 2}
    whole = ask(HI, TEXT, body).json()["choices"]
    chunks = events(ask(HI, TEXT, body | {"stream": True}))
    for choice in whole:
        parts = [c for chunk in chunks for c in chunk["choices"] if c["index"] == choice["index"]]
        assert "".join(part["text"] for part in parts) == choice["text"]
        for name, values in choice["logprobs"].items():
            scores = [part["logprobs"] for part in parts if part["logprobs"]]
            assert [value for part in scores for value in part[name]] == values


def test_a_prompt_may_be_scored_and_nothing_generated() -> None:
    """As lm-eval asks."""
    silent = says(b"", reason="length")
    body = {"prompt": [list(b"ab"), list(b"abc")], "echo": True, "logprobs": 1, "max_tokens": 0}
    answer = ask(silent, TEXT, body).json()
    assert [choice["text"] for choice in answer["choices"]] == ["ab", "abc"]
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length"] * 2
    assert answer["choices"][1]["logprobs"]["token_logprobs"] == [None, -1.0, -2.0]
    assert answer["usage"]["completion_tokens"] == 0
    streamed = events(ask(silent, TEXT, body | {"stream": True}))
    assert sum(len(c["logprobs"]["tokens"]) for e in streamed for c in e["choices"] if c["logprobs"]) == 5


def likelier_later(submit: Submit) -> Iterator[StepEvent]:
    """Choice k of a prompt says `k`, with a log-probability of k - 10."""
    k = int(submit.id.rsplit("/")[-1]) % 3
    for event in steps(submit, [b"%d" % k]):
        assert event.logprobs is not None
        yield replace(event, logprobs=[replace(entry, logprob=k - 10.0) for entry in event.logprobs])


@pytest.mark.parametrize("logprobs", [None, 1])
def test_best_of_gives_the_likeliest(logprobs: int | None) -> None:
    body = {"prompt": ["a", "b"], "best_of": 3, "n": 2, "logprobs": logprobs}
    answer = ask(likelier_later, TEXT, body).json()
    assert [(c["index"], c["text"]) for c in answer["choices"]] == [(0, "2"), (1, "1"), (2, "2"), (3, "1")]
    assert answer["usage"]["completion_tokens"] == 12  # all of them were generated
    assert all((choice["logprobs"] is None) == (logprobs is None) for choice in answer["choices"])


def test_best_of_that_is_n_gives_them_as_they_are() -> None:
    choices = ask(likelier_later, TEXT, {"prompt": "a", "best_of": 3, "n": 3, "logprobs": 0}).json()[
        "choices"
    ]
    assert [choice["text"] for choice in choices] == ["0", "1", "2"]
    body = {"prompt": "a", "best_of": 3, "n": 3, "stream": True, "logprobs": 0}
    assert len(events(ask(likelier_later, TEXT, body))) == 6


@pytest.mark.parametrize("prompt", ["ab", [97, 98]])
def test_suffix_fills_in_the_middle(prompt: Any) -> None:
    async def run() -> None:
        async with serving(HI, text=ByteText(fills_in=True)) as server:
            answer = await server.post(TEXT, {"prompt": prompt, "suffix": "z"})
            assert answer.status_code == 200
            assert server.engine.submits[0].prompt == [258, 97, 98, 258, 122, 258]
            await server.post(TEXT, {"prompt": prompt, "suffix": ""})
            assert server.engine.submits[1].prompt == [97, 98]

    asyncio.run(run())


def test_suffix_is_refused_by_a_model_that_cannot() -> None:
    response = ask(HI, TEXT, {"prompt": "a", "suffix": "b"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "suffix"
