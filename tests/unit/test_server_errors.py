"""Errors in OpenAI's shape: routes, models, an engine that is not there or fails in the middle."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from lucebox.engine.messages import StepEvent
from lucebox.errors import ContextLengthError, EngineError, LuceboxError, ModelFileError, NoTokenError
from lucebox.server.errors import without_folders
from tests.support.scripted_engine import fails, says, steps
from tests.support.serving import CHAT, HELLO, TEXT, Connection, ask, http_scope, serving

HI = says(b"Hi")
BODY = {"messages": HELLO}


def test_unknown_route_and_method() -> None:
    async def run() -> None:
        async with serving(HI) as server:
            missing = await server.http.get("/v1/nothing")
            assert missing.status_code == 404
            assert missing.json()["error"]["message"] == "Invalid URL (GET /v1/nothing)."
            wrong = await server.http.get(CHAT)
            assert wrong.status_code == 405
            assert wrong.json()["error"]["type"] == "invalid_request_error"
            assert "POST" in wrong.headers["allow"]

    asyncio.run(run())


@pytest.mark.parametrize("name", [None, "tiny", "tiny-q4", "tiny-q4.gguf"])
def test_names_of_the_model(name: str | None) -> None:
    response = ask(HI, CHAT, {**BODY, "model": name})
    assert response.json()["model"] == "tiny"


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_unknown_model(path: str) -> None:
    response = ask(
        HI, path, {"model": "gpt-4o", "messages": HELLO} if path == CHAT else {"model": "x", "prompt": "a"}
    )
    assert response.status_code == 404
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")


@pytest.mark.parametrize("stream", [False, True])
def test_errors_of_the_engine_before_the_first_token_have_a_status(stream: bool) -> None:
    script = fails(ContextLengthError(64, 70))
    response = ask(script, CHAT, {**BODY, "stream": stream})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert response.headers["content-type"] == "application/json"

    response = ask(fails(EngineError("it died twice")), CHAT, {**BODY, "stream": stream})
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) > 0
    assert response.json()["error"] == {
        "message": "it died twice",
        "type": "server_error",
        "param": None,
        "code": "engine_error",
    }


def test_an_error_in_mid_stream_is_an_event_and_the_end() -> None:
    response = ask(fails(EngineError("it died twice"), b"Hel", b"lo"), CHAT, {**BODY, "stream": True})
    assert response.status_code == 200
    *before, last = [block.removeprefix("data: ") for block in response.text.split("\n\n") if block]
    assert "[DONE]" not in before
    assert json.loads(last)["error"]["message"] == "it died twice"
    text = "".join(json.loads(block)["choices"][0]["delta"]["content"] for block in before)
    assert text == "Hello"


def test_one_failed_choice_ends_the_others() -> None:
    async def run() -> None:
        def script(submit: Any) -> Any:
            return fails(EngineError("no"))(submit) if submit.id.endswith("/1") else HI(submit)

        async with serving(script) as server:
            response = await server.post(CHAT, {**BODY, "n": 2})
            assert response.status_code == 503
            async with asyncio.timeout(10):  # the engine's thread hears of it in its own time
                while server.engine.status().n_in_flight:
                    await asyncio.sleep(0.005)

    asyncio.run(run())


JSON_OBJECT = {"type": "json_object"}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
# Where grammars come from: path, what the request has, the field to be named.
GRAMMARS: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": HELLO, "response_format": JSON_OBJECT}, "response_format"),
    (CHAT, {"messages": HELLO, "grammar": 'root ::= "a"'}, "grammar"),
    (CHAT, {"messages": HELLO, "tools": TOOLS}, "tools"),
    (CHAT, {"messages": HELLO, "tools": TOOLS, "response_format": JSON_OBJECT}, "response_format"),
    (TEXT, {"prompt": "a", "response_format": JSON_OBJECT}, "response_format"),
    (TEXT, {"prompt": "a", "grammar": 'root ::= "a"'}, "grammar"),
    ("/v1/responses", {"input": "a", "text": {"format": JSON_OBJECT}}, "text.format"),
]


@pytest.mark.parametrize(("path", "body", "field"), GRAMMARS)
def test_grammars_that_fail_on_the_way_are_named_as_the_request_does(
    path: str, body: dict[str, Any], field: str
) -> None:
    response = ask(fails(NoTokenError("nothing can come next", param="grammar")), path, body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field


def test_while_loading_and_after_a_failure() -> None:
    async def run() -> None:
        async with serving(HI, ready=False) as server:
            loading = await server.post(CHAT, BODY)
            assert loading.status_code == 503
            assert loading.json()["error"]["code"] == "engine_loading"
            assert int(loading.headers["retry-after"]) > 0
            server.engine.fail(ModelFileError("/secret/folder/tiny-q4.gguf", "magic", "not a GGUF file"))
            failed = await server.post(CHAT, BODY)
            assert failed.status_code == 503
            assert failed.json()["error"]["code"] == "engine_failed"
            assert "tiny-q4.gguf: magic" in failed.json()["error"]["message"]
            assert "secret" not in failed.text

    asyncio.run(run())


def test_a_request_waits_out_a_restart() -> None:
    async def run() -> None:
        async with serving(HI) as server:
            server.engine.restart("the engine was killed")
            asking = asyncio.create_task(server.post(CHAT, BODY))
            await asyncio.sleep(0.05)
            assert not asking.done()
            server.engine.become_ready()
            assert (await asking).status_code == 200

    asyncio.run(run())


def test_a_restart_that_fails_answers_who_waits() -> None:
    async def run() -> None:
        async with serving(HI) as server:
            server.engine.restart("the engine was killed")
            asking = asyncio.create_task(server.post(CHAT, BODY))
            await asyncio.sleep(0.05)
            server.engine.fail(EngineError("it died 5 times"))
            response = await asking
            assert response.status_code == 503
            assert "it died 5 times" in response.json()["error"]["message"]

    asyncio.run(run())


def test_bugs_show_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError

    async def run() -> None:
        async with serving(HI) as server:
            server.text.encode_chat = broken  # type: ignore[method-assign]
            response = await server.post(CHAT, BODY, headers={"x-request-id": "abc"})
            assert response.status_code == 500
            assert response.json()["error"]["type"] == "server_error"
            assert "abc" in response.json()["error"]["message"]
            assert "Traceback" not in response.text

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/root/x/ggml.c:123: GGML_ASSERT(a/b) failed", "ggml.c:123: GGML_ASSERT(a/b) failed"),
        ("cannot read '/home/u/m.gguf'", "cannot read 'm.gguf'"),
        (r"C:\models\m.gguf is short", "m.gguf is short"),
        ("see http://example.org/a/b", "see http://example.org/a/b"),
        ("use /v1/completions, not /srv/v1/x", "use /v1/completions, not x"),
        ("3/4 layers on /dev/dri/card0", "3/4 layers on card0"),
    ],
)
def test_folders_are_cut(text: str, shown: str) -> None:
    assert without_folders(text) == shown


def test_no_folder_in_any_answer() -> None:
    async def run() -> None:
        async with serving(fails(LuceboxError("/secret/folder/x broke"))) as server:
            answers = [
                await server.post(CHAT, BODY),
                await server.post(CHAT, {**BODY, "stream": True}),
                await server.http.get("/v1/models"),
                await server.http.get("/health"),
            ]
            assert not any("secret" in answer.text for answer in answers)

    asyncio.run(run())


def test_a_bug_in_mid_stream_is_an_event_too() -> None:
    async def run() -> None:
        connection = Connection({**BODY, "stream": True})

        def script(submit: Any) -> Any:
            yield from steps(submit, [b"ok"], None)
            while not connection.got_body.is_set():
                time.sleep(0.001)
            yield StepEvent(id=submit.id, tokens=["x"], origins=[])  # type: ignore[list-item]

        async with serving(script) as server:
            with pytest.raises(TypeError):
                await server.app(http_scope(CHAT), connection.receive, connection.send)
        text = b"".join(message.get("body", b"") for message in connection.sent).decode()
        last = text.split("\n\n")[-2].removeprefix("data: ")
        assert json.loads(last)["error"]["type"] == "server_error"
        assert "Traceback" not in text
        assert not connection.sent[-1]["more_body"]

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_too_many_requests_are_turned_away_whole(stream: bool) -> None:
    async def run() -> None:
        async with serving(HI) as server:
            server.engine.gate.clear()
            server.engine._max_in_flight = 2
            response = await server.post(CHAT, {**BODY, "n": 3, "stream": stream})
            assert response.status_code == 429
            assert response.headers["retry-after"]
            error = response.json()["error"]
            assert "already has 2 requests" in error["message"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
            assert server.engine.wait_cancelled(2)

    asyncio.run(run())
