"""POST /tokenize, /detokenize, /apply-template, and GET /props and /slots."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from lucebox.config import EngineConfig, ModelConfig
from lucebox.engine.engine_load import EngineLoad, SlotLoad
from lucebox.errors import TemplateError
from lucebox.server.text_model import GgufTextModel, load_text_model
from lucebox.text.tokenizer import Tokenizer
from tests.support.scripted_engine import BOS, EOS, N_CTX, N_EMBD, N_VOCAB, says
from tests.support.serving import ask, fetch, serving
from tests.support.tiny_models import TinySpec, tiny_metadata, write_tiny

QUIET = says(b"")
END = f"<|{EOS}|>"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"content": "ab"}, [97, 98]),
        ({"content": "ab", "add_special": True}, [BOS, 97, 98]),
        ({"prompt": "ab"}, [BOS, 97, 98]),
        ({"prompt": "ab", "add_special_tokens": False}, [97, 98]),
        ({"content": f"a{END}"}, [97, EOS]),
        ({"content": END, "parse_special": False}, list(END.encode())),
        ({"content": ""}, []),
    ],
)
def test_tokenize(body: Any, tokens: list[int]) -> None:
    response = ask(QUIET, "/tokenize", body)
    assert response.status_code == 200, response.text
    assert response.json() == {"tokens": tokens, "count": len(tokens), "max_model_len": N_CTX}


def test_pieces_are_text_or_bytes() -> None:
    response = ask(QUIET, "/tokenize", {"content": f"aé{END}", "with_pieces": True})
    assert response.json()["tokens"] == [
        {"id": 97, "piece": "a"},
        {"id": 0xC3, "piece": [0xC3]},
        {"id": 0xA9, "piece": [0xA9]},
        {"id": EOS, "piece": END},
    ]


def test_detokenize_is_the_way_back() -> None:
    response = ask(QUIET, "/detokenize", {"tokens": [*"é!".encode(), EOS]})
    assert response.json() == {"content": f"é!{END}", "prompt": f"é!{END}"}
    assert ask(QUIET, "/detokenize", {"tokens": [0xC3]}).json()["content"] == "\ufffd"
    assert ask(QUIET, "/detokenize", {"tokens": []}).json()["content"] == ""


def test_apply_template() -> None:
    response = ask(QUIET, "/apply-template", {"messages": HELLO})
    assert response.json() == {"prompt": "user:hello\nassistant:"}
    response = ask(QUIET, "/apply-template", {"messages": HELLO, "add_generation_prompt": False})
    assert response.json() == {"prompt": "user:hello\n"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a", "prompt": "a"}, "content"),
        ("/tokenize", {"content": 1}, "content"),
        ("/tokenize", {"content": "a", "with_piece": True}, "with_piece"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1, N_VOCAB]}, "tokens[1]"),
        ("/detokenize", {"tokens": [2**70]}, "tokens[0]"),
        ("/apply-template", {"messages": []}, "messages"),
        ("/apply-template", {"messages": [{"role": "user", "content": "refuse me"}]}, "messages"),
        ("/apply-template", {}, "messages"),
    ],
)
def test_what_is_refused_by_name(path: str, body: Any, param: str) -> None:
    response = ask(QUIET, path, body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_another_model_is_a_404() -> None:
    for path, body in (
        ("/tokenize", {"content": "a"}),
        ("/detokenize", {"tokens": []}),
        ("/apply-template", {"messages": HELLO}),
    ):
        assert ask(QUIET, path, {**body, "model": "x"}).status_code == 404


@pytest.mark.parametrize("path", ["/props", "/slots"])
def test_there_is_nothing_to_tell_of_a_model_that_loads(path: str) -> None:
    response = fetch(path, ready=False)
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) > 0


def test_props() -> None:
    response = fetch("/props", pooling="cls")
    body = response.json()
    assert body["default_generation_settings"]["n_ctx"] == N_CTX
    assert body["default_generation_settings"]["params"]["temperature"] == 1.0
    assert body["total_slots"] == 1
    assert body["model_alias"] == "tiny"
    assert body["chat_template"] == "<tool_call>"
    assert (body["pooling"], body["n_embd"]) == ("cls", N_EMBD)
    assert body["build_info"].startswith("lucebox ")
    assert "secret" not in response.text
    assert "/" not in response.text.replace("</tool_call>", "")


def test_slots() -> None:
    busy = SlotLoad(id=0, state="decoding", request="cmpl-1/0", n_prompt=9, n_cached=4, n_tokens=12)

    async def run() -> httpx.Response:
        async with serving(QUIET) as server:
            server.engine._dispatch(EngineLoad(n_running=1, slots=(busy, SlotLoad(id=1))))
            return await server.http.get("/slots")

    first, second = asyncio.run(run()).json()
    assert first == {
        "id": 0,
        "n_ctx": N_CTX,
        "is_processing": True,
        "state": "decoding",
        "request": "cmpl-1/0",
        "n_prompt": 9,
        "n_cached": 4,
        "n_tokens": 12,
    }
    assert (second["is_processing"], second["state"]) == (False, "idle")


def text_model(path: Path) -> Any:
    target = ModelConfig(path=str(path), device="auto", n_threads=1, kv_type="f16")
    return load_text_model(
        EngineConfig(
            target=target,
            draft=None,
            drafters=(),
            acceptance="auto",
            draft_length="auto",
            n_ctx=64,
            n_parallel=1,
        )
    )


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("add_eos", [False, True])
def test_the_files_own_tokens_around_a_text(tmp_path: Path, add_bos: bool, add_eos: bool) -> None:
    metadata = {"tokenizer.ggml.add_bos_token": add_bos, "tokenizer.ggml.add_eos_token": add_eos}
    text = text_model(write_tiny(tmp_path / "tiny.gguf", metadata=metadata))
    plain = text.tokenize("hello", add_special=False, parse_special=False)
    vocabulary = text.vocabulary
    expected = [vocabulary.bos_id] * add_bos + plain + [vocabulary.eos_id] * add_eos
    assert text.tokenize("hello", add_special=True, parse_special=False) == expected


def test_a_real_template_and_none(tmp_path: Path) -> None:
    text = text_model(write_tiny(tmp_path / "tiny.gguf"))
    messages = [{"role": "user", "content": "hi <|im_end|>"}]
    shown = text.apply_template(messages, add_generation_prompt=True)
    assert shown == "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(TemplateError, match="no chat template"):
        GgufTextModel(Tokenizer.from_metadata(tiny_metadata(TinySpec())), None).apply_template(messages)
