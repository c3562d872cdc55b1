"""POST /v1/responses: what a request may say, what it comes to, and what is refused by name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.support.scripted_engine import ByteText, says
from tests.support.serving import Server, answered, ask, serving

PATH = "/v1/responses"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
CLOCK = {"type": "function", "name": "clock", "parameters": {}, "strict": False}


def seen(body: dict[str, Any], **options: Any) -> tuple[Server, httpx.Response]:
    return answered(PATH, {"input": "hi", **body}, **options)


def messages_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    server, _ = seen(body)
    return server.text.seen[-1]


def test_a_string_is_a_message_of_the_user() -> None:
    assert messages_of({"input": "hello"}) == [{"role": "user", "content": "hello"}]


def test_instructions_come_first() -> None:
    messages = messages_of({"instructions": "Be brief.", "input": [{"role": "user", "content": "hello"}]})
    assert [message["role"] for message in messages] == ["system", "user"]


def test_messages_and_their_parts() -> None:
    messages = messages_of(
        {
            "input": [
                {"role": "developer", "content": "Be brief."},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {
                    "type": "message",
                    "id": "msg_1",
                    "status": "completed",
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "b", "annotations": [], "logprobs": []},
                        {"type": "refusal", "refusal": "no"},
                    ],
                },
                {"role": "user", "content": [{"type": "input_text", "text": t} for t in "cd"]},
            ]
        }
    )
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b\nno"},
        {"role": "user", "content": "c\nd"},
    ]


def test_what_the_model_did_in_one_turn_is_one_message() -> None:
    call = {"type": "function_call", "id": "fc_1", "status": "completed", "name": "weather"}
    messages = messages_of(
        {
            "input": [
                {"role": "user", "content": "Weather?"},
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "hm"}],
                    "encrypted_content": None,
                },
                {"role": "assistant", "content": "Looking."},
                {**call, "call_id": "call_1", "arguments": '{"city":"Oslo"}'},
                {**call, "call_id": "call_2", "arguments": '{"city":"Rome"}'},
                {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
                {
                    "type": "function_call_output",
                    "call_id": "call_2",
                    "output": [{"type": "input_text", "text": "sun"}],
                },
            ],
            "tools": [WEATHER],
        }
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    turn = messages[1]
    assert turn["content"] == "Looking."
    assert turn["reasoning_content"] == "hm"
    assert [use["id"] for use in turn["tool_calls"]] == ["call_1", "call_2"]
    assert [message["content"] for message in messages[2:]] == ["rain", "sun"]
    assert [message["name"] for message in messages[2:]] == ["weather", "weather"]


def test_an_answer_goes_back_as_it_came() -> None:
    call = b'<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'

    async def run() -> None:
        script = says(b"<think>hm</think>", b"Looking. ", call)
        async with serving(script, n_ctx=1000, text=ByteText("<think> <tool_call>")) as server:
            question = [{"role": "user", "content": "Weather?"}]
            first = (await server.post(PATH, {"input": question, "tools": [WEATHER]})).json()
            result = {
                "type": "function_call_output",
                "call_id": first["output"][2]["call_id"],
                "output": "rain",
            }
            again = {"input": [*question, *first["output"], result], "tools": [WEATHER]}
            response = await server.post(PATH, again)
            assert response.status_code == 200, response.text
            assert [message["role"] for message in server.text.seen[-1]] == ["user", "assistant", "tool"]

    asyncio.run(run())


def test_parameters_reach_the_sampler() -> None:
    server, response = seen(
        {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_output_tokens": 7,
            "include": ["message.output_text.logprobs"],
            "top_logprobs": 3,
            "top_k": 5,
            "seed": 11,
            "speculative": False,
            "text": {"format": {"type": "json_object"}},
        }
    )
    params = server.engine.submits[0].params
    assert (params.temperature, params.top_p, params.max_tokens, params.logprobs) == (0.5, 0.9, 7, 3)
    assert (params.top_k, server.engine.submits[0].seed) == (5, 11)
    assert params.speculative.enabled is False
    assert params.grammar is not None
    body = response.json()
    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0.5, 0.9, 7)
    assert body["text"] == {"format": {"type": "json_object"}, "verbosity": "medium"}
    assert body["top_logprobs"] == 3


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_binds_the_answer(strict: bool | None) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    format = {"type": "json_schema", "name": "thing", "schema": schema, "strict": strict}
    server, response = seen({"text": {"format": format}})
    grammar = server.engine.submits[0].params.grammar
    assert grammar is not None
    assert grammar.kind == "json_schema"
    assert json.loads(grammar.text).items() >= schema.items()
    assert response.json()["text"]["format"] == format


def test_tools_are_shown_to_the_template() -> None:
    server, response = seen({"tools": [WEATHER, CLOCK]})
    assert [tool["function"]["name"] for tool in server.text.tools[-1]] == ["weather", "clock"]
    assert response.json()["tools"][0] == WEATHER
    assert response.json()["tool_choice"] == "auto"


NAMED = {"type": "function", "name": "clock"}


@pytest.mark.parametrize(
    ("choice", "is_bound"),
    [
        ("required", True),
        (NAMED, True),
        ({"type": "allowed_tools", "mode": "required", "tools": [NAMED]}, True),
        ("none", False),
    ],
)
def test_tool_choice(choice: Any, is_bound: bool) -> None:
    server, response = seen({"tools": [WEATHER, CLOCK], "tool_choice": choice})
    grammar = server.engine.submits[0].params.grammar
    assert (grammar is not None) == is_bound
    if isinstance(choice, dict):
        assert grammar is not None
        assert "clock" in grammar.text
        assert "weather" not in grammar.text
    assert response.json()["tool_choice"] == choice


def test_what_is_said_comes_back() -> None:
    given = {
        "instructions": "Be brief.",
        "metadata": {"a": "b"},
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
    }
    _, response = seen({**given, "store": True, "service_tier": "auto", "truncation": "disabled"})
    body = response.json()
    assert {name: body[name] for name in given} == given
    assert body["store"] is False
    assert body["object"] == "response"
    assert body["model"] == "tiny"


@pytest.mark.parametrize(
    ("effort", "template", "variables", "kwargs"),
    [
        ("none", "<think>", ("enable_thinking",), {"enable_thinking": False}),
        ("high", "<think>", ("enable_thinking",), {"enable_thinking": True}),
        ("max", "<think>", ("reasoning_effort",), {"reasoning_effort": "high"}),
        (None, "<think>", ("enable_thinking",), {}),
    ],
)
def test_effort(
    effort: str | None, template: str, variables: tuple[str, ...], kwargs: dict[str, Any]
) -> None:
    reasoning = {"effort": effort, "summary": "auto"}
    server, response = seen({"reasoning": reasoning}, text=ByteText(template, variables=variables))
    assert server.text.template_kwargs[-1] == kwargs
    assert response.json()["reasoning"] == {"effort": effort, "summary": None}


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": ["hi"]}, "input[0]"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": [IMAGE]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
    ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0]"),
    ({"input": [{"type": "function_call", "name": "f", "call_id": "c"}]}, "input[0].arguments"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0].call_id"),
    ({"tools": [{"type": "web_search"}]}, "tools[0]"),
    ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
    ({"tools": [{**WEATHER, "parameters": {"type": "array"}}]}, "tools[0].parameters"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "f"}, "tools": [WEATHER]}, "tool_choice.name"),
    ({"tool_choice": {"type": "file_search"}, "tools": [WEATHER]}, "tool_choice"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"background": True}, "background"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"truncation": "auto"}, "truncation"),
    ({"include": ["everything"]}, "include[0]"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"include": ["message.output_text.logprobs"], "top_logprobs": 21}, "top_logprobs"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"text": {"format": {"type": "xml"}}}, "text.format"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"reasoning": {"effort": "some"}}, "reasoning.effort"),
    ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
    ({"metadata": {"a": "x" * 513}}, "metadata"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"speculative": {"drafter": "psychic"}}, "speculative.drafter"),
    ({"max_tokens": 5}, "max_tokens"),
    ({"input": "x" * 2000}, "input"),
    ({"input": "refuse me"}, "input"),
]


@pytest.mark.parametrize(("body", "param"), REFUSED, ids=[param for _, param in REFUSED])
def test_refusals_name_the_field(body: dict[str, Any], param: str) -> None:
    response = ask(says(b"never"), PATH, {"input": "hi", **body})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["code"]


def test_an_unknown_model_is_not_found() -> None:
    response = ask(says(b"never"), PATH, {"input": "hi", "model": "gpt-5"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"
