"""The benchmark of servers: what its clients read of a stream, and the figures made of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lucebox.bench.http_client import Burst, Sample, ask, burst
from lucebox.bench.serving import Found

QUESTION = [{"role": "user", "content": "hi"}]


class Stream(BaseHTTPRequestHandler):
    """Answers as a server of OpenAI's API does: a role, text, usage, and no usage at all for `cut`."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = body["messages"][-1]["content"]
        if words == "refuse":
            self.send_error(400)
            return
        self.send_response(200)
        self.end_headers()
        self._event({"choices": [{"delta": {"role": "assistant"}}]})
        for piece in ("So ", "be it"):
            self._event({"choices": [{"delta": {"content": piece}}]})
        if words != "cut":
            self._event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
            self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, body: object) -> None:
        self.wfile.write(b": comment\ndata: " + json.dumps(body).encode() + b"\n\n")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def server() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Stream) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield httpd.server_port
        finally:
            httpd.shutdown()
            thread.join()


def test_a_client_reads_text_tokens_and_times() -> None:
    with server() as port:
        sample = ask(port, QUESTION, 8)
    assert (sample.text, sample.n_prompt, sample.n_completion) == ("So be it", 3, 5)
    assert 0 < sample.first_token_s <= sample.total_s


@pytest.mark.parametrize(("words", "problem"), [("cut", "without usage"), ("refuse", "status 400")])
def test_an_answer_that_is_none_is_no_sample(words: str, problem: str) -> None:
    with server() as port, pytest.raises(RuntimeError, match=problem):
        ask(port, [{"role": "user", "content": words}], 8)


def test_a_burst_has_every_answer() -> None:
    with server() as port:
        done = burst(port, [QUESTION] * 7, 3, 8)
    assert len(done.samples) == 7
    assert done.tokens_per_second == pytest.approx(35 / done.elapsed_s)


def test_ratios_pair_the_bursts_of_a_round() -> None:
    def of(n_tokens: int, first_token_s: float) -> Burst:
        return Burst(1, [Sample(1, n_tokens, first_token_s, 1.0, "")], 1.0)

    found = Found({("a", 1): [of(20, 0.1), of(40, 0.3)], ("b", 1): [of(10, 1.0), of(40, 1.0)]})
    assert found.ratio("a", "b", 1) == pytest.approx(1.5)
    assert found.tokens_per_second("a", 1) == pytest.approx(30)
    assert found.first_token_ms("a", 1) == (pytest.approx(200), pytest.approx(300))
