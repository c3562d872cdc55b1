"""Wrong bodies for every endpoint that takes one: always a 4xx in that endpoint's words, never a 5xx."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lucebox.server.application import ROUTES
from tests.support.scripted_engine import says
from tests.support.serving import HELLO, serving

FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
FORMAT = {"type": "object", "properties": {"a": {"type": "integer"}}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "y"},
        ],
        "stream": False,
        "n": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 1,
        "min_p": 0.0,
        "seed": 1,
        "stop": ["z"],
        "max_completion_tokens": 5,
        "logit_bias": {"1": 1.0},
        "logprobs": True,
        "top_logprobs": 1,
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": FORMAT}},
        "prediction": {"type": "content", "content": "x"},
        "reasoning_effort": "none",
        "speculative": {"enabled": True, "drafter": "ngram", "draft_length": 3, "acceptance": "auto"},
        "chat_template_kwargs": {},
    },
    "/v1/completions": {
        "model": "tiny",
        "prompt": ["a", "b"],
        "n": 1,
        "echo": True,
        "max_tokens": 5,
        "stop": "z",
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "logit_bias": {"1": 1.0},
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "/v1/responses": {
        "model": "tiny",
        "instructions": "i",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "y"},
        ],
        "tools": [{"type": "function", "strict": True, **FUNCTION}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": FORMAT}, "verbosity": "medium"},
        "reasoning": {"effort": "none"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 1,
        "max_output_tokens": 5,
        "temperature": 1.0,
        "top_p": 1.0,
        "metadata": {"a": "b"},
        "parallel_tool_calls": True,
        "store": False,
        "truncation": "disabled",
        "user": "u",
    },
    "/v1/messages": {
        "model": "tiny",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "y"}]},
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": FORMAT}},
        "stop_sequences": ["z"],
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 1,
        "metadata": {"user_id": "u"},
        "stream": True,
    },
    "/v1/messages/count_tokens": {
        "model": "tiny",
        "system": "s",
        "messages": HELLO,
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    },
    "/v1/embeddings": {"model": "tiny", "input": ["a", "b"], "encoding_format": "float"},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": {"messages": HELLO},
}
POSTS = sorted(route.path for route in ROUTES if "POST" in (getattr(route, "methods", None) or ()))

NESTED = b"[" * 100_000 + b"]" * 100_000
SYNTAX = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b"true",
    b'"text"',
    b"{",
    b'{"model"}',
    b'{"a":1,}',
    b"\xff\xfe",
    b"\x00",
    '{"model": "tiny"}'.encode("utf-16"),
    b'{"model": "\\ud800"}',
    b'{"model": "\xed\xa0\x80"}',
    b'{"model": NaN}',
    b'{"model": Infinity}',
    b'{"model": 1e999}',
    NESTED,
    b'{"messages": ' + NESTED + b"}",
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"' + b"a" * 100_000 + b'": 1}',
]
# What every place in a right body is replaced with.
WRONG = [
    None,
    True,
    -1,
    0,
    1.5,
    2**31,
    2**63,
    -(2**63) - 1,
    10**40,
    1e308,
    "",
    "x",
    "\x00",
    "\ufffe",
    [],
    [None],
    [[]],
    {},
    {"type": None},
    {"type": "\U0001f600"},
    {"": ""},
]

Ask = Callable[[bytes], Awaitable[httpx.Response]]


def asking(path: str, bodies: Callable[[Ask], Awaitable[None]]) -> None:
    """`bodies` with a server that answers what is posted to `path`."""

    async def run() -> None:
        async with serving(says(b"ok"), n_ctx=2000) as server:
            await bodies(lambda content: server.http.post(path, content=content))

    asyncio.run(run())


def check(path: str, response: httpx.Response, content: bytes) -> None:
    """No answer but a right one or a refusal in the words of the API."""
    shown = content[:300]
    if response.status_code == 200:
        return
    assert 400 <= response.status_code < 500, (response.status_code, response.text, shown)
    body = response.json()
    if path.startswith("/v1/messages"):
        assert body["type"] == "error", shown
        assert set(body["error"]) == {"type", "message"}, shown
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}, shown
        assert body["error"]["type"] == "invalid_request_error", shown
        assert body["error"]["code"], shown
    assert body["error"]["message"], shown
    assert len(body["error"]["message"]) < 2000, "an error does not repeat the body"


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The way to everything that is in `value`, itself included."""
    yield ()
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        for way in places(inner):
            yield (key, *way)


def replaced(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    if not way:
        return new
    copy = value.copy()
    copy[way[0]] = replaced(value[way[0]], way[1:], new)
    return copy


def test_every_endpoint_is_looked_at() -> None:
    assert set(POSTS) <= set(BODIES)
    assert {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"} <= set(POSTS)


@pytest.mark.parametrize("path", POSTS)
def test_the_right_body_is_right(path: str) -> None:
    """Else the wrong ones would be refused for another reason."""

    async def bodies(ask: Ask) -> None:
        response = await ask(json.dumps(BODIES[path]).encode())
        assert response.status_code == 200, response.text

    asking(path, bodies)


@pytest.mark.parametrize("path", POSTS)
def test_no_json_and_no_object(path: str) -> None:
    async def bodies(ask: Ask) -> None:
        for content in SYNTAX:
            response = await ask(content)
            check(path, response, content)
            assert response.status_code == 400, content[:300]

    asking(path, bodies)


@pytest.mark.parametrize("path", POSTS)
def test_something_wrong_in_every_place(path: str) -> None:
    body = BODIES[path]

    async def bodies(ask: Ask) -> None:
        for way in places(body):
            for wrong in WRONG:
                content = json.dumps(replaced(body, way, wrong)).encode()
                check(path, await ask(content), content)

    asking(path, bodies)


@pytest.mark.parametrize("path", POSTS)
def test_every_place_deeply_nested(path: str) -> None:
    """As deep as the parser goes: what comes after it must cope, too."""
    body = BODIES[path]

    async def bodies(ask: Ask) -> None:
        for way in places(body):
            for depth in (100, 400, 900, 2000):
                for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
                    deep = opening * depth + b"1" + closing * depth
                    content = json.dumps(replaced(body, way, "@DEEP@")).encode()
                    content = content.replace(b'"@DEEP@"', deep)
                    check(path, await ask(content), content)

    asking(path, bodies)


@pytest.mark.parametrize("path", POSTS)
def test_surrogates_and_duplicates_in_every_string(path: str) -> None:
    body = BODIES[path]

    async def bodies(ask: Ask) -> None:
        for way in places(body):
            content = json.dumps(replaced(body, way, "\ud800")).encode()
            response = await ask(content)
            check(path, response, content)
            assert response.status_code == 400
        for key, value in body.items():
            doubled = json.dumps({key: value})[1:-1]
            content = f'{{{doubled}, {json.dumps(body)[1:-1]}, {doubled}, "{key}": null}}'.encode()
            check(path, await ask(content), content)

    asking(path, bodies)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("path", POSTS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_anything_anywhere(path: str, data: st.DataObject) -> None:
    body = BODIES[path]
    ways = data.draw(st.lists(st.sampled_from(sorted(places(body), key=str)), min_size=1, max_size=20))
    contents = [json.dumps(replaced(body, way, data.draw(JSON))).encode() for way in ways]

    async def bodies(ask: Ask) -> None:
        for content in contents:
            check(path, await ask(content), content)

    asking(path, bodies)
