"""A server among enemies: refuses or closes in time, goes on answering, and keeps no memory of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.hostile_requests import Hostile, all_requests
from tests.support.server_process import ROOT, ServerProcess, wait_for
from tests.support.tiny_models import write_tiny

N_AT_ONCE = 24
MAX_ROUNDS = 8  # heaps first grow to what so many at once need; what is kept of requests grows in every round
MIN_REQUESTS = 200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("hostile")
    target = write_tiny(folder / "tiny.gguf", "qwen2", n_ctx=2048, seed=3)
    flags = ["--target-model", str(target), "--draft-model", "none", "--threads", "1", "--ctx-size", "2048"]
    patience = ["--client-timeout", "1", "--max-body", "1"]
    with ServerProcess(folder / "log", *flags, *patience) as running:
        yield running


def attack(server: ServerProcess, requests: list[Hostile]) -> list[str]:
    url = urlsplit(server.url)
    assert url.hostname
    assert url.port
    address = (url.hostname, url.port)
    folders = (ROOT, Path(sys.prefix), server.log.parent)  # the package's, Python's, the model's
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        problems = pool.map(lambda hostile: hostile.problem(address, folders), requests)
        return [problem for problem in problems if problem is not None]


def memory_bytes(server: ServerProcess) -> int:
    """What the server and its engine have resident (Linux)."""
    pids = (server.process.pid, server.engine_pid())
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 for pid in pids)


def settled_bytes(server: ServerProcess, enough: float) -> int:
    """`memory_bytes` once it is `enough`, or after a few seconds."""
    with suppress(AssertionError):
        wait_for(lambda: memory_bytes(server) <= enough, "the memory of before", 5)
    return memory_bytes(server)


def test_hostile_requests_are_refused_and_leave_nothing_behind(server: ServerProcess) -> None:
    requests = all_requests()
    assert len(requests) >= MIN_REQUESTS
    engine = server.engine_pid()
    with httpx.Client(base_url=server.url, timeout=60) as http:

        def is_idle() -> bool:
            return bool(http.get("/health").json()["n_in_flight"] == 0)

        sizes = [memory_bytes(server)]
        while len(sizes) < 2 or sizes[-1] > 1.05 * sizes[-2]:
            assert len(sizes) <= MAX_ROUNDS, f"resident after each round: {sizes}"
            assert attack(server, requests) == []
            wait_for(is_idle, "an idle engine", 60)
            sizes.append(settled_bytes(server, 1.05 * sizes[-1]))
        asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        answer = http.post("/v1/chat/completions", json=asked)
        assert answer.json()["usage"]["completion_tokens"] <= 4
    assert server.engine_pid() == engine
    assert "Traceback" not in server.words()
