"""Requests that wish no server well. Each is to be refused, or its connection closed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from starlette.routing import Route

from lucebox.server.application import ROUTES
from tests.support.raw_http import Outcome, RawClient, request

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = '"messages": [{"role": "user", "content": "hello"}]'
MAX_BODY_BYTES = 2**20  # the server's, as the test starts it
REFUSED = range(400, 500)

Attack = Callable[[RawClient], Outcome]


@dataclass(frozen=True, slots=True)
class Hostile:
    """`may_answer`: it is no worse than useless, so that a success is a right answer, too."""

    name: str
    attack: Attack
    may_answer: bool = False

    def problem(self, address: tuple[str, int], folders: Iterable[Path]) -> str | None:
        """What the server did wrong, such as to name one of its `folders`; None if nothing."""
        start_s = time.monotonic()
        with RawClient(address) as client:
            outcome = self.attack(client)
        took_s = time.monotonic() - start_s
        secrets = (b"Traceback", b'File "', *(str(folder).encode() for folder in folders))
        if any(secret in outcome.received for secret in secrets):
            return f"{self.name}: tells of the machine: {outcome.received[:300]!r}"
        final = [status for status in outcome.statuses if status >= 200]
        if any(status >= 500 for status in final):
            return f"{self.name}: {final}: {outcome.received[:300]!r}"
        if any(status not in REFUSED for status in final) and not self.may_answer:
            return f"{self.name}: was served: {outcome.received[:300]!r}"
        if not final and not outcome.closed:
            return f"{self.name}: neither answered nor closed in {took_s:.1f} s"
        return None


def all_requests() -> list[Hostile]:
    groups = (bodies, numbers, huge_bodies, encodings, lines, framings, slow_ones, leavers, methods, paths)
    return [hostile for group in groups for hostile in group()]


def _sends(data: bytes, n_answers: int = 1) -> Attack:
    def attack(client: RawClient) -> Outcome:
        client.send(data)
        return client.read(n_answers)

    return attack


def _posts(path: str, body: str | bytes, headers: str = "") -> Attack:
    data = body if isinstance(body, bytes) else body.encode()
    return _sends(request("POST", path, data, headers))


def bodies() -> Iterator[Hostile]:
    """What is no request: other JSON, no JSON, and nulls where something has to be."""
    for path in (CHAT, TEXT):
        for text in ("", " ", "null", "[]", "1", '"text"', "true", "{", "{}", "{}{}", "[" * 100_000, "\x00"):
            yield Hostile(f"{path} {text[:10]!r}", _posts(path, text))
        yield Hostile(f"{path} deep objects", _posts(path, '{"a":' * 50_000 + "1" + "}" * 50_000))
    for text in (
        '{"messages": null}',
        '{"messages": []}',
        '{"messages": [null]}',
        '{"messages": [{"role": null, "content": null}]}',
        '{"messages": [{"role": "user", "content": null}]}',
        '{"messages": [{"role": "user", "content": [null]}]}',
        '{"messages": [{"role": "user", "content": {"type": "text"}}]}',
        '{"messages": [{"role": "root", "content": "x"}]}',
        '{"messages": {"role": "user"}}',
        f'{{{HELLO}, "tools": [null]}}',
        f'{{{HELLO}, "stop": [null]}}',
        f'{{{HELLO}, "logit_bias": {{"x": 1}}}}',
        f'{{{HELLO}, "logit_bias": {{"0": null}}}}',
        f'{{{HELLO}, "stream_options": 7}}',
        f'{{{HELLO}, "response_format": {{"type": null}}}}',
        f'{{{HELLO}, "speculative": [null]}}',
        f'{{{HELLO}, "unheard_of": null}}',
        f'{{{HELLO}, "model": "../../etc/passwd"}}',
    ):
        yield Hostile(f"chat {text[:60]}", _posts(CHAT, text))
    for prompt in ("null", "[[[1]]]", "[null]", "[-1]", "[1e9]", "[99999999999999999999]", "{}", '[1, "x"]'):
        yield Hostile(f"prompt {prompt}", _posts(TEXT, f'{{"prompt": {prompt}}}'))


def numbers() -> Iterator[Hostile]:
    fields = ("temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
    for field in fields:
        for value in ("NaN", "Infinity", "-1e9", "1e400", '"1"'):
            yield Hostile(f"{field} {value}", _posts(CHAT, f'{{{HELLO}, "{field}": {value}}}'))
    for field in ("max_tokens", "n", "top_logprobs", "seed", "top_k"):
        for value in ("-9223372036854775809", "1e999", "1.5", "18446744073709551616" * 3):
            yield Hostile(f"{field} {value[:20]}", _posts(CHAT, f'{{{HELLO}, "{field}": {value}}}'))


def huge_bodies() -> Iterator[Hostile]:
    big = "x" * (MAX_BODY_BYTES - 200)
    endless = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    chunked = "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
    yield Hostile("too long", _posts(CHAT, " " * (MAX_BODY_BYTES + 1)))
    yield Hostile("longer than a number", _sends(request("POST", CHAT, b"", length=10**40)))
    yield Hostile("chunks for ever", lambda c: _flood(c, request("POST", CHAT, headers=chunked), endless))
    yield Hostile("one chunk for ever", lambda c: _flood(c, _chunked(b"fffffff\r\n"), b" " * 2**16))
    yield Hostile("a trailer for ever", lambda c: _flood(c, _chunked(b"0\r\nA: "), b"x" * 2**16))
    yield Hostile("trailers for ever", lambda c: _flood(c, _chunked(b"0\r\n"), b"A: b\r\n" * 2**13))
    yield Hostile("an extension for ever", lambda c: _flood(c, _chunked(b"1;a="), b"x" * 2**16))
    yield Hostile(
        "a body for a GET", lambda c: _flood(c, request("GET", "/health", length=10**9), b"x" * 2**16)
    )
    yield Hostile(
        "asks first", _sends(request("POST", CHAT, headers="Expect: 100-continue\r\n", length=10**9))
    )
    yield Hostile("a long prompt", _posts(CHAT, f'{{"messages": [{{"role": "user", "content": "{big}"}}]}}'))
    yield Hostile("a long role", _posts(CHAT, f'{{"messages": [{{"role": "{big}", "content": "x"}}]}}'))
    yield Hostile("a long model", _posts(CHAT, f'{{{HELLO}, "model": "{big}"}}'))
    yield Hostile("a long key", _posts(CHAT, f'{{{HELLO}, "{big}": 1}}'))
    yield Hostile("many stops", _posts(CHAT, f'{{{HELLO}, "stop": {json.dumps(["x"] * 50_000)}}}'))
    yield Hostile("many choices", _posts(CHAT, f'{{{HELLO}, "n": 1000000}}'))
    biases = json.dumps({str(i): 999 for i in range(50_000)})
    yield Hostile("many biases", _posts(CHAT, f'{{{HELLO}, "logit_bias": {biases}}}'))
    yield Hostile("many prompts", _posts(TEXT, json.dumps({"prompt": ["x"] * 50_000})))
    messages = ", ".join(['{"role": "user", "content": "x"}'] * 25_000)
    yield Hostile("many messages", _posts(CHAT, f'{{"messages": [{messages}]}}'))


def encodings() -> Iterator[Hostile]:
    whole = f'{{{HELLO}, "max_tokens": 1}}'
    yield Hostile("UTF-16", _posts(CHAT, whole.encode("utf-16")))
    yield Hostile("UTF-32", _posts(CHAT, whole.encode("utf-32")))
    yield Hostile(
        "Latin-1", _posts(CHAT, '{"messages": [{"role": "user", "content": "Ã¤ü"}]}'.encode("latin-1"))
    )
    yield Hostile(
        "half a surrogate pair", _posts(CHAT, '{"messages": [{"role": "user", "content": "\\ud800"}]}')
    )
    yield Hostile("overlong UTF-8", _posts(CHAT, b'{"messages": [{"role": "user", "content": "\xc0\xaf"}]}'))
    yield Hostile("no UTF-8", _posts(CHAT, b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}'))
    yield Hostile("cut UTF-8", _posts(CHAT, b'{"messages": [{"role": "user", "content": "\xf0\x9f'))
    yield Hostile("compressed", _posts(CHAT, b"\x1f\x8b\x08" + b"\x00" * 100, "Content-Encoding: gzip\r\n"))
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
        form = (
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 3\r\n\r\na=b"
        )
        yield Hostile(kind, _sends(form.encode()))
    yield Hostile("a foreign page", _posts(CHAT, whole, "Origin: https://evil.example\r\n"))
    yield Hostile("a file's page", _posts(CHAT, whole, "Origin: null\r\n"))
    rebound = request("POST", CHAT, whole.encode()).replace(b"localhost", b"evil.example")
    yield Hostile("a foreign host", _sends(rebound))


def lines() -> Iterator[Hostile]:
    """What is no HTTP, or too much of it."""
    for data in (
        b"\r\n" * 3 + b"nonsense\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40 + b"\r\n\r\n",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /nothing\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo\x00st: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / v1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x10\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ):
        yield Hostile(f"line {data[:40]!r}", _sends(data))
    yield Hostile("a long line", _sends(b"GET /" + b"x" * 2**20 + b" HTTP/1.1\r\n\r\n"))
    yield Hostile("a line for ever", lambda c: _flood(c, b"GET /", b"x" * 2**16))
    yield Hostile("a header for ever", lambda c: _flood(c, b"GET / HTTP/1.1\r\nA: ", b"x" * 2**16))
    yield Hostile("headers for ever", lambda c: _flood(c, b"GET / HTTP/1.1\r\n", b"A: b\r\n" * 2**13))
    yield Hostile("many headers", _sends(request("GET", "/health", headers="A: b\r\n" * 20_000)))
    yield Hostile("line breaks for ever", lambda c: _flood(c, b"", b"\r\n" * 2**15))


def framings() -> Iterator[Hostile]:
    """Chunks, pipelines, old versions, upgrades."""
    for chunk in (
        b"xyz\r\n",
        b"-1\r\n",
        b"ffffffffffffffffffff\r\n",
        b"5\r\nabc\r\n0\r\n\r\n",
        b"1\r\nab\r\n",
    ):
        yield Hostile(f"chunk {chunk[:12]!r}", lambda c, chunk=chunk: _sends(_chunked(chunk))(c))
    yield Hostile("a chunk that is no JSON", _sends(_chunked(b"3\r\n{{{\r\n0\r\n\r\n")))
    bad = request("POST", CHAT, b"{")
    yield Hostile("a pipeline", _sends(bad * 5, 5))
    yield Hostile("a long pipeline", _sends(request("GET", "/nothing") * 3000, 1000))
    yield Hostile("rubbish behind a request", _sends(bad + b"\x00\x01\x02 rubbish\r\n\r\n", 2))
    old = f"POST {CHAT} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n{{"
    yield Hostile("HTTP/1.0", _sends(old.encode()))
    yield Hostile("HTTP/1.0 without a length", _sends(f"POST {CHAT} HTTP/1.0\r\n\r\n".encode()))
    upgrade = "Connection: Upgrade\r\nUpgrade: {}\r\n"
    yield Hostile("a WebSocket", _sends(request("GET", CHAT, headers=upgrade.format("websocket"))))
    yield Hostile("HTTP/2, please", _sends(request("GET", CHAT, headers=upgrade.format("h2c"))))
    asks = request("POST", CHAT, b"{", "Expect: 100-continue\r\n")
    yield Hostile("Expect: 100-continue", _sends(asks))
    yield Hostile("Expect: something", _sends(request("POST", CHAT, b"{", "Expect: something\r\n")))


def slow_ones() -> Iterator[Hostile]:
    body = f'{{{HELLO}, "max_tokens": 1}}'.encode()
    head = request("POST", CHAT, length=len(body))
    a_byte = 0.4  # so slow that the server's patience of a second ends
    yield Hostile("says nothing", _sends(b""))
    yield Hostile("half a line", _sends(b"POST /v1"))
    yield Hostile("half a head", _sends(head[:-10]))
    yield Hostile("half a body", _sends(head + body[:-3]))
    yield Hostile("half a chunk", _sends(_chunked(b"ff\r\nabc")))
    yield Hostile("no body at all", _sends(head))
    yield Hostile("a body it asked about", _sends(head.replace(b"Host", b"Expect: 100-continue\r\nHost")))
    yield Hostile("a line by bytes", lambda c: _drips(c, b"", head, a_byte))
    yield Hostile("a body by bytes", lambda c: _drips(c, head, body, a_byte))
    yield Hostile("chunks by bytes", lambda c: _drips(c, _chunked(b""), b"1\r\n{\r\n" * 9, a_byte))
    yield Hostile("line breaks by bytes", lambda c: _drips(c, b"", b"\r\n" * 9, a_byte))
    for stream in ("true", "false"):
        more = '"max_tokens": 300, "n": 8, "ignore_eos": true, "top_logprobs": 20, "logprobs": true'
        text = f'{{{HELLO}, {more}, "stream": {stream}}}'
        asked = request("POST", CHAT, text.encode())
        yield Hostile(
            f"reads nothing, {stream}", lambda c, asked=asked: _reads_nothing(c, asked), may_answer=True
        )


def leavers() -> Iterator[Hostile]:
    for stream in ("true", "false"):
        text = f'{{{HELLO}, "max_tokens": 1800, "n": 4, "ignore_eos": true, "stream": {stream}}}'
        asked = request("POST", CHAT, text.encode())
        for delay_s in (0.0, 0.02, 0.2):
            name = f"{delay_s} {stream}"
            yield Hostile(f"leaves, {name}", lambda c, a=asked, d=delay_s: _leaves(c, a, d), may_answer=True)
            yield Hostile(
                f"half leaves, {name}", lambda c, a=asked, d=delay_s: _half_leaves(c, a, d), may_answer=True
            )
    yield Hostile("half leaves in a head", lambda c: _half_leaves(c, b"POST /v1", 0.0))
    yield Hostile("half leaves in a body", lambda c: _half_leaves(c, request("POST", CHAT, length=99), 0.0))


def methods() -> Iterator[Hostile]:
    """Every route by methods that it does not have."""
    for route in ROUTES:
        assert isinstance(route, Route)
        own = route.methods or set()
        path = route.path.replace("{", "").replace("}", "").replace(":path", "")
        for method in sorted({"GET", "POST", "PUT", "DELETE", "PATCH", "TRACE"} - own):
            yield Hostile(
                f"{method} {path}", _sends(request(method, path, b"{}" if method == "POST" else b""))
            )


def paths() -> Iterator[Hostile]:
    """Nowhere, and up from the page's own folder."""
    for path in (
        "/nothing",
        "/v1",
        "/v1/",
        "/v1/chat/completions/",
        "/v1//chat/completions",
        "//etc/passwd",
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2f..%2fetc%2fpasswd",
        "/static/%2e%2e/%2e%2e/launch.py",
        "/static/%2e%2e%5c%2e%2e%5claunch.py",
        "/static/..\\..\\launch.py",
        "/static//etc/passwd",
        "/static/%00",
        "/static/index.html%00.css",
        "/static/",
        "/static/../page.py",
        "/%FF%FE",
        "/v1/models/%2e%2e%2f%2e%2e",
        "/health/../v1/models/none",
        "/?" + "x" * 70_000,
        "/" + "a/" * 20_000,
        "http://evil.example/v1/nothing",
        "*",
    ):
        yield Hostile(f"path {path[:40]}", _sends(request("GET", path)))


def _chunked(start: bytes) -> bytes:
    headers = "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"
    return request("POST", CHAT, headers=headers) + start


def _flood(client: RawClient, start: bytes, more: bytes, n_most: int = 2000) -> Outcome:
    """Sends `more` again and again, 128 MB at most, unless the server ends it."""
    client.send(start)
    for _ in range(n_most):
        if not client.send(more):
            break
    return client.read()


def _drips(client: RawClient, start: bytes, rest: bytes, delay_s: float) -> Outcome:
    client.send(start)
    for i in range(len(rest)):
        if not client.send(rest[i : i + 1], delay_s):
            break
        if i == 12:
            break
    return client.read()


def _reads_nothing(client: RawClient, asked: bytes) -> Outcome:
    client.send(asked)
    time.sleep(2.5)
    return client.read()


def _leaves(client: RawClient, asked: bytes, delay_s: float) -> Outcome:
    client.send(asked)
    time.sleep(delay_s)
    return Outcome((), closed=True)


def _half_leaves(client: RawClient, asked: bytes, delay_s: float) -> Outcome:
    client.send(asked)
    time.sleep(delay_s)
    client.finish_writing()
    return client.read()
