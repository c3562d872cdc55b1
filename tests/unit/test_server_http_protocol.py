"""How long a connection waits for the next request's head."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import Receive, Scope, Send

from lucebox.server import http_protocol, launch
from tests.support.raw_http import RawClient, request

TIMEOUT_S = 1.0
ANSWER_S = 0.9
PAUSE_S = 0.5  # shorter than a client's time, and ends when the time that began with the answer is over


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers after ANSWER_S."""
    await asyncio.sleep(ANSWER_S)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def listening() -> Iterator[tuple[str, int]]:
    with launch.listen("127.0.0.1", 0) as listener:
        protocol = http_protocol.protocol(TIMEOUT_S)
        config = uvicorn.Config(slow, http=protocol, log_config=None, lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()


def test_the_time_for_the_next_head_begins_when_an_answer_ends() -> None:
    with listening() as address, RawClient(address) as client:
        assert client.send(request("GET", "/"))
        assert client.read().statuses == (200,)
        time.sleep(PAUSE_S)
        assert client.send(request("GET", "/"))
        assert client.read().statuses == (200,)


def test_a_connection_that_is_idle_after_an_answer_is_closed_without_a_word() -> None:
    with listening() as address, RawClient(address) as client:
        assert client.send(request("GET", "/"))
        assert client.read().statuses == (200,)
        ended = client.read()
        assert ended.closed
        assert ended.received == b""


def test_a_head_that_began_while_another_was_answered_has_its_full_time() -> None:
    whole = request("GET", "/")
    with listening() as address, RawClient(address) as client:
        assert client.send(whole + whole[:9])
        assert client.read().statuses == (200,)
        time.sleep(PAUSE_S)
        assert client.send(whole[9:])
        assert client.read().statuses == (200,)


def test_a_head_that_stays_unfinished_after_an_answer_is_refused() -> None:
    with listening() as address, RawClient(address) as client:
        assert client.send(request("GET", "/"))
        assert client.read().statuses == (200,)
        assert client.send(b"GET / HT")
        assert client.read().statuses == (408,)
