"""The server end to end: real processes, sockets and ggml, with tiny random models made on the spot."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server_process import ServerProcess, is_alive, wait_for
from tests.support.tiny_models import write_tiny

HELLO = [{"role": "user", "content": "hello there"}]
GREEDY = {"temperature": 0, "ignore_eos": True}
N_CTX = 2048


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target, and a draft that often agrees with it."""
    folder = tmp_path_factory.mktemp("models")
    target = write_tiny(folder / "tiny-target.gguf", "qwen2", n_ctx=N_CTX, seed=3)
    draft = write_tiny(folder / "tiny-draft.gguf", "qwen2", n_ctx=N_CTX, seed=3, perturbation=0.1)
    return target, draft


def start(models: tuple[Path, Path], folder: Path, *flags: str) -> ServerProcess:
    target, draft = models
    paths = ["--target-model", str(target), "--draft-model", str(draft), "--threads", "1"]
    return ServerProcess(folder / "server.log", *paths, "--ctx-size", str(N_CTX), *flags)


@pytest.fixture(scope="module")
def server(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start(models, tmp_path_factory.mktemp("server"), "--draft-length", "fixed:n=3") as running:
        yield running


@pytest.fixture
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def chat(http: httpx.Client, **fields: Any) -> Any:
    response = http.post("/v1/chat/completions", json={"messages": HELLO} | fields)
    assert response.status_code == 200, response.text
    return response.json()


def stream(http: httpx.Client, **fields: Any) -> Iterator[Any]:
    body = {"messages": HELLO, "stream": True, **fields}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line.removeprefix("data: "))


def text_of(chunks: Iterator[Any]) -> str:
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"])


def test_streamed_and_whole_answers_agree_with_and_without_drafts(http: httpx.Client) -> None:
    whole = chat(http, max_tokens=48, **GREEDY)
    text = whole["choices"][0]["message"]["content"]
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 48
    assert whole["timings"]["predicted_n"] == 48
    assert 0 < whole["timings"]["draft_n_accepted"] <= whole["timings"]["draft_n"]
    assert sum(whole["timings"]["accepted_per_position"]) == whole["timings"]["draft_n_accepted"]
    by_drafter = whole["timings"]["drafters"].values()
    assert sum(totals["n_drafted"] for totals in by_drafter) == whole["timings"]["draft_n"]
    assert text_of(stream(http, max_tokens=48, **GREEDY)) == text
    plain = chat(http, max_tokens=48, speculative=False, **GREEDY)
    assert plain["choices"][0]["message"]["content"] == text
    assert plain["timings"]["draft_n"] == 0
    assert plain["timings"]["drafters"] == {}


def test_draft_length_of_one_request(http: httpx.Client) -> None:
    one = chat(http, max_tokens=40, speculative={"draft_length": 1}, **GREEDY)["timings"]
    three = chat(http, max_tokens=40, **GREEDY)["timings"]
    assert 0 < one["draft_n"] < three["draft_n"]


def test_stop_strings_really_stop(http: httpx.Client) -> None:
    whole = chat(http, max_tokens=64, **GREEDY)["choices"][0]["message"]["content"]
    found = re.search(r"[ -~]{2,3}", whole[len(whole) // 2 :])  # bytes that are no UTF-8 show as U+FFFD
    assert found
    stop = found[0]
    before = whole[: whole.index(stop)]
    stopped = chat(http, max_tokens=64, stop=[stop], **GREEDY)
    assert stopped["choices"][0]["message"]["content"] == before
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] < 64
    assert text_of(stream(http, max_tokens=64, stop=stop, **GREEDY)) == before


def test_seeds_repeat_and_choices_differ(http: httpx.Client) -> None:
    fields = {"max_tokens": 24, "seed": 11, "ignore_eos": True, "n": 2}
    first, second = (
        [choice["message"]["content"] for choice in chat(http, **fields)["choices"]] for _ in range(2)
    )
    assert first == second
    assert first[0] != first[1]


def test_logprobs_are_the_verifiers(http: httpx.Client) -> None:
    fields = {"max_tokens": 24, "logprobs": True, "top_logprobs": 3, **GREEDY}
    entries, plain = (
        chat(http, speculative=on, **fields)["choices"][0]["logprobs"]["content"] for on in (True, False)
    )
    assert len(entries) == 24
    for entry, same in zip(entries, plain, strict=True):
        assert entry["bytes"] == same["bytes"]
        assert entry["logprob"] == pytest.approx(same["logprob"], abs=1e-2)
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] < 0.0
        assert len(entry["top_logprobs"]) == 3


def test_completions_take_text_and_tokens(http: httpx.Client) -> None:
    body = {"prompt": ["hello", [0, 1, 2]], "max_tokens": 8, **GREEDY}
    answer = http.post("/v1/completions", json=body).json()
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length"]
    assert answer["usage"]["completion_tokens"] == 16


def test_a_prompt_may_fill_the_context_but_one(http: httpx.Client) -> None:
    full = http.post("/v1/completions", json={"prompt": [1] * (N_CTX - 1), "max_tokens": 5, **GREEDY})
    assert full.status_code == 200
    assert full.json()["choices"][0]["finish_reason"] == "length"
    over = http.post("/v1/completions", json={"prompt": [1] * N_CTX, "max_tokens": 5})
    assert over.status_code == 400
    assert over.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("streamed", [False, True])
def test_greedy_acceptance_of_a_sampled_request_is_refused(http: httpx.Client, streamed: bool) -> None:
    asked = {
        "messages": HELLO,
        "temperature": 0.8,
        "speculative": {"acceptance": "greedy"},
        "stream": streamed,
    }
    response = http.post("/v1/chat/completions", json=asked)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "speculative.acceptance"
    assert chat(http, max_tokens=4, speculative={"acceptance": "greedy"}, **GREEDY)["usage"]


def test_a_foreign_host_is_refused(http: httpx.Client) -> None:
    assert http.get("/v1/models", headers={"host": "evil.example"}).status_code == 403
    port = http.base_url.port
    assert http.get("/v1/models", headers={"host": f"localhost:{port}"}).status_code == 200


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_frees_the_engine(http: httpx.Client, streamed: bool) -> None:
    body = {"messages": HELLO, "max_tokens": N_CTX - 100, "n": 20, "stream": streamed, **GREEDY}
    with httpx.Client(base_url=str(http.base_url), timeout=httpx.Timeout(60, read=0.05)) as leaving:
        if streamed:
            with leaving.stream("POST", "/v1/chat/completions", json=body) as response:
                next(response.iter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                leaving.post("/v1/chat/completions", json=body)
    wait_for(lambda: http.get("/health").json()["n_in_flight"] == 0, "an idle engine", 10)
    assert chat(http, max_tokens=2)["usage"]["completion_tokens"] <= 2


def test_requests_in_flight_together(http: httpx.Client) -> None:
    expected = chat(http, max_tokens=16, **GREEDY)["choices"][0]["message"]["content"]
    many = chat(http, max_tokens=16, n=5, **GREEDY)
    assert [choice["message"]["content"] for choice in many["choices"]] == [expected] * 5


def test_a_stream_survives_the_engine(models: tuple[Path, Path], tmp_path: Path) -> None:
    with start(models, tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        fields = {"max_tokens": 700, **GREEDY}
        expected = chat(http, **fields)["choices"][0]["message"]["content"]
        chunks = stream(http, **fields)
        text = text_of(iter([next(chunks), next(chunks)]))
        engine = server.engine_pid()
        os.kill(engine, signal.SIGKILL)
        text += text_of(chunks)
        assert text == expected
        assert server.engine_pid() != engine
        assert http.get("/health").json()["n_restarts"] == 1
        assert chat(http, max_tokens=4, **GREEDY)["usage"]["completion_tokens"] == 4


def test_the_engine_ends_with_the_server(models: tuple[Path, Path], tmp_path: Path) -> None:
    with start(models, tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        engine = server.engine_pid()
        next(stream(http, max_tokens=1500, **GREEDY))
        server.kill()
        wait_for(lambda: not is_alive(engine), "the engine's end", 1.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_frees_the_engine(
    models: tuple[Path, Path], tmp_path: Path, number: signal.Signals
) -> None:
    with (
        start(models, tmp_path, "--drain-timeout", "2") as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        engine = server.engine_pid()
        chunks = stream(http, max_tokens=1900, n=20, **GREEDY)
        next(chunks)
        start_s = time.monotonic()
        os.kill(engine, number)  # as when a service manager signals the whole group
        server.process.send_signal(number)
        last = list(chunks)[-1]
        assert "shutting down" in last["error"]["message"]
        assert server.process.wait(10) == 0
        assert time.monotonic() - start_s < 6.0
        assert not is_alive(engine)
        assert "Traceback" not in server.words()
        assert "starting it again" not in server.words()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2])
def test_a_signal_while_it_starts_is_heeded(
    models: tuple[Path, Path], tmp_path: Path, number: signal.Signals, delay_s: float
) -> None:
    server = start(models, tmp_path)
    wait_for(lambda: "context" in server.words(), "the plan")
    time.sleep(delay_s)
    assert server.stop(number) in (0, 128 + signal.SIGINT, -number)
    assert "Traceback" not in server.words()


def test_a_model_that_cannot_be_loaded_ends_it_with_one_line(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "broken.gguf", "llama", metadata={"llama.block_count": 7})
    server = ServerProcess(tmp_path / "log", "--target-model", str(path), "--draft-model", "none")
    assert server.process.wait(60) == 1
    last = server.words().splitlines()[-1]
    assert last.startswith("lucebox: ")
    assert "blk." in last
    assert "Traceback" not in server.words()


def test_models_of_different_vocabularies_end_it(models: tuple[Path, Path], tmp_path: Path) -> None:
    other = write_tiny(tmp_path / "other.gguf", "qwen2", n_vocab=20)
    server = start((models[0], other), tmp_path)
    assert server.process.wait(60) == 1
    assert "Traceback" not in server.words()
    assert "vocabular" in server.words().splitlines()[-1]


def test_an_api_key_from_the_environment(models: tuple[Path, Path], tmp_path: Path) -> None:
    flags = ["--target-model", str(models[0]), "--draft-model", "none", "--model-alias", "mine"]
    with (
        ServerProcess(tmp_path / "log", *flags, environ={"LUCEBOX_API_KEY": "s3cret"}) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        assert http.get("/v1/models").status_code == 401
        right = http.get("/v1/models", headers={"Authorization": "Bearer s3cret"})
        assert right.json()["data"][0]["id"] == "mine"
        assert "s3cret" not in server.words()


def test_the_application_under_a_foreign_server(models: tuple[Path, Path], tmp_path: Path) -> None:
    """`uvicorn lucebox.server:app`, configured by the environment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {"LUCEBOX_TARGET_MODEL": str(models[0]), "LUCEBOX_DRAFT_MODEL": "none", "LUCEBOX_THREADS": "1"}
    environ["LUCEBOX_DRAIN_TIMEOUT"] = "2"
    command = [sys.executable, "-m", "uvicorn", "lucebox.server:app", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:

            def ready() -> bool:
                try:
                    return http.get("/health").status_code == 200
                except httpx.TransportError:
                    return False

            wait_for(ready, "a ready server", 60)
            assert chat(http, max_tokens=3, **GREEDY)["usage"]["completion_tokens"] == 3
            chunks = stream(http, max_tokens=400, n=128, **GREEDY)  # more than a drain can end
            next(chunks)
            process.send_signal(signal.SIGTERM)
            assert "shutting down" in list(chunks)[-1]["error"]["message"]
        process.wait(15)
    finally:
        process.kill()
        process.wait()


def test_what_prompts_have_in_common_outlives_a_restart(models: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "prefixes"
    long = [{"role": "user", "content": "hello there " * 40}]
    cached = []
    for _ in range(2):
        with start(models, tmp_path, "--prefix-cache-file", str(file)) as server:
            with httpx.Client(base_url=server.url, timeout=60) as http:
                for _ in range(2):
                    usage = chat(http, **GREEDY, messages=long, max_tokens=4)["usage"]
                    cached.append(usage["prompt_tokens_details"]["cached_tokens"])
            assert server.stop() == 0
    assert cached == [0, *[(usage["prompt_tokens"] - 1) // 16 * 16] * 3]
