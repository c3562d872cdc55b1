"""POST /v1/messages: every event, in its order, and the whole that they add up to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from jiter import from_json

from lucebox.errors import EngineError
from lucebox.server.messages_api.partial_json import partial_object
from tests.support.official_types import named_events, parsed, unknown_fields
from tests.support.scripted_engine import Script, fails, says, thinker
from tests.support.serving import HELLO, ask

PATH = "/v1/messages"
OURS = {"timings"}
BODY = {"messages": HELLO, "max_tokens": 40}
WEATHER = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = b'<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def streamed(script: Script, body: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The events of an answer, each as Anthropic's client knows it."""
    events = named_events(ask(script, PATH, {**BODY, "stream": True, **body}, **options))
    for event in events:
        if event["type"] not in ("ping", "error"):  # the client's own stream leaves them out
            assert unknown_fields(parsed(RawMessageStreamEvent, event)) <= OURS, event
    return events


def whole(script: Script, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    response = ask(script, PATH, {**BODY, **body}, **options)
    assert response.status_code == 200, response.text
    assert unknown_fields(parsed(Message, response.json())) <= OURS
    return dict(response.json())


def added_up(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client makes of the events."""
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] += delta["signature"]
                    case "input_json_delta":
                        inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
                        block["input"] = from_json(inputs[event["index"]].encode(), partial_mode=True)
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
    return message


def timeless(message: dict[str, Any]) -> dict[str, Any]:
    content = [{key: value for key, value in block.items() if key != "id"} for block in message["content"]]
    return {key: message[key] for key in message.keys() - {"id", "timings"}} | {"content": content}


def test_the_events_of_a_text() -> None:
    events = streamed(says(b"Hello", b" you"), {})
    assert list(dict.fromkeys(event["type"] for event in events)) == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start = events[0]["message"]
    assert start["content"] == []
    assert start["stop_reason"] is None
    assert start["usage"]["input_tokens"] > 0
    assert added_up(events)["content"] == [{"type": "text", "text": "Hello you", "citations": None}]
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == len("Hello you") + 1


@pytest.mark.parametrize(
    ("script", "body"),
    [
        (says(b"Hello", b" you"), {}),
        (says(b"<think>hm", b" hm</think>", b"Well. ", CALL, CALL), {"tools": [WEATHER], **THINKS}),
        (says(b"<think>hm</think>", b"Well. "), {"thinking": {"type": "adaptive", "display": "omitted"}}),
        (says(b"cut", reason="length"), {"max_tokens": 3}),
        (says(b"a STOP", stop_string=b"STOP", keep_bytes=2), {"stop_sequences": ["STOP"]}),
        (says(CALL[:-30], reason="length"), {"tools": [WEATHER]}),
        (says(b""), {}),
    ],
)
def test_a_stream_adds_up_to_the_whole_answer(script: Script, body: dict[str, Any]) -> None:
    events = streamed(script, body, text=thinker())
    assert timeless(added_up(events)) == timeless(whole(script, body, text=thinker()))


def test_thinking_text_and_tools_are_blocks_in_their_order() -> None:
    script = says(b"<think>", b"let me", b" see</think>", b"Looking. ", CALL)
    message = whole(script, {"tools": [WEATHER], **THINKS}, text=thinker())
    thinking, text, use = message["content"]
    assert thinking["thinking"].strip() == "let me see"
    assert thinking["signature"]
    assert text["text"].strip() == "Looking."
    assert use["name"] == "weather"
    assert use["input"] == {"city": "Oslo"}
    assert use["id"].startswith("toolu_")
    assert message["stop_reason"] == "tool_use"
    details = message["usage"]["output_tokens_details"]
    assert 0 < details["thinking_tokens"] < message["usage"]["output_tokens"]


def test_blocks_do_not_overlap() -> None:
    events = streamed(says(b"<think>a</think>b", CALL, CALL), {"tools": [WEATHER], **THINKS}, text=thinker())
    growing: int | None = None
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert growing is None
                growing = event["index"]
            case "content_block_delta":
                assert growing == event["index"]
            case "content_block_stop":
                assert growing == event["index"]
                growing = None
            case "message_delta":
                assert growing is None
    assert [event["index"] for event in events if event["type"] == "content_block_stop"] == [0, 1, 2, 3]


def test_omitted_thinking_is_signed_all_the_same() -> None:
    body = {"thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}}
    events = streamed(says(b"<think>secret</think>ok"), body, text=thinker())
    assert "secret" not in json.dumps(events)
    thinking = added_up(events)["content"][0]
    assert thinking["thinking"] == ""
    assert thinking["signature"]


@pytest.mark.parametrize(
    ("script", "body", "reason", "sequence"),
    [
        (says(b"ok"), {}, "end_turn", None),
        (says(b"okS", stop_string=b"S", keep_bytes=2), {"stop_sequences": ["S"]}, "stop_sequence", "S"),
        (says(b"okk", reason="length"), {"max_tokens": 3}, "max_tokens", None),
        (says(b"okk", reason="length"), {"max_tokens": 4}, "model_context_window_exceeded", None),
        (says(CALL), {"tools": [WEATHER]}, "tool_use", None),
    ],
)
def test_stop_reasons(script: Script, body: dict[str, Any], reason: str, sequence: str | None) -> None:
    message = whole(script, body)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)
    (delta,) = [event for event in streamed(script, body) if event["type"] == "message_delta"]
    assert delta["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


def test_an_error_before_the_first_token_has_a_status() -> None:
    response = ask(fails(EngineError("no memory")), PATH, {**BODY, "stream": True})
    assert response.status_code == 503
    error = response.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "overloaded_error"
    assert error["request_id"] == response.headers["x-request-id"]


def test_an_error_in_mid_stream_is_an_event() -> None:
    events = streamed(fails(EngineError("lost /secret/folder/x"), b"Hel"), {})
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] == "overloaded_error"
    assert "secret" not in str(events[-1])
    assert added_up(events)["content"][0]["text"] == "Hel"


WHOLE = '{"a": [1, "two", {"b\\"c": null}, true], "d": "x\\\\", "e": {"f": -1.5e3}, "g": "\\u00e9"}'


@pytest.mark.parametrize("n", range(len(WHOLE) + 1))
def test_partial_input_is_what_the_client_makes_of_it(n: int) -> None:
    """Where both can tell: the client's parser also takes numbers and words that may not have ended."""
    ours = partial_object(WHOLE[:n])
    theirs = from_json(WHOLE[:n].encode(), partial_mode=True) if n else {}
    assert isinstance(theirs, dict)
    assert ours.items() <= theirs.items() or list(ours)[:-1] == list(theirs)[:-1]
    assert len(ours) >= len(theirs) - 1
    if n == len(WHOLE):
        assert ours == theirs == json.loads(WHOLE)


@pytest.mark.parametrize("text", ["", "[1, 2", "1", "nul", '"a', "}", "{" * 5000, '{"a": 1}}', "\x00"])
def test_input_that_is_no_object(text: str) -> None:
    assert partial_object(text) in ({}, {"a": {}})
