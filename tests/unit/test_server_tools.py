"""Tools of chat completions: definitions, choices, calls in answers and in conversations."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lucebox.core import Origin
from lucebox.engine.messages import Finish, StepEvent, Submit
from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from tests.support.scripted_engine import EOS, ByteText, Script, says
from tests.support.serving import CHAT, HELLO, events, serving

F = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
G = {"type": "function", "function": {"name": "g", "description": "Does g."}}
NAMED_F = {"type": "function", "function": {"name": "f"}}
CALL = b'<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
DEEP: Any = json.loads('{"x": ' * 300 + "1" + "}" * 300)
TOOL_CALLS, ARGS = 258, 259


def ask(script: Script, body: Any = None, text: ByteText | None = None, **fields: Any) -> httpx.Response:
    return asked(script, {"messages": HELLO, "tools": [F, G]} | (body or {}) | fields, text)[0]


def asked(
    script: Script, body: Any, text: ByteText | None = None
) -> tuple[httpx.Response, list[Submit], ByteText]:
    """The response, what reached the engine, and what reached the template."""

    async def run() -> tuple[httpx.Response, list[Submit], ByteText]:
        async with serving(script, n_ctx=2000, text=text) as server:
            response = await server.post(CHAT, body)
            return response, server.engine.submits, server.text

    return asyncio.run(run())


def choice_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def error_of(response: httpx.Response) -> Any:
    assert response.status_code == 400, response.text
    return response.json()["error"]


def merged(chunks: list[Any], index: int = 0) -> tuple[str, list[dict[str, str]], str | None]:
    """Content, calls and the end of a streamed choice."""
    content, calls, end = "", [], None
    for choice in (c for chunk in chunks for c in chunk["choices"] if c["index"] == index):
        content += choice["delta"].get("content", "")
        for call in choice["delta"].get("tool_calls", []):
            function = call["function"]
            if "id" in call:
                assert call["index"] == len(calls)
                assert call["type"] == "function"
                calls.append({"id": call["id"], "name": function["name"], "arguments": ""})
            calls[call["index"]]["arguments"] += function["arguments"]
        end = choice["finish_reason"] or end
    return content, calls, end


def of_tokens(*tokens: int | bytes) -> Script:
    """A script of token ids, control tokens among them, one step each."""
    ids = [id for token in tokens for id in ([token] if isinstance(token, int) else token)]

    def script(submit: Submit) -> Iterator[StepEvent]:
        for id in ids:
            yield StepEvent(id=submit.id, tokens=[id], origins=[Origin.PLAIN])
        yield StepEvent(id=submit.id, tokens=[EOS], origins=[Origin.PLAIN], finish=Finish(reason="stop"))

    return script


def test_a_call() -> None:
    choice = choice_of(ask(says(CALL)))
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert message["content"] is None
    (call,) = message["tool_calls"]
    assert call == {"id": call["id"], "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert call["id"].startswith("call_")


def test_content_and_several_calls() -> None:
    two = CALL + b"\n" + CALL.replace(b'"f"', b'"g"')
    message = choice_of(ask(says(b"Let me see.\n", two)))["message"]
    assert message["content"] == "Let me see."
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["f", "g"]
    assert len({call["id"] for call in message["tool_calls"]}) == 2


@pytest.mark.parametrize("n", [1, 2])
def test_a_streamed_call_is_the_same(n: int) -> None:
    script = says(*(CALL[i : i + 5] for i in range(0, len(CALL), 5)))
    chunks = events(ask(script, stream=True, n=n, stream_options={"include_usage": True}))
    for index in range(n):
        content, (call,), end = merged(chunks, index)
        assert (content, call["name"], call["arguments"], end) == ("", "f", '{"a": 1}', "tool_calls")
    assert chunks[-1]["usage"]["completion_tokens"] == n * (len(CALL) + 1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_cut_off_ends_by_length(stream: bool) -> None:
    response = ask(says(CALL[:-20], reason="length"), stream=stream)
    if stream:
        _, (call,), end = merged(events(response))
        arguments = call["arguments"]
    else:
        choice = choice_of(response)
        end, arguments = choice["finish_reason"], choice["message"]["tool_calls"][0]["function"]["arguments"]
    assert end == "length"
    assert '{"a": 1}'.startswith(arguments)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", [b"Hello", b"<tool_call>\nrubbish", b'<tool_call>{"name": "x"}</tool_call>'])
def test_what_is_no_call_comes_as_text(text: bytes, stream: bool) -> None:
    response = ask(says(text), stream=stream)
    if stream:
        assert merged(events(response)) == (text.decode(), [], "stop")
    else:
        choice = choice_of(response)
        assert choice["message"] == {"role": "assistant", "content": text.decode(), "refusal": None}
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("fields", [{"tool_choice": "none"}, {"tools": []}, {"tools": None}])
def test_without_tools_calls_are_text(fields: dict[str, Any]) -> None:
    body = {"messages": HELLO, "tools": [F]} | fields
    response, (submit,), text = asked(says(CALL), body)
    assert choice_of(response)["message"]["content"] == CALL.decode()
    assert submit.params.grammar is None
    assert text.tools == [[]]


@pytest.mark.parametrize(
    ("choice", "allows_text", "allowed"),
    [
        (None, True, {"f", "g"}),
        ("auto", True, {"f", "g"}),
        ("required", False, {"f", "g"}),
        (NAMED_F, False, {"f"}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED_F]}}, True, {"f"}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED_F]}}, False, {"f"}),
    ],
)
def test_the_choice_binds_the_answer(choice: Any, allows_text: bool, allowed: set[str]) -> None:
    body = {"messages": HELLO, "tools": [F, G], "tool_choice": choice}
    _, (submit,), text = asked(says(CALL), body)
    grammar = submit.params.grammar
    assert grammar is not None
    assert text.grammars == [grammar], "it was checked before it went to the engine"
    assert ("FREE_TEXT" in grammar.text) is allows_text
    assert {name for name in ("f", "g") if f'"const": "{name}"' in grammar.text} == allowed
    # The prompt is the same whatever the choice, for the sake of caches.
    assert [tool["function"]["name"] for tool in text.tools[0]] == ["f", "g"]


def test_tools_reach_the_template_as_openai_has_them() -> None:
    _, _, text = asked(says(CALL), {"messages": HELLO, "tools": [F, G]})
    empty = {"type": "object", "properties": {}}
    assert text.tools == [
        [
            {"type": "function", "function": {"name": "f", "description": "", "parameters": empty}},
            {"type": "function", "function": {"name": "g", "description": "Does g.", "parameters": empty}},
        ]
    ]


def test_a_template_without_tools_is_told_in_words() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", **NAMED_F}]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "tool", "tool_call_id": "2", "content": "43"},
    ]
    messages[2]["tool_calls"][0]["function"] = {"name": "f", "arguments": '{"a": 1}'}
    script = says(b'{"name": "g", "arguments": {}}')
    body = {"messages": messages, "tools": [F, G], "tool_choice": "required"}
    response, _, text = asked(script, body, ByteText("<|im_start|>"))
    (call,) = choice_of(response)["message"]["tool_calls"]
    assert call["function"] == {"name": "g", "arguments": "{}"}
    assert text.tools == [[]]
    system, _, assistant, results = text.seen[0]
    assert system["content"].startswith("Be brief.\n\nYou can call these functions:")
    assert "Does g." in system["content"]
    assert json.loads(assistant["content"]) == {"name": "f", "arguments": {"a": 1}}
    assert results["role"] == "user"
    assert "42" in results["content"]
    assert "43" in results["content"]


def test_control_tokens_are_seen_by_the_parser_alone() -> None:
    text = ByteText("[TOOL_CALLS]", named_tokens={"[TOOL_CALLS]": TOOL_CALLS, "[ARGS]": ARGS})
    script = of_tokens(b"Hm ", TOOL_CALLS, b"f", ARGS, b'{"a": 1}')
    message = choice_of(ask(script, None, text))["message"]
    assert message["content"] == "Hm"
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    text = ByteText("[TOOL_CALLS]", named_tokens={"[TOOL_CALLS]": TOOL_CALLS, "[ARGS]": ARGS})
    assert choice_of(ask(script, {"tools": []}, text))["message"]["content"] == 'Hm f{"a": 1}'


def test_stop_strings_count_no_control_tokens() -> None:
    text = ByteText("[TOOL_CALLS]", named_tokens={"[TOOL_CALLS]": TOOL_CALLS, "[ARGS]": ARGS})

    def script(submit: Submit) -> Iterator[StepEvent]:
        tokens = [*b"ab", TOOL_CALLS, *b"cST", TOOL_CALLS, *b"OP"]
        finish = Finish(reason="stop", stop_string=b"STOP", keep_bytes=3)
        yield StepEvent(id=submit.id, tokens=tokens[:5], origins=[Origin.PLAIN] * 5)
        yield StepEvent(id=submit.id, tokens=tokens[5:], origins=[Origin.PLAIN] * 4, finish=finish)

    choice = choice_of(ask(script, {"stop": "STOP"}, text))
    assert choice["message"]["content"] == "ab[TOOL_CALLS]c"
    assert choice["finish_reason"] == "stop"


def test_logprobs_of_a_call_are_those_of_its_tokens() -> None:
    choice = choice_of(ask(says(CALL), logprobs=True))
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == CALL.decode()


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ({}, "tools"),
        ([{}], "tools[0].type"),
        ([F, {"type": "function"}], "tools[1].function"),
        ([{"type": "function", "function": {}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": "f", "extra": 1}}], "tools[0].function.extra"),
        ([{"type": "function", "function": {"name": "a b"}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": ""}}], "tools[0].function.name"),
        ([{"type": "function", "function": {"name": "f", "parameters": []}}], "tools[0].function.parameters"),
        (
            [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}],
            "tools[0].function.parameters",
        ),
        (
            [{"type": "function", "function": {"name": "f", "parameters": {"properties": []}}}],
            "tools[0].function.parameters",
        ),
        (
            [{"type": "function", "function": {"name": "f", "parameters": DEEP}}],
            "tools[0].function.parameters",
        ),
        ([F, F], "tools[1].function.name"),
        ([{"type": "custom", "custom": {"name": "x"}}], "tools[0].type"),
        ([{"type": "web_search"}], "tools[0].type"),
        ([F] * 129, "tools"),
    ],
)
def test_wrong_tools_are_named(tools: Any, param: str) -> None:
    assert error_of(ask(says(b"Hi"), tools=tools))["param"] == param


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("always", "tool_choice"),
        (7, "tool_choice"),
        ({"type": "function", "function": {"name": "h"}}, "tool_choice.function.name"),
        ({"type": "function"}, "tool_choice.function"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
            "tool_choice.allowed_tools.tools",
        ),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "h"}}]},
            },
            "tool_choice.allowed_tools.tools[0].function.name",
        ),
        ({"type": "custom", "custom": {"name": "x"}}, "tool_choice.type"),
    ],
)
def test_wrong_choices_are_named(choice: Any, param: str) -> None:
    assert error_of(ask(says(b"Hi"), tool_choice=choice))["param"] == param


def test_arguments_of_any_depth_are_read() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps(DEEP)}}
    messages = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}]
    response, _, _ = asked(says(b"Hi"), {"messages": messages, "tools": [F]})
    assert choice_of(response)["message"]["content"] == "Hi"


def test_required_without_tools_is_refused() -> None:
    assert error_of(ask(says(b"Hi"), tools=[], tool_choice="required"))["param"] == "tool_choice"


@pytest.mark.parametrize("field", ["functions", "function_call"])
def test_what_tools_replaced_is_refused_by_name(field: str) -> None:
    value = [{"name": "f"}] if field == "functions" else {"name": "f"}
    assert error_of(ask(says(b"Hi"), {field: value}))["param"] == field


def test_a_schema_that_cannot_be_enforced_is_named() -> None:
    class Picky(ByteText):
        def check_grammar(self, grammar: Grammar) -> None:
            if "impossible" in grammar.text:
                raise RequestError("The grammar cannot be used: impossible", param="grammar")

    bad = {"type": "function", "function": {"name": "h", "parameters": {"impossible": True}, "strict": True}}
    error = error_of(ask(says(b"Hi"), {"tools": [F, bad]}, Picky()))
    assert error["param"] == "tools[1].function.parameters"
    assert "impossible" in error["message"]


def test_an_answer_may_be_bound_beside_tools() -> None:
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    response, (submit,), _ = asked(
        says(b'{"x": 1}'), {"messages": HELLO, "tools": [F], "response_format": format}
    )
    assert choice_of(response)["message"]["content"] == '{"x": 1}'
    assert submit.params.grammar is not None
    assert "FREE_TEXT" not in submit.params.grammar.text
    error = error_of(ask(says(b"Hi"), grammar='root ::= "a"'))
    assert error["param"] == "grammar"


def test_a_call_and_its_result_come_back() -> None:
    message = choice_of(ask(says(CALL)))["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "42"}
    body = {"messages": [*HELLO, message, result], "tools": [F]}
    response, _, text = asked(says(b"It is 42."), body)
    assert choice_of(response)["message"]["content"] == "It is 42."
    assert text.seen[0][1]["tool_calls"] == message["tool_calls"]
    assert text.seen[0][2] == result
