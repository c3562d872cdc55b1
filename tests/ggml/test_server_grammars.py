"""Huge grammars, and such as become too complex on their way: the streams of others go on, nothing breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.server_process import ServerProcess
from tests.support.tiny_models import write_tiny

MAX_GAP_S = 3.0  # each of these took 13 s of the engine's thread, or more, when steps were not bounded


def schema(value: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


def grammar(type: str, value: str) -> dict[str, Any]:
    return {"grammar": {"type": type, "value": value}}


FIELDS = {
    "one letter": grammar("lark", f'start: "{"a" * 100_000}"'),
    "long literal": grammar("lark", f'start: "{"hello there " * 9_600}"'),
    "repeated rule": grammar("lark", 'start: a{100000}\na: "x" "y"'),
    "nested repetition": grammar("regex", "((((a{0,10}){0,10}){0,10}){0,10})"),
    "properties": schema({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(750)}}),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("grammars")
    target = write_tiny(folder / "tiny.gguf", "qwen2", n_ctx=2048, seed=3)
    flags = ["--target-model", str(target), "--draft-model", "none", "--drafter", "ngram", "--threads", "1"]
    with ServerProcess(folder / "log", *flags, "--ctx-size", "2048") as running:
        yield running


class Reader:
    """A stream after another, until it is closed; `gap_s` is the longest time between two of its events."""

    def __init__(self, server: ServerProcess) -> None:
        self.gap_s = 0.0
        self.n_events = 0
        self._url = server.url
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(60)

    def _read(self) -> None:
        asked = {"prompt": "abc", "max_tokens": 1500, "stream": True, "ignore_eos": True}
        with httpx.Client(base_url=self._url, timeout=60) as http:
            while not self._closed.is_set():
                with http.stream("POST", "/v1/completions", json=asked) as answer:
                    last_s = time.monotonic()
                    for _ in answer.iter_lines():
                        now_s = time.monotonic()
                        self.gap_s, self.n_events = max(self.gap_s, now_s - last_s), self.n_events + 1
                        last_s = now_s
                        if self._closed.is_set():
                            break


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_a_stream_goes_on_beside_them(server: ServerProcess, fields: dict[str, Any]) -> None:
    reader = Reader(server)
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100, **fields}

    def ask(temperature: float) -> httpx.Response:
        return httpx.post(
            f"{server.url}/v1/chat/completions", json={**asked, "temperature": temperature}, timeout=60
        )

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(ask, (0.0, 1.0, 1.0)))
    reader.close()
    for answer in answers:
        assert answer.status_code in (200, 400), answer.text
        if answer.status_code == 400:
            assert answer.json()["error"]["param"] == next(iter(fields))
    assert reader.n_events > 0
    assert reader.gap_s < MAX_GAP_S
    assert "Traceback" not in server.words()
