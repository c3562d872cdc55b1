"""Running a server: HTTPS, stopping, logs, an engine that hangs, workers, other applications around it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server_process import ROOT, ServerProcess, children, is_alive, wait_for
from tests.support.tiny_models import write_tiny

HELLO = [{"role": "user", "content": "hello there"}]
SECRET = "a sentence that is nobody's business"
N_CTX = 16384


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", "qwen2", n_ctx=N_CTX, seed=3)


def start(model: Path, folder: Path, *flags: str, environ: dict[str, str] | None = None) -> ServerProcess:
    model_flags = ["--target-model", str(model), "--draft-model", "none", "--threads", "1"]
    return ServerProcess(folder / "log", *model_flags, "--ctx-size", str(N_CTX), *flags, environ=environ)


def asked(n_tokens: int, **fields: Any) -> dict[str, Any]:
    return {"messages": HELLO, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, **fields}


def endless(**fields: Any) -> dict[str, Any]:
    return asked(16000, stream=True, **fields)


class Streaming(threading.Thread):
    """A client that reads a stream to its end; `last` is its last event."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self.has_begun = threading.Event()
        self._url, self._body = url, body

    def run(self) -> None:
        with (
            httpx.Client(timeout=60) as http,
            http.stream("POST", f"{self._url}/v1/chat/completions", json=self._body) as response,
        ):
            for line in response.iter_lines():
                self.lines += [line] if line.startswith("data: ") else []
                self.has_begun.set()

    def last(self) -> Any:
        self.join(60)
        assert not self.is_alive()
        return json.loads(self.lines[-1].removeprefix("data: "))


def stream(url: str, body: dict[str, Any]) -> Streaming:
    streaming = Streaming(url, body)
    streaming.start()
    assert streaming.has_begun.wait(30)
    return streaming


def is_refused(url: str) -> bool:
    try:
        httpx.get(f"{url}/health")
    except httpx.TransportError:
        return True
    return False


# Stopping.


def test_running_requests_may_end_after_a_signal(model: Path, tmp_path: Path) -> None:
    with start(model, tmp_path) as server:
        streaming = stream(server.url, asked(600, stream=True))
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: is_refused(server.url), "an end of new connections")
        streaming.join(30)
        assert streaming.lines[-1] == "data: [DONE]"
        assert server.process.wait(10) == 0


def test_streams_end_with_an_error_when_time_is_up(model: Path, tmp_path: Path) -> None:
    with start(model, tmp_path, "--drain-timeout", "1") as server:
        engine = server.engine_pid()
        streams = [stream(server.url, endless()) for _ in range(3)]
        start_s = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        for streaming in streams:
            message = streaming.last()["error"]["message"]
            assert "did not finish this request in the 1 s" in message
            assert "--drain-timeout" in message
        assert server.process.wait(10) == 0
        assert 1.0 <= time.monotonic() - start_s < 5.0
        assert not is_alive(engine)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(model: Path, tmp_path: Path, second: signal.Signals) -> None:
    with start(model, tmp_path, "--drain-timeout", "60") as server:
        engine = server.engine_pid()
        streaming = stream(server.url, endless())
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.process.poll() is None
        server.process.send_signal(second)
        start_s = time.monotonic()
        assert "shutting down at once" in streaming.last()["error"]["message"]
        server.process.wait(10)
        assert time.monotonic() - start_s < 4.0
        wait_for(lambda: not is_alive(engine), "the engine's end", 2.0)
        assert "stopping at once, as a second signal asks for" in server.words()
        assert "Traceback" not in server.words()


# HTTPS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", *kind, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def test_https(model: Path, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    flags = ["--ssl-certfile", str(certificate[0]), "--ssl-keyfile", str(certificate[1])]
    trusted = ssl.create_default_context(cafile=str(certificate[0]))
    with (
        start(model, tmp_path, *flags, "--client-timeout", "1") as server,
        httpx.Client(base_url=server.url, verify=trusted, timeout=60) as http,
    ):
        assert server.url.startswith("https://")
        assert http.get("/health").json()["status"] == "ready"
        answer = http.post("/v1/chat/completions", json=asked(200, logprobs=True, top_logprobs=20))
        assert answer.json()["usage"]["completion_tokens"] == 200
        with http.stream("POST", "/v1/chat/completions", json=asked(200, stream=True)) as response:
            assert list(response.iter_lines())[-2] == "data: [DONE]"
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url.replace('https', 'http')}/health")
        assert server.stop() == 0


# Logs.


def test_logs_in_json(model: Path, tmp_path: Path) -> None:
    with start(model, tmp_path, "--log-format", "json", "--log-level", "debug") as server:
        with httpx.Client(base_url=server.url, timeout=60) as http:
            body = asked(5) | {"messages": [{"role": "user", "content": SECRET}]}
            http.post("/v1/chat/completions", json=body, headers={"x-request-id": "mine"})
            http.post("/v1/chat/completions", json=body | {"stop": [SECRET] * 99, "temperature": SECRET})
            http.post("/v1/chat/completions", content=SECRET)
            with socket.create_connection((http.base_url.host, http.base_url.port or 0)) as client:
                client.sendall(b"nonsense\r\n\r\n")
                client.recv(1000)
        assert server.stop() == 0
    entries = [json.loads(line) for line in server.words().splitlines()]
    assert {"time", "level", "logger", "process", "message"} <= entries[0].keys()
    assert {entry["process"] for entry in entries} == {"server", "engine"}
    assert "uvicorn.error" in {entry["logger"] for entry in entries}
    (mine,) = [entry for entry in entries if entry.get("request_id") == "mine"]
    assert mine["status"] == 200
    assert mine["path"] == "/v1/chat/completions"
    assert mine["n_completion"] == 5
    assert mine["timings"]["predicted_n"] == 5
    refusals = [entry["error"] for entry in entries if entry.get("status") == 400]
    assert refusals == ["invalid_type: temperature", "invalid_json: -"]
    assert SECRET not in server.words()


def test_what_keeps_it_from_starting_is_in_the_log(tmp_path: Path) -> None:
    flags = ["--target-model", str(tmp_path / "none.gguf"), "--log-format", "json"]
    server = ServerProcess(tmp_path / "log", *flags)
    assert server.process.wait(60) in (1, 2)
    entry = json.loads(server.words().splitlines()[-1])
    assert entry["level"] == "error"
    assert "none.gguf" in entry["message"]


def test_an_unknown_device_is_a_wrong_setting(model: Path, tmp_path: Path) -> None:
    """Found before anything is said of what will be loaded."""
    server = ServerProcess(tmp_path / "log", "--target-model", str(model), "--target-device", "GPU77")
    assert server.process.wait(60) == 2
    (line,) = server.words().splitlines()
    assert "no device 'GPU77'" in line
    assert "CPU" in line


# The engine.


def test_a_stopped_engine_is_replaced_under_a_stream(model: Path, tmp_path: Path) -> None:
    with start(model, tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        body = asked(1500)
        expected = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        engine = server.engine_pid()
        streaming = stream(server.url, asked(1500, stream=True))
        os.kill(engine, signal.SIGSTOP)
        meanwhile = http.post("/v1/chat/completions", json=asked(4))  # waits, or is told when to come back
        assert meanwhile.status_code == 200 or meanwhile.headers["retry-after"]
        streaming.join(60)
        chunks = [json.loads(line.removeprefix("data: ")) for line in streaming.lines[:-1]]
        text = "".join(
            choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
        )
        assert text == expected
        assert server.engine_pid() != engine
        assert http.get("/health").json()["n_restarts"] == 1


# Applications and workers.


@contextmanager
def uvicorn(
    target: str, folder: Path, model: Path, *flags: str, **variables: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A foreign server, its words in the file."""
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),
        "LUCEBOX_TARGET_MODEL": str(model),
        "LUCEBOX_DRAFT_MODEL": "none",
        "LUCEBOX_THREADS": "1",
        **variables,
    }
    log = folder / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "uvicorn", target, *flags]
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=out)
    try:
        yield process, log
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], log: Path, http: httpx.Client) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return http.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    wait_for(is_ready, "a ready server", 60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def under_uvicorn(model: Path, folder: Path, **variables: str) -> list[str]:
    """What the application logs behind uvicorn's words on itself, from the start to a request and the end."""
    port = free_port()
    target, flags = "lucebox.server:app", ("--port", str(port))
    with (
        uvicorn(target, folder, model, *flags, **variables) as (process, log),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        wait_until_ready(process, log, http)
        assert http.get("/v1/models").status_code == 200
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    lines = log.read_text().splitlines()
    n_before = next(i for i, line in enumerate(lines) if "Waiting for application startup" in line) + 1
    return lines[n_before:]


def test_one_style_of_log_under_uvicorn(model: Path, tmp_path: Path) -> None:
    lines = under_uvicorn(model, tmp_path)
    style = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO server: (.*)")
    messages = [match[1] for line in lines if (match := style.fullmatch(line))]
    assert len(messages) == len(lines), lines
    for word in ("Application startup complete.", "target ", "memory ", "loading: ", "ready ", "stopping; "):
        assert sum(message.startswith(word) for message in messages) == 1, (word, messages)
    assert sum("/v1/models" in message for message in messages) == 1


def test_a_log_of_json_under_uvicorn(model: Path, tmp_path: Path) -> None:
    entries = [json.loads(line) for line in under_uvicorn(model, tmp_path, LUCEBOX_LOG_FORMAT="json")]
    loggers = {entry["logger"] for entry in entries}
    assert {"uvicorn.error", "lucebox.server.console", "lucebox.server.access"} <= loggers
    assert any(entry["message"].startswith("ready in ") for entry in entries)


def test_several_workers_are_refused(model: Path, tmp_path: Path) -> None:
    flags = ["--port", str(free_port()), "--workers", "2"]
    with uvicorn("lucebox.server:app", tmp_path, model, *flags) as (process, log):
        process.wait(60)
        words = log.read_text()
        assert "another worker of this server has the models loaded already" in words
        assert "--workers 1" in words
        assert "Traceback" not in words
        assert children(process.pid) == []


MOUNTED = {
    "starlette": """
from starlette.applications import Starlette
from starlette.routing import Mount

outer = Starlette(routes=[Mount("/llm", inner)], lifespan=lifespan)
""",
    "fastapi": """
from fastapi import FastAPI

outer = FastAPI(lifespan=lifespan)
outer.mount("/llm", inner)
""",
}
AROUND = """
from contextlib import asynccontextmanager
import lucebox.server

inner = lucebox.server.app

@asynccontextmanager
async def lifespan(outer):
    async with lucebox.server.lifespan(inner):
        yield
"""


@pytest.mark.parametrize("kind", MOUNTED)
def test_mounted_in_another_application(kind: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "around.py").write_text(AROUND + MOUNTED[kind])
    port = free_port()
    with (
        uvicorn("around:outer", tmp_path, model, "--port", str(port)) as (process, log),
        httpx.Client(base_url=f"http://127.0.0.1:{port}/llm", timeout=60) as http,
    ):
        wait_until_ready(process, log, http)
        answer = http.post("/v1/chat/completions", json=asked(3))
        assert answer.json()["usage"]["completion_tokens"] == 3
        assert http.get("/v1/nothing").json()["error"]["code"] == "unknown_url"
        assert http.get("/").status_code == 200
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        assert "Traceback" not in log.read_text()
