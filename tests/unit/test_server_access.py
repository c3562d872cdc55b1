"""The access log, request ids and the API key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import httpx
import pytest

from lucebox.core import Origin
from lucebox.engine.messages import Event, Finish, StepEvent, Submit
from lucebox.engine.timings import Timings
from lucebox.errors import ContextLengthError, EngineError
from tests.support.scripted_engine import EOS, Script, fails, says
from tests.support.serving import CHAT, HELLO, serving

HI = says(b"Hi there")


def lines_of(
    caplog: pytest.LogCaptureFixture, script: Script, stream: bool, headers: dict[str, str]
) -> list[str]:
    async def run() -> httpx.Response:
        async with serving(script) as server:
            return await server.post(CHAT, {"messages": HELLO, "stream": stream}, headers=headers)

    with caplog.at_level(logging.INFO, "lucebox.server.access"):
        asyncio.run(run())
    return [record.getMessage() for record in caplog.records if record.name == "lucebox.server.access"]


@pytest.mark.parametrize("stream", [False, True])
def test_one_line_per_request(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    (line,) = lines_of(caplog, HI, stream, {"x-request-id": "mine-1"})
    assert line.startswith("127.0.0.1 POST '/v1/chat/completions' 200 ")
    assert "mine-1" in line
    assert "prompt 12 tokens in 10 ms at 1200.0/s" in line
    assert "generated 9 in 100 ms at 90.0/s" in line
    assert "drafts 6/9 accepted (model 5/6 + suffix 1/3), mean acceptance length 3.00" in line
    assert "hello" not in line  # nothing of what was said


def test_what_was_known_of_a_prompt_and_how_fast_the_rest_was(caplog: pytest.LogCaptureFixture) -> None:
    def script(submit: Submit) -> Iterator[Event]:
        timings = Timings(cache_n=8, prompt_n=4, prompt_ms=10.0, predicted_n=1, predicted_ms=10.0)
        finish = Finish(reason="stop", timings=timings)
        yield StepEvent(id=submit.id, tokens=[EOS], origins=[Origin.PLAIN], finish=finish)

    (line,) = lines_of(caplog, script, False, {})
    assert "prompt 12 tokens (8 known) in 10 ms at 400.0/s" in line


def test_a_failed_stream_says_why(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = lines_of(caplog, fails(EngineError("it died"), b"x"), True, {})
    assert line.endswith("it died")


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_says_why_and_claims_no_speed(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    (line,) = lines_of(caplog, fails(ContextLengthError(64, 70)), stream, {})
    assert " 400 " in line
    assert line.endswith("context_length_exceeded: messages")
    assert "/s" not in line


def test_ids_are_sane(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = lines_of(caplog, HI, False, {"x-request-id": "a b\tc"})
    assert "a b" not in line
    assert "req_" in line


def test_every_answer_has_its_id() -> None:
    async def run() -> None:
        async with serving(HI) as server:
            first = await server.http.get("/health")
            second = await server.http.get("/nothing")
            assert first.headers["x-request-id"].startswith("req_")
            assert first.headers["x-request-id"] != second.headers["x-request-id"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Basic s3cret", 401),
        ("s3cret", 401),
        ("Bearer", 401),
        ("Bearer s3cret", 200),
        ("bearer  s3cret", 200),
    ],
)
def test_api_key(header: str | None, status: int) -> None:
    async def run() -> None:
        async with serving(HI, api_keys=("other", "s3cret")) as server:
            headers = {} if header is None else {"authorization": header}
            response = await server.post(CHAT, {"messages": HELLO}, headers=headers)
            assert response.status_code == status
            if status == 401:
                assert response.json()["error"]["code"] == "invalid_api_key"
                assert server.engine.submits == []
            assert (await server.http.get("/health")).status_code == 200

    asyncio.run(run())


def test_no_cors() -> None:
    async def run() -> None:
        async with serving(HI) as server:
            response = await server.http.get("/v1/models", headers={"origin": "http://evil.example"})
            assert not [name for name in response.headers if name.startswith("access-control")]

    asyncio.run(run())
