"""POST /v1/messages: what a request may say, what it comes to, and what is refused by name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.support.scripted_engine import ByteText, says
from tests.support.serving import HELLO, Server, answered, ask, serving

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
BODY: dict[str, Any] = {"messages": HELLO, "max_tokens": 40}
CACHED = {"cache_control": {"type": "ephemeral"}}
WEATHER = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CLOCK = {"name": "clock", "input_schema": {"type": "object"}}


def seen(body: dict[str, Any], **options: Any) -> tuple[Server, httpx.Response]:
    return answered(PATH, {**BODY, **body}, **options)


def messages_of(*messages: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    server, _ = seen({"messages": messages, **body})
    return server.text.seen[-1]


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_system_and_blocks_of_text() -> None:
    messages = messages_of(
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [text("b")]},
        user(text("c"), {**text("d"), **CACHED}),
        system=[text("Be brief."), {**text("Be kind."), **CACHED}],
    )
    assert messages == [
        {"role": "system", "content": "Be brief.\nBe kind."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c\nd"},
    ]


def test_messages_of_the_user_in_a_row_are_one() -> None:
    assert messages_of(user(text("a")), user(text("b"))) == [{"role": "user", "content": "a\nb"}]


def test_uses_of_tools_and_their_results() -> None:
    use = {"type": "tool_use", "name": "weather"}
    messages = messages_of(
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                text("Looking."),
                {**use, "id": "toolu_1", "input": {"city": "Tromsø"}},
                {**use, "id": "toolu_2", "input": {}, **CACHED},
            ],
        },
        user(
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("rain"), text("wind")]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "where?", "is_error": True},
            text("And now?"),
        ),
        tools=[WEATHER],
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    turn = messages[1]
    assert (turn["content"], turn["reasoning_content"]) == ("Looking.", "hm")
    assert [call["function"]["arguments"] for call in turn["tool_calls"]] == ['{"city": "Tromsø"}', "{}"]
    assert messages[2].items() >= {"tool_call_id": "toolu_1", "name": "weather"}.items()
    assert messages[2]["content"] == "rain\nwind"
    assert messages[3]["content"] == "Error: where?"


def test_an_answer_goes_back_as_it_came() -> None:
    call = b'<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'

    async def run() -> None:
        script = says(b"<think>hm</think>", b"Looking. ", call)
        async with serving(script, n_ctx=1000, text=ByteText("<think> <tool_call>")) as server:
            first = (await server.post(PATH, {**BODY, "tools": [WEATHER]})).json()
            result = {"type": "tool_result", "tool_use_id": first["content"][2]["id"], "content": "rain"}
            messages = [*HELLO, {"role": "assistant", "content": first["content"]}, user(result)]
            response = await server.post(PATH, {**BODY, "messages": messages, "tools": [WEATHER]})
            assert response.status_code == 200, response.text
            assert [message["role"] for message in server.text.seen[-1]] == ["user", "assistant", "tool"]

    asyncio.run(run())


def test_parameters_reach_the_sampler() -> None:
    server, _ = seen(
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "top_k": 5,
            "max_tokens": 7,
            "stop_sequences": ["a", "b"],
            "seed": 11,
            "speculative": False,
        }
    )
    params = server.engine.submits[0].params
    assert (params.temperature, params.top_p, params.top_k, params.max_tokens) == (0.5, 0.9, 5, 7)
    assert params.stop == ("a", "b")
    assert server.engine.submits[0].seed == 11
    assert params.speculative.enabled is False


@pytest.mark.parametrize("old", [False, True])
def test_a_schema_binds_the_answer(old: bool) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    format = {"type": "json_schema", "schema": schema}
    server, _ = seen({"output_format": format} if old else {"output_config": {"format": format}})
    grammar = server.engine.submits[0].params.grammar
    assert grammar is not None
    assert json.loads(grammar.text).items() >= schema.items()


def test_tools_are_shown_to_the_template() -> None:
    examples = [{"city": "Oslo"}]
    first = {**WEATHER, "input_examples": examples, **CACHED}
    server, _ = seen({"tools": [first, {**CLOCK, "type": "custom"}]})
    weather, clock = (tool["function"] for tool in server.text.tools[-1])
    assert weather["description"].startswith("Tells the weather.")
    assert '"Oslo"' in weather["description"]
    assert weather["parameters"] == WEATHER["input_schema"]
    assert clock["name"] == "clock"


@pytest.mark.parametrize(
    ("choice", "bound_to"),
    [
        (None, None),
        ({"type": "auto"}, None),
        ({"type": "any"}, "weather"),
        ({"type": "any", "disable_parallel_tool_use": True}, "weather"),
        ({"type": "tool", "name": "clock"}, "clock"),
        ({"type": "none"}, None),
    ],
)
def test_tool_choice(choice: Any, bound_to: str | None) -> None:
    server, _ = seen({"tools": [WEATHER, CLOCK], "tool_choice": choice})
    grammar = server.engine.submits[0].params.grammar
    if bound_to is not None:
        assert grammar is not None
        assert bound_to in grammar.text
    if choice == {"type": "none"}:
        assert grammar is None
        assert not server.text.tools[-1]


ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


@pytest.mark.parametrize(
    ("body", "template", "variables", "kwargs"),
    [
        ({}, "<think>", ("enable_thinking",), {"enable_thinking": False}),
        ({}, "<think>", (), {}),
        ({}, "", (), {}),
        ({"thinking": {"type": "disabled"}}, "<think>", ("enable_thinking",), {"enable_thinking": False}),
        (ENABLED, "<think>", ("enable_thinking",), {"enable_thinking": True}),
        (ENABLED, "", (), {}),
        ({"thinking": {"type": "adaptive"}}, "<think>", ("enable_thinking",), {}),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
            "<think>",
            ("reasoning_effort",),
            {"reasoning_effort": "high"},
        ),
    ],
)
def test_thinking(
    body: dict[str, Any], template: str, variables: tuple[str, ...], kwargs: dict[str, Any]
) -> None:
    server, _ = seen(body, text=ByteText(template, variables=variables))
    assert server.text.template_kwargs[-1] == kwargs


def test_what_a_coding_agent_sends() -> None:
    """Fields without an effect here, which clients cannot be told to leave out."""
    _, response = seen(
        {
            "model": "tiny",
            "metadata": {"user_id": "u"},
            "service_tier": "auto",
            "system": [{**text("You are an agent."), "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
            "messages": [user({**text("Hi"), **CACHED})],
            "tools": [{**WEATHER, "eager_input_streaming": True, **CACHED}],
            "thinking": {"type": "adaptive"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "medium"},
        }
    )
    assert response.json()["model"] == "tiny"


def test_tokens_are_counted_as_they_will_be() -> None:
    async def run() -> None:
        async with serving(says(b"ok"), n_ctx=1000) as server:
            body = {"messages": HELLO, "system": "Be brief.", "tools": [WEATHER]}
            counted = (await server.post(COUNT, body)).json()
            assert not server.engine.submits
            answer = (await server.post(PATH, {**body, "max_tokens": 5})).json()
            assert counted == {"input_tokens": answer["usage"]["input_tokens"]}

    asyncio.run(run())


def test_more_tokens_than_the_context_has_can_be_counted() -> None:
    body = {"messages": [{"role": "user", "content": "x" * 5000}]}
    assert ask(says(b"never"), COUNT, body).json()["input_tokens"] > 5000


def answer(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


USE = {"type": "tool_use", "id": "t", "name": "f"}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
CLEAR_USES = {"edits": [{"type": "clear_tool_uses_20250919"}]}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [user(IMAGE)]}, "messages[0].content[0]"),
    ({"messages": [user({"type": "document", "source": {}})]}, "messages[0].content[0]"),
    ({"messages": [user({"type": "text"})]}, "messages[0].content[0].text"),
    ({"messages": [user({**USE, "input": {}})]}, "messages[0].content[0]"),
    ({"messages": [answer({**USE, "input": "x"}), *HELLO]}, "messages[0].content[0].input"),
    ({"messages": [user(RESULT)]}, "messages[0].content[0].tool_use_id"),
    ({"messages": [*HELLO, {"role": "assistant", "content": "I"}]}, "messages"),
    ({"system": [IMAGE]}, "system[0]"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": 1.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"stop_sequences": "x"}, "stop_sequences"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": [{**WEATHER, "name": "a b"}]}, "tools[0].name"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
    ({"tools": [{**WEATHER, "input_schema": {"type": "string"}}]}, "tools[0].input_schema"),
    ({"tools": [{**WEATHER, "defer_loading": True}]}, "tools[0].defer_loading"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "f"}, "tools": [WEATHER]}, "tool_choice.name"),
    ({"tool_choice": {"type": "perhaps"}, "tools": [WEATHER]}, "tool_choice"),
    ({"thinking": {"type": "between_tools"}}, "thinking"),
    ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
    ({"mcp_servers": [{"type": "url", "url": "http://x", "name": "x"}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"compaction": {"type": "summarize"}}, "compaction"),
    ({"context_management": CLEAR_USES}, "context_management.edits[0]"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
    ({"output_config": {"effort": "some"}}, "output_config.effort"),
    ({"max_output_tokens": 5}, "max_output_tokens"),
]


@pytest.mark.parametrize(("body", "name"), REFUSED, ids=[name for _, name in REFUSED])
def test_refusals_name_the_field(body: dict[str, Any], name: str) -> None:
    response = ask(says(b"never"), PATH, {**BODY, **body})
    assert response.status_code == 400, response.text
    error = response.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert name in error["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"model": "claude-5"}, 404, "not_found_error"),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": "refuse me"}]}, 400, "invalid_request_error"),
    ],
)
def test_errors_are_anthropics(body: dict[str, Any], status: int, kind: str) -> None:
    response = ask(says(b"never"), PATH, {**BODY, **body})
    assert response.status_code == status
    assert response.json()["error"]["type"] == kind


def test_a_model_that_must_think_cannot_be_told_not_to() -> None:
    body = {**BODY, "thinking": {"type": "disabled"}}
    response = ask(says(b"never"), PATH, body, text=ByteText("<think>"))
    assert response.status_code == 400
    assert "'thinking'" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", [PATH, COUNT, f"{PATH}/batches"])
def test_the_key_comes_in_either_header(path: str) -> None:
    async def run() -> None:
        async with serving(says(b"ok"), api_keys=("secret",)) as server:
            for headers in ({}, {"x-api-key": "wrong"}, {"Authorization": "Bearer wrong"}):
                response = await server.post(path, BODY, headers=headers)
                assert response.status_code == 401
                assert response.json()["error"]["type"] == "authentication_error"
            for headers in ({"x-api-key": "secret"}, {"Authorization": "Bearer secret"}):
                response = await server.post(path, BODY, headers=headers)
                assert response.status_code in (200, 400, 404)  # by path and fields, not by key

    asyncio.run(run())


def test_a_thread_is_refused_so_that_clients_go_on_without() -> None:
    response = ask(says(b"never"), PATH, {**BODY, "thread": {"type": "create"}})
    assert response.status_code == 400
    assert response.json()["error"]["details"] == {"error_code": "thread_unsupported_request"}
    assert response.headers["request-id"] == response.json()["request_id"]


def test_other_refusals_are_in_the_same_words() -> None:
    async def run() -> None:
        async with serving(says(b"ok"), ready=False) as server:
            loading = await server.post(PATH, BODY)
            assert loading.status_code == 503
            assert loading.json()["error"]["type"] == "overloaded_error"
            assert "retry-after" in loading.headers
            wrong_method = await server.http.get(PATH)
            assert wrong_method.status_code == 405
            assert wrong_method.json()["type"] == "error"
            no_route = await server.post(f"{PATH}/batches", {})
            assert no_route.status_code == 404
            assert no_route.json()["error"]["type"] == "not_found_error"
            malformed = await server.http.post(PATH, content=b"{")
            assert malformed.json()["error"]["type"] == "invalid_request_error"

    asyncio.run(run())
