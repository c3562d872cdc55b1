"""POST /v1/chat/completions, streamed and whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from lucebox.core import Origin
from lucebox.engine.messages import Event, Finish, StepEvent, Submit
from lucebox.engine.timings import Timings
from lucebox.errors import RequestError
from tests.support.scripted_engine import BOS, EOS, says
from tests.support.serving import CHAT, HELLO, ask, events, server_config, serving

HI = says(b"Hi ", b"there")


def text_of(chunks: list[Any], index: int = 0) -> str:
    deltas = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in deltas)


def test_what_one_choice_computed_was_not_known_from_other_requests() -> None:
    def script(submit: Submit) -> Iterator[Event]:
        n_prompt, is_first = len(submit.prompt), submit.id.endswith("/0")
        n_known = 2 if is_first else n_prompt - 1
        timings = Timings(cache_n=n_known, prompt_n=n_prompt - n_known, prompt_ms=1.0)
        finish = Finish(reason="stop", timings=timings)
        yield StepEvent(id=submit.id, tokens=[97, EOS], origins=[Origin.PLAIN] * 2, finish=finish)

    answer = ask(script, CHAT, {"messages": HELLO, "n": 3}).json()
    usage, timings = answer["usage"], answer["timings"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2}
    assert timings["cache_n"] == 2 + 2 * (usage["prompt_tokens"] - 1)
    assert timings["prompt_n"] == usage["prompt_tokens"] - 2 + 2
    assert timings["prompt_per_second"] == timings["prompt_n"] * 1000 / 3


def test_whole_answer() -> None:
    answer = ask(HI, CHAT, {"model": "tiny", "messages": HELLO}).json()
    assert answer["id"].startswith("chatcmpl-")
    assert answer["object"] == "chat.completion"
    assert isinstance(answer["created"], int)
    assert answer["model"] == "tiny"
    assert answer["system_fingerprint"].startswith("fp_")
    message = {"role": "assistant", "content": "Hi there", "refusal": None}
    assert answer["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    n_prompt = 1 + len("user:hello\n")
    assert answer["usage"] == {
        "prompt_tokens": n_prompt,
        "completion_tokens": 9,
        "total_tokens": n_prompt + 9,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert answer["timings"] == {
        "cache_n": 0,
        "prompt_n": n_prompt,
        "prompt_ms": 10.0,
        "prompt_per_second": 1200.0,
        "predicted_n": 9,
        "predicted_ms": 100.0,
        "predicted_per_second": 90.0,
        "n_forced": 0,
        "draft_n": 9,
        "draft_n_accepted": 6,
        "draft_ms": 20.0,
        "verify_ms": 60.0,
        "n_overlapped": 0,
        "n_foreseen": 0,
        "hidden_ms": 0.0,
        "acceptance_rate": 0.6667,
        "mean_acceptance_length": 3.0,
        "accepted_per_position": [3, 2, 1],
        "drafted_per_position": [3, 3, 3],
        "drafters": {
            "model": {"n_rounds": 2, "n_drafted": 6, "n_accepted": 5},
            "suffix": {"n_rounds": 1, "n_drafted": 3, "n_accepted": 1},
        },
    }


def test_streamed_answer_is_the_same() -> None:
    chunks = events(ask(HI, CHAT, {"messages": HELLO, "stream": True}))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(chunks) == "Hi there"
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all("usage" not in chunk for chunk in chunks)
    assert chunks[-1]["timings"]["draft_n_accepted"] == 6
    assert all("timings" not in chunk for chunk in chunks[:-1])


def test_usage_is_streamed_when_asked_for() -> None:
    body = {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = events(ask(HI, CHAT, body))
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 9
    assert last["timings"]["predicted_n"] == 9
    assert all(chunk["usage"] is None for chunk in chunks)
    assert all("timings" not in chunk for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_finish_reason(stream: bool, reason: Any) -> None:
    response = ask(says(b"ab", reason=reason), CHAT, {"messages": HELLO, "stream": stream})
    choice = (events(response)[-1] if stream else response.json())["choices"][0]
    assert choice["finish_reason"] == reason


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_across_steps_is_cut(stream: bool) -> None:
    script = says(b"keep S", b"TO", b"P", stop_string=b"STOP", keep_bytes=5)
    response = ask(script, CHAT, {"messages": HELLO, "stop": "STOP", "stream": stream})
    if stream:
        assert text_of(events(response)) == "keep "
    else:
        assert response.json()["choices"][0]["message"]["content"] == "keep "


def test_characters_are_never_split() -> None:
    emoji = "🦊".encode()
    script = says(b"a" + emoji[:1], emoji[1:3], emoji[3:] + b"b")
    chunks = events(ask(script, CHAT, {"messages": HELLO, "stream": True}))
    pieces = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(pieces) == "a🦊b"
    assert not any("�" in piece for piece in pieces)


@pytest.mark.parametrize("stream", [False, True])
def test_n_choices_draw_with_seeds_of_their_own(stream: bool) -> None:
    async def run() -> None:
        async with serving(HI) as server:
            body = {"messages": HELLO, "n": 3, "seed": 7, "stream": stream}
            response = await server.post(CHAT, body)
            if stream:
                chunks = events(response)
                assert [text_of(chunks, i) for i in range(3)] == ["Hi there"] * 3
                timings = [chunk for chunk in chunks if "timings" in chunk]
                assert timings == chunks[-1:]
                assert timings[0]["timings"]["predicted_n"] == 27
            else:
                answer = response.json()
                assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
                assert answer["usage"]["prompt_tokens"] == 12
                assert answer["usage"]["completion_tokens"] == 27
            assert sorted(submit.seed for submit in server.engine.submits) == [7, 8, 9]
            assert {submit.params.seed for submit in server.engine.submits} == {7}

    asyncio.run(run())


def test_without_a_seed_requests_differ() -> None:
    async def run() -> None:
        async with serving(HI) as server:
            for _ in range(2):
                await server.post(CHAT, {"messages": HELLO})
            first, second = server.engine.submits
            assert first.seed != second.seed
            assert first.params.seed is None

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(stream: bool) -> None:
    body = {"messages": HELLO, "logprobs": True, "top_logprobs": 2, "stream": stream}
    response = ask(says(b"Hi", b"!"), CHAT, body)
    if stream:
        parts = [c["choices"][0]["logprobs"] for c in events(response)]
        content = [entry for part in parts if part is not None for entry in part["content"]]
    else:
        content = response.json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["H", "i", "!"]
    assert [entry["logprob"] for entry in content] == [-0.5] * 3
    assert content[0]["bytes"] == [72]
    assert content[0]["top_logprobs"] == [
        {"token": "H", "logprob": -0.5, "bytes": [72]},
        {"token": "<|256|>", "logprob": -9999.0, "bytes": list(b"<|256|>")},
    ]


def test_logprobs_end_where_the_text_ends() -> None:
    script = says(b"keep S", b"TO", b"P", stop_string=b"STOP", keep_bytes=5)
    body = {"messages": HELLO, "stop": ["STOP"], "logprobs": True, "stream": True}
    parts = [c["choices"][0]["logprobs"] for c in events(ask(script, CHAT, body))]
    tokens = [entry["token"] for part in parts if part for entry in part["content"]]
    assert "".join(tokens) == "keep "


def test_messages_reach_the_template() -> None:
    messages = [
        {"role": "developer", "content": "be brief", "name": "boss"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "", "tool_call_id": "c1"},
    ]

    async def run() -> None:
        async with serving(HI, n_ctx=1000) as server:
            response = await server.post(CHAT, {"messages": messages})
            assert response.status_code == 200
            assert server.text.seen == [
                [
                    {"role": "system", "content": "be brief", "name": "boss"},
                    {"role": "user", "content": "a\nb"},
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                        ],
                    },
                    {"role": "tool", "content": "", "tool_call_id": "c1"},
                ]
            ]
            assert server.engine.submits[0].prompt[0] == BOS

    asyncio.run(run())


def test_an_answer_can_be_sent_back() -> None:
    answer = ask(HI, CHAT, {"messages": HELLO}).json()["choices"][0]["message"]
    messages = [*HELLO, answer | {"annotations": [], "audio": None, "function_call": None}, *HELLO]
    assert ask(HI, CHAT, {"messages": messages}, n_ctx=1000).status_code == 200


def test_prompt_over_the_context() -> None:
    response = ask(HI, CHAT, {"messages": [{"role": "user", "content": "x" * 100}]})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(
        "This model's maximum context length is 64 tokens. However, your messages resulted in 107 tokens."
    )


def test_text_too_long_to_tokenise() -> None:
    async def run() -> None:
        async with serving(HI) as server:

            def refuse(*_: Any, **__: Any) -> list[int]:
                raise RequestError("too long", param="prompt", code="context_length_exceeded")

            server.text.encode_chat = refuse  # type: ignore[method-assign]
            error = (await server.post(CHAT, {"messages": HELLO})).json()["error"]
            assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")

    asyncio.run(run())


def test_the_template_may_refuse() -> None:
    response = ask(HI, CHAT, {"messages": [{"role": "user", "content": "refuse me"}]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages"
    assert "alternate" in response.json()["error"]["message"]


def test_the_fingerprint_changes_with_what_may_change_an_answer() -> None:
    base = server_config().engine
    requantised = msgspec.structs.replace(base.target, quantise="q4_0")
    elsewhere = msgspec.structs.replace(base.target, path="/another/folder/tiny-q4.gguf")
    engines = [
        base,
        msgspec.structs.replace(base, draft=base.target),
        msgspec.structs.replace(base, draft=requantised),
        msgspec.structs.replace(base, target=requantised),
        msgspec.structs.replace(base, drafters=("suffix",)),
        msgspec.structs.replace(base, acceptance="token"),
        msgspec.structs.replace(base, workers=("far:50052",)),
        msgspec.structs.replace(base, target=msgspec.structs.replace(base.target, split=(3.0, 1.0))),
        msgspec.structs.replace(base, target=elsewhere),
    ]
    prints = [ask(HI, CHAT, {"messages": HELLO}, engine=e).json()["system_fingerprint"] for e in engines]
    assert prints[-1] == prints[0]  # the same file in another place
    assert len(set(prints)) == len(prints) - 1


def test_the_fingerprint_does_not_change_with_what_changes_no_answer() -> None:
    base = server_config().engine
    pinned = msgspec.structs.replace(base.target, cores=(0, 1))
    engines = [
        base,
        msgspec.structs.replace(base, target=pinned),
        msgspec.structs.replace(base, overlap="off"),
        msgspec.structs.replace(base, n_parallel=base.n_parallel + 1),
    ]
    prints = {ask(HI, CHAT, {"messages": HELLO}, engine=e).json()["system_fingerprint"] for e in engines}
    assert len(prints) == 1
