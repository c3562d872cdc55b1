"""A server that loses workers in the middle of streams, and what it must not do then."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.support.server_process import ServerProcess, wait_for
from tests.support.workers import FreezingProxy, WorkerProcess

MAX_SILENCE_S = 10.0
BACK_TIMEOUT_S = 60.0
N_TOKENS = 400


@dataclass
class Stream:
    """One streamed request, read in a thread of its own."""

    url: str
    n_tokens: int = N_TOKENS
    text: str = ""
    n_chunks: int = 0
    status: int = 0
    error: dict[str, object] | None = None
    is_whole: bool = False
    silence_s: float = 0.0  # the longest, heartbeats not counted
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> Stream:
        self._thread.join(2 * BACK_TIMEOUT_S)
        assert not self._thread.is_alive(), "the stream hangs"
        return self

    def _run(self) -> None:
        body = {"prompt": [1, 2, 3, 4], "max_tokens": self.n_tokens, "temperature": 0, "ignore_eos": True}
        heard_s = time.monotonic()
        with (
            httpx.Client(base_url=self.url, timeout=2 * BACK_TIMEOUT_S) as http,
            http.stream("POST", "/v1/completions", json={**body, "stream": True}) as response,
        ):
            self.status = response.status_code
            for line in response.iter_lines():
                if self.status == 200 and not line.startswith("data: "):
                    continue
                now_s = time.monotonic()
                self.silence_s, heard_s = max(self.silence_s, now_s - heard_s), now_s
                self._take(line.removeprefix("data: "))
            self.silence_s = max(self.silence_s, time.monotonic() - heard_s)

    def _take(self, data: str) -> None:
        if data == "[DONE]":
            self.is_whole = True
            return
        chunk = json.loads(data)
        if "error" in chunk:
            self.error = chunk["error"]
            return
        self.n_chunks += 1
        self.text += "".join(choice["text"] for choice in chunk["choices"])


@dataclass
class Place:
    """A server, the worker that parts of it lie on, and the wire between them."""

    server: ServerProcess
    worker: WorkerProcess
    proxy: FreezingProxy
    needs_worker: bool  # for any answer, not only for fast ones
    whole: str = ""
    told: list[str] = field(default_factory=list)

    def measure(self) -> None:
        """What the text is without any loss."""
        self.whole = Stream(self.server.url).join().text
        assert self.whole

    def lose(self, kind: str, rng: random.Random) -> Stream:
        """Streams, strikes at a random moment, brings the worker back, and checks all that was promised."""
        pid = self.server.process.pid
        stream = Stream(self.server.url)
        n_chunks = rng.randint(0, 150)
        wait_for(lambda: stream.n_chunks >= n_chunks or stream.is_whole, "the moment", BACK_TIMEOUT_S)
        began_s = time.monotonic()
        self._strike(kind, rng)
        stream.join()
        if kind == "away":
            self._check_refusals()
            self.worker = WorkerProcess(port=self.worker.port)
        back_s = self._wait_back()
        self.told.append(
            f"{kind} after {n_chunks} chunks: longest silence {stream.silence_s:.1f} s, "
            f"{'whole' if stream.is_whole else stream.status}, {len(stream.text)} of {len(self.whole)} "
            f"characters; served again {back_s - began_s:.1f} s after the loss"
        )
        assert stream.silence_s < MAX_SILENCE_S, self.told[-1]
        self._check_text(stream)
        if kind == "away":
            assert stream.is_whole is not self.needs_worker, self.told[-1]
        again = Stream(self.server.url).join()
        assert again.is_whole
        assert again.text == self.whole, "the text is another after a loss"
        assert self.server.process.poll() is None
        assert self.server.process.pid == pid
        return stream

    def _strike(self, kind: str, rng: random.Random) -> None:
        if kind == "kill":
            self.worker.kill()
            time.sleep(rng.uniform(0.0, 1.0))
            self.worker = WorkerProcess(port=self.worker.port)
        elif kind == "away":
            self.worker.kill()
        elif kind == "stop":
            self.worker.stop()
            self._wait_noticed()
            if rng.random() < 0.5:
                self.worker.resume()
            else:
                self.worker.kill()
                self.worker = WorkerProcess(port=self.worker.port)
        else:
            self.proxy.freeze()
            self._wait_noticed()
            self.proxy.thaw()

    def _wait_noticed(self) -> None:
        wait_for(lambda: not self._is_well(), "the loss to be noticed", MAX_SILENCE_S)

    def _wait_back(self) -> float:
        wait_for(self._is_well, "the server to be well again", BACK_TIMEOUT_S)
        return time.monotonic()

    def _is_well(self) -> bool:
        response = httpx.get(f"{self.server.url}/health", timeout=MAX_SILENCE_S)
        return response.status_code == 200 and not response.json()["degraded"]

    def _check_refusals(self) -> None:
        """Who asks while the worker is away is answered at once, or told when to ask again."""
        body = {"prompt": [1, 2, 3, 4], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        began_s = time.monotonic()
        response = httpx.post(f"{self.server.url}/v1/completions", json=body, timeout=BACK_TIMEOUT_S)
        assert time.monotonic() - began_s < MAX_SILENCE_S
        if self.needs_worker:
            assert response.status_code == 503
            assert response.headers["retry-after"]
            assert response.json()["error"]["type"] == "server_error"
        else:
            assert response.status_code == 200
            assert self.whole.startswith(response.json()["choices"][0]["text"])

    def _check_text(self, stream: Stream) -> None:
        if stream.is_whole:
            assert stream.text == self.whole, self.told[-1]
            return
        assert self.whole.startswith(stream.text), self.told[-1]
        assert stream.error is not None, self.told[-1]
        assert stream.error["type"] == "server_error"
        assert stream.status in (200, 503)


def server_on_worker(
    folder: Path, proxy: FreezingProxy, role: str, models: tuple[Path, Path], devices: str
) -> ServerProcess:
    """A server, not started, whose `role` (target or draft) lies on `devices`, of which RPC0 is behind
    `proxy`; the other one lies on the CPU."""
    other = "draft" if role == "target" else "target"
    flags = {
        "--target-model": str(models[0]),
        "--draft-model": str(models[1]),
        "--ctx-size": "512",
        "--kv-type": "f32",  # so that a text that goes on is the same to the last bit
        "--threads": "1",
        "--draft-length": "fixed:n=3",
        "--drafter": "model",
        "--workers": proxy.address,
        f"--{role}-device": devices,
        f"--{other}-device": "CPU",
    }
    words = [word for flag in flags.items() for word in flag]
    return ServerProcess(folder / f"{role}.log", *words, environ={"GOMP_SPINCOUNT": "0"})
