"""POST /v1/responses: every event, in its order, and the whole that they add up to."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent

from lucebox.errors import EngineError
from tests.support.official_types import named_events, parsed, unknown_fields
from tests.support.scripted_engine import Script, fails, says, thinker
from tests.support.serving import ask

PATH = "/v1/responses"
OURS = {"store", "timings"}  # what the client's types do not know: OpenAI sends the first one all the same
WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
CALL = b'<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def streamed(script: Script, body: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The events of an answer, each as OpenAI's client knows it, numbered without a gap."""
    events = named_events(ask(script, PATH, {"input": "hi", "stream": True, **body}, **options))
    for event in events:
        assert unknown_fields(parsed(ResponseStreamEvent, event)) <= OURS, event
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def whole(script: Script, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    response = ask(script, PATH, {"input": "hi", **body}, **options)
    assert response.status_code == 200, response.text
    assert unknown_fields(parsed(Response, response.json())) <= OURS
    return dict(response.json())


def timeless(response: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between any two answers; ids are numbered as they come."""
    numbers = count()
    output = [{**item, "id": next(numbers)} for item in response["output"]]
    for item in output:
        if "call_id" in item:
            item["call_id"] = next(numbers)
    left_out = ("id", "created_at", "completed_at", "timings")
    return {key: value for key, value in response.items() if key not in left_out} | {"output": output}


TEXT_EVENTS = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def test_the_events_of_a_text() -> None:
    events = streamed(says(b"Hello", b" you"), {})
    kinds = [event["type"] for event in events]
    assert list(dict.fromkeys(kinds)) == TEXT_EVENTS
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Hello you"
    created, last = events[0]["response"], events[-1]["response"]
    assert created["status"] == "in_progress"
    assert created["output"] == []
    assert created["usage"] is None
    assert last["status"] == "completed"
    assert last["id"] == created["id"]
    (item,) = last["output"]
    assert item["status"] == "completed"
    assert item["content"] == [
        {"type": "output_text", "text": "Hello you", "annotations": [], "logprobs": []}
    ]
    assert {event["item_id"] for event in events if "item_id" in event} == {item["id"]}
    assert events[2]["item"] == {**item, "status": "in_progress", "content": []}
    assert events[-2]["item"] == item


def test_reasoning_text_and_calls_are_items_in_their_order() -> None:
    script = says(b"<think>", b"let me", b" see</think>", b"Looking. ", CALL)
    events = streamed(script, {"tools": [WEATHER]}, text=thinker())
    added = [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"]
    assert added == ["reasoning", "message", "function_call"]
    for kind, field, text in (
        ("reasoning_text", "text", "let me see"),
        ("output_text", "text", "Looking."),
        ("function_call_arguments", "arguments", '{"city": "Oslo"}'),
    ):
        deltas = [event["delta"] for event in events if event["type"] == f"response.{kind}.delta"]
        (done,) = [event for event in events if event["type"] == f"response.{kind}.done"]
        assert done[field].strip() == text
        assert "".join(deltas) == done[field]
    (done,) = [event for event in events if event["type"] == "response.function_call_arguments.done"]
    assert done["name"] == "weather"
    output = events[-1]["response"]["output"]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == output
    assert [item["status"] for item in output] == ["completed"] * 3
    assert output[2]["call_id"].startswith("call_")


def test_one_item_ends_before_the_next_begins() -> None:
    events = streamed(says(b"<think>a</think>b", CALL, CALL), {"tools": [WEATHER]}, text=thinker())
    open_item: int | None = None
    for event in events:
        match event["type"]:
            case "response.output_item.added":
                assert open_item is None
                open_item = event["output_index"]
            case "response.output_item.done":
                assert open_item == event["output_index"]
                open_item = None
            case _ if "output_index" in event:
                assert event["output_index"] == open_item
    assert open_item is None
    assert len(events[-1]["response"]["output"]) == 4


@pytest.mark.parametrize(
    ("script", "body"),
    [
        (says(b"Hello", b" you"), {}),
        (says(b"<think>hm</think>", b"Well. ", CALL, CALL), {"tools": [WEATHER], "metadata": {"a": "b"}}),
        (says(b"cut", reason="length"), {"max_output_tokens": 3, "instructions": "Be brief."}),
        (says(b"ab"), {"include": ["message.output_text.logprobs"], "top_logprobs": 1}),
        (says(b""), {}),
    ],
)
def test_a_stream_adds_up_to_the_whole_answer(script: Script, body: dict[str, Any]) -> None:
    last = streamed(script, body, text=thinker())[-1]["response"]
    assert timeless(last) == timeless(whole(script, body, text=thinker()))


def test_an_answer_that_is_cut_off_is_incomplete() -> None:
    events = streamed(says(b"Hel", reason="length"), {"max_output_tokens": 3})
    assert events[-1]["type"] == "response.incomplete"
    last = events[-1]["response"]
    assert last["status"] == "incomplete"
    assert last["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["completed_at"] is None
    assert last["output"][0]["status"] == "incomplete"
    assert last["usage"]["output_tokens"] == 3


def test_an_empty_answer_is_an_empty_message() -> None:
    (item,) = whole(says(b""), {})["output"]
    assert item["content"][0]["text"] == ""


def test_log_probabilities_go_with_the_text() -> None:
    body = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "tools": [WEATHER]}
    events = streamed(says(b"<think>no</think>", b"yes", CALL), body, text=thinker())
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    entries = [entry for event in deltas for entry in event["logprobs"]]
    (done,) = [event for event in events if event["type"] == "response.output_text.done"]
    assert done["logprobs"] == entries
    assert "yes" in "".join(entry["token"] for entry in entries)
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    kept = events[-1]["response"]["output"][1]["content"][0]["logprobs"]
    assert [entry["token"] for entry in kept] == [entry["token"] for entry in entries]
    assert bytes(kept[0]["bytes"]).decode() == kept[0]["token"]


def test_an_error_before_the_first_token_has_a_status() -> None:
    response = ask(fails(EngineError("no memory")), PATH, {"input": "hi", "stream": True})
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_error"


def test_an_error_in_mid_stream_fails_the_response() -> None:
    events = streamed(fails(EngineError("lost /secret/folder/x"), b"Hel"), {})
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["code"] == "engine_error"
    failed = events[-1]["response"]
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": "server_error", "message": events[-2]["message"]}
    assert "secret" not in str(failed["error"])
    assert failed["output"][0]["content"][0]["text"] == "Hel"


def test_the_bill() -> None:
    body = whole(says(b"<think>hm</think>", b"ok"), {}, text=thinker())
    usage = body["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]
    assert usage["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    assert body["timings"]["predicted_n"] == usage["output_tokens"]
