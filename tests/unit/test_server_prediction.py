"""OpenAI's predicted outputs: they reach the engine as tokens, and the bill says what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from lucebox.core import Origin
from lucebox.engine.messages import Event, Finish, StepEvent, Submit
from lucebox.engine.timings import DrafterTotals, Timings
from tests.support.scripted_engine import N_CTX, says
from tests.support.serving import CHAT, HELLO, TEXT, ask, events, serving

HI = says(b"Hi")


def follows(submit: Submit) -> Iterator[Event]:
    """Three tokens of a prediction of which five were tried; a model guessed, too."""
    drafters = {
        "prediction": DrafterTotals(n_rounds=1, n_drafted=5, n_accepted=3),
        "model": DrafterTotals(n_rounds=1, n_drafted=7, n_accepted=1),
    }
    timings = Timings(predicted_n=3, drafters=drafters)
    yield StepEvent(
        id=submit.id,
        tokens=list(b"abc"),
        origins=[Origin.ACCEPTED] * 3,
        finish=Finish(reason="length", timings=timings),
    )


def submitted(prediction: Any) -> list[int]:
    async def run() -> list[int]:
        async with serving(HI) as server:
            body = {"messages": HELLO, "prediction": prediction}
            response = await server.post(CHAT, body)
            assert response.status_code == 200, response.text
            return server.engine.submits[0].prediction

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("def f(): pass", "def f(): pass"),
        ([{"type": "text", "text": "def f"}, {"type": "text", "text": "(): pass"}], "def f(): pass"),
        ("", ""),
        ([], ""),
    ],
)
def test_a_prediction_arrives_as_tokens(content: Any, text: str) -> None:
    assert submitted({"type": "content", "content": content}) == list(text.encode())


def test_what_no_answer_has_room_for_is_cut_off() -> None:
    assert submitted({"type": "content", "content": "x" * 50_000}) == list(b"x" * N_CTX)


def test_none_is_no_prediction() -> None:
    assert submitted(None) == []
    assert "completion_tokens_details" not in ask(HI, CHAT, {"messages": HELLO}).json()["usage"]


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("stream", [False, True])
def test_the_bill_says_what_was_accepted(stream: bool, n: int) -> None:
    body: dict[str, Any] = {
        "messages": HELLO,
        "n": n,
        "prediction": {"type": "content", "content": "abcde"},
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    response = ask(follows, CHAT, body)
    usage = events(response)[-1]["usage"] if stream else response.json()["usage"]
    assert usage["completion_tokens"] == 3 * n
    assert usage["completion_tokens_details"] == {
        "accepted_prediction_tokens": 3 * n,
        "rejected_prediction_tokens": 2 * n,
    }


@pytest.mark.parametrize(
    ("prediction", "param", "code"),
    [
        ("abc", "prediction", "invalid_type"),
        ({"content": "abc"}, "prediction.type", "missing_required_parameter"),
        ({"type": "content"}, "prediction.content", "missing_required_parameter"),
        ({"type": "text", "content": "abc"}, "prediction.type", "invalid_value"),
        ({"type": "content", "content": 1}, "prediction.content", "invalid_type"),
        ({"type": "content", "content": ["a"]}, "prediction.content[0]", "invalid_type"),
        (
            {"type": "content", "content": [{"text": "a"}]},
            "prediction.content[0].type",
            "missing_required_parameter",
        ),
        ({"type": "content", "content": "a", "n": 1}, "prediction.n", "unknown_parameter"),
        (
            {"type": "content", "content": [{"type": "image_url", "image_url": {}}]},
            "prediction.content[0].type",
            "invalid_value",
        ),
    ],
)
def test_anything_else_is_refused_by_name(prediction: Any, param: str, code: str) -> None:
    response = ask(HI, CHAT, {"messages": HELLO, "prediction": prediction})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, code)
    assert f"'{param}'" in error["message"]


def test_completions_take_no_prediction() -> None:
    response = ask(HI, TEXT, {"prompt": "a", "prediction": {"type": "content", "content": "b"}})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prediction"
