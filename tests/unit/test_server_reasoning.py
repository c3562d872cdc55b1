"""Reasoning in chat completions: apart from the answer, counted, and switched by the request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lucebox.core import Origin
from lucebox.engine.messages import Finish, StepEvent, Submit
from tests.support.scripted_engine import EOS, ByteText, Script, says
from tests.support.serving import CHAT, HELLO, events, serving

THINKS = "{{ messages }}<think></think>"
THOUGHT = says(b"<think>\nHm", b"m.\n</th", b"ink>\n\nHel", b"lo")


def ask(script: Script, text: ByteText, body: Any = None, **config: Any) -> httpx.Response:
    async def run() -> httpx.Response:
        async with serving(script, n_ctx=1000, text=text, **config) as server:
            return await server.post(CHAT, {"messages": HELLO} | (body or {}))

    return asyncio.run(run())


def message_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


def test_reasoning_is_no_content() -> None:
    response = ask(THOUGHT, ByteText(THINKS))
    message = message_of(response)
    assert message["reasoning_content"] == "Hmm."
    assert message["content"] == "Hello"
    n_thought = len("<think>\nHmm.\n</think>") - len("<think>")  # the mark that opens it is not known for one
    assert response.json()["usage"]["completion_tokens_details"] == {"reasoning_tokens": n_thought}


@pytest.mark.parametrize("n", [1, 2])
def test_streamed_reasoning_is_the_same(n: int) -> None:
    body = {"stream": True, "n": n, "stream_options": {"include_usage": True}}
    *chunks, last = events(ask(THOUGHT, ByteText(THINKS), body))
    for index in range(n):
        deltas = [c["delta"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hmm."
        assert "".join(delta.get("content", "") for delta in deltas) == "Hello"
    assert last["usage"]["completion_tokens_details"]["reasoning_tokens"] == n * 14


def test_a_template_may_open_it() -> None:
    text = ByteText(THINKS, tail="<think>\n")
    message = message_of(ask(says(b"Hmm.</think>Hello"), text))
    assert (message["reasoning_content"], message["content"]) == ("Hmm.", "Hello")


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_it_may_never_end(reason: Any) -> None:
    response = ask(says(b"Hmm.", reason=reason), ByteText(THINKS, tail="<think>\n"))
    assert message_of(response)["reasoning_content"] == "Hmm."
    assert message_of(response)["content"] == ""
    assert response.json()["choices"][0]["finish_reason"] == reason


def test_a_model_that_does_not_reason_may_speak_of_it() -> None:
    response = ask(THOUGHT, ByteText("{{ messages }}"))
    assert message_of(response)["content"] == "<think>\nHmm.\n</think>\n\nHello"
    assert "reasoning_content" not in message_of(response)
    assert "completion_tokens_details" not in response.json()["usage"]


def test_none_leaves_it_in_the_answer() -> None:
    message = message_of(ask(THOUGHT, ByteText(THINKS), reasoning_format="none"))
    assert message["content"].startswith("<think>")
    assert "reasoning_content" not in message


def test_harmony_needs_no_tools() -> None:
    """Its channels are control tokens, without which the answer would run into its reasoning."""
    names = ("<|channel|>", "<|message|>", "<|end|>", "<|start|>")
    text = ByteText("<|channel|><|message|>", named_tokens={name: 300 + i for i, name in enumerate(names)})
    tokens = [300, *b"analysis", 301, *b"Hm.", 302, 303, *b"assistant", 300, *b"final", 301, *b"Hello", EOS]

    def script(submit: Submit) -> Iterator[StepEvent]:
        finish = Finish(reason="stop")
        yield StepEvent(id=submit.id, tokens=tokens[:9], origins=[Origin.PLAIN] * 9)
        yield StepEvent(
            id=submit.id, tokens=tokens[9:], origins=[Origin.PLAIN] * (len(tokens) - 9), finish=finish
        )

    message = message_of(ask(script, text))
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Hello")


def test_it_comes_back_to_the_template() -> None:
    async def run() -> None:
        text = ByteText(THINKS)
        async with serving(THOUGHT, n_ctx=1000, text=text) as server:
            message = message_of(await server.post(CHAT, {"messages": HELLO}))
            response = await server.post(CHAT, {"messages": [*HELLO, message, *HELLO]})
            assert response.status_code == 200, response.text
        assert text.seen[1][1]["reasoning_content"] == "Hmm."
        assert text.seen[1][1]["content"] == "Hello"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"reasoning_effort": "high"}, {"enable_thinking": True}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}),
        (
            {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
            {"enable_thinking": False},
        ),
    ],
)
def test_a_request_switches_it(body: dict[str, Any], expected: dict[str, Any]) -> None:
    text = ByteText(THINKS, variables={"enable_thinking"})
    assert ask(THOUGHT, text, body).status_code == 200
    assert text.template_kwargs == [expected]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"reasoning_effort": 1}, "reasoning_effort"),
    ],
)
def test_what_cannot_be_is_refused(body: dict[str, Any], param: str) -> None:
    response = ask(THOUGHT, ByteText(""), body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_grammars_begin_behind_the_reasoning() -> None:
    async def run() -> str:
        async with serving(THOUGHT, n_ctx=1000, text=ByteText(THINKS)) as server:
            format = {"type": "json_object"}
            response = await server.post(CHAT, {"messages": HELLO, "response_format": format})
            assert response.status_code == 200, response.text
            grammar = server.engine.submits[0].params.grammar
            assert grammar is not None
            return grammar.text

    assert "thought" in asyncio.run(run())
