"""Clients of a chat endpoint that stream answers, and what they saw: tokens, and when the first came."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

REQUEST_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer: tokens of prompt and answer as the server counts them, seconds until the first token and
    until the last."""

    n_prompt: int
    n_completion: int
    first_token_s: float
    total_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Burst:
    """What `n_clients` clients at once were answered, and how many seconds all of it took."""

    n_clients: int
    samples: list[Sample]
    elapsed_s: float

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens of all clients per second."""
        return sum(sample.n_completion for sample in self.samples) / self.elapsed_s


def ask(port: int, messages: Sequence[dict[str, str]], n_tokens: int) -> Sample:
    """One greedy answer of at most `n_tokens`, streamed. RuntimeError for any status but 200."""
    body = {
        "messages": list(messages),
        "temperature": 0.0,
        "max_tokens": n_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=REQUEST_TIMEOUT_S)
    try:
        started_s = time.perf_counter()
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {response.read(500)!r}")
        return _read(response, started_s)
    finally:
        connection.close()


def burst(
    port: int, conversations: Sequence[Sequence[dict[str, str]]], n_clients: int, n_tokens: int
) -> Burst:
    """Answers to all `conversations`, by `n_clients` clients that each ask for the next one when theirs is
    answered."""
    started_s = time.perf_counter()
    with ThreadPoolExecutor(n_clients) as clients:
        samples = list(clients.map(lambda messages: ask(port, messages, n_tokens), conversations))
    return Burst(n_clients, samples, time.perf_counter() - started_s)


def _read(response: http.client.HTTPResponse, started_s: float) -> Sample:
    first_token_s = 0.0
    pieces: list[str] = []
    usage: dict[str, int] = {}
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[len(b"data: ") :])
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", ()):
            text = choice["delta"].get("content")
            if text and not first_token_s:
                first_token_s = time.perf_counter() - started_s
            pieces.append(text or "")
    if not usage:
        raise RuntimeError(f"the stream ended without usage, after {''.join(pieces)!r}")
    total_s = time.perf_counter() - started_s
    n_prompt, n_completion = usage["prompt_tokens"], usage["completion_tokens"]
    return Sample(n_prompt, n_completion, first_token_s or total_s, total_s, "".join(pieces))
