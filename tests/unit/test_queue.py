"""Requests that wait: how many, how long, in which order, and what the engine says of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, Queue

import msgspec
import pytest

from lucebox.engine.engine_load import EngineLoad, SlotLoad
from lucebox.engine.loop import LOAD_PERIOD_S, EngineLoop
from lucebox.engine.messages import Cancel, Event, Failed, Message, RequestEvent, Shutdown, StepEvent, Submit
from lucebox.engine.thread_client import ThreadClient
from lucebox.errors import QueueFullError, RequestTimeoutError
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Answer, Harness
from tests.support.fake_runtime import random_model
from tests.support.scripted_engine import fails
from tests.support.serving import CHAT, HELLO, serving
from tests.unit.test_thread_client import CONFIG, loads

N_VOCAB = 12
ENDLESS = SamplingParams(temperature=0.0, ignore_eos=True)
SHORT = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)


def harness(n_parallel: int = 1) -> Harness:
    return Harness(N_VOCAB, random_model(N_VOCAB, 1), n_ctx=4000, n_parallel=n_parallel)


def submit(id: str, params: SamplingParams = SHORT, n_prompt: int = 3) -> Submit:
    return Submit(id=id, prompt=[1 + i % 5 for i in range(n_prompt)], params=params, seed=1)


class Loop:
    """An engine's loop that the test steps: each round of it asks for what has arrived in between."""

    def __init__(self, engine: Harness, *, timeout_s: float | None = None) -> None:
        self.engine = engine
        self.events: list[Event] = []
        self._inbox = Inbox(self)
        self.script: list[Callable[[], Message | None]] = []
        self._loop = EngineLoop(
            engine.stepper,
            engine.admission,
            self._inbox,  # type: ignore[arg-type]
            self.events.append,
            timeout_s=timeout_s,
        )

    def run(self, *script: Message | Callable[[], Message | None]) -> None:
        """One step behind each message; a callable gives one, or None for a step more before it is asked
        again."""
        self.script = [(lambda m=m: m) if isinstance(m, msgspec.Struct) else m for m in script]
        self._loop.run()
        self.engine.stepper.check_integrity()

    def answer(self, id: str) -> Answer:
        return Answer([e for e in self.events if isinstance(e, StepEvent | Failed) and e.id == id])

    @property
    def loads(self) -> list[EngineLoad]:
        return [event for event in self.events if isinstance(event, EngineLoad)]


@dataclass
class Inbox:
    """What a Loop's engine reads instead of a queue."""

    loop: Loop
    asked: bool = False

    def get(self, block: bool, timeout: float | None) -> Message:
        if self.asked and not block:
            self.asked = False
            raise Empty
        if not self.loop.script:
            return Shutdown()
        message = self.loop.script[0]()
        if message is None:
            raise Empty
        del self.loop.script[0]
        self.asked = True
        return message


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadClient]:
    monkeypatch.setattr("lucebox.engine.thread_client.load", loads(harness(2)))
    with ThreadClient(msgspec.structs.replace(CONFIG, max_queue=3)) as client:
        client.wait_ready(10)
        yield client


def test_a_full_queue_refuses_and_takes_again(client: ThreadClient) -> None:
    events: Queue[RequestEvent] = Queue()
    for i in range(2 + 3):
        client.submit(submit(f"r{i}", ENDLESS), events.put)
    with pytest.raises(QueueFullError, match=r"already has 5 requests.*--max-queue") as caught:
        client.submit(submit("one too many"), events.put)
    assert caught.value.n_requests == 5
    client.cancel("r4")
    while not isinstance(event := events.get(timeout=10), StepEvent) or event.id != "r4":
        pass
    assert event.finish is not None
    client.submit(submit("r5", ENDLESS), events.put)


def test_first_come_first_served() -> None:
    loop = Loop(harness())
    loop.run(*(submit(f"r{i}") for i in range(4)), lambda: until(loop, 4))
    ended = [e.id for e in loop.events if isinstance(e, StepEvent) and e.finish]
    assert ended == ["r0", "r1", "r2", "r3"]


def until(loop: Loop, n_ended: int) -> Message | None:
    """Steps until so many requests have ended."""
    ended = [e for e in loop.events if isinstance(e, Failed) or (isinstance(e, StepEvent) and e.finish)]
    return Shutdown() if len(ended) >= n_ended else None


def test_a_waiting_request_is_cancelled_at_once() -> None:
    loop = Loop(harness())
    loop.run(submit("running", ENDLESS), submit("waiting"), Cancel("waiting"), Shutdown())
    assert loop.answer("waiting").finish.reason == "cancelled"
    assert loop.answer("waiting").tokens == []
    assert loop.answer("running").finish.reason == "cancelled"
    assert len(loop.answer("running").tokens) <= 4


def test_who_waits_or_runs_for_too_long_is_told_so() -> None:
    loop = Loop(harness(), timeout_s=60.2)

    def a_minute_later() -> None:
        scheduler = loop.engine.stepper.scheduler
        for sequence in (*scheduler.running, *scheduler.waiting):
            sequence.clock.arrived_s -= 61.0
        loop.script[0] = lambda: until(loop, 2)

    loop.run(submit("runs", ENDLESS), submit("waits"), a_minute_later)
    for id in ("runs", "waits"):
        error = loop.answer(id).failure.error()
        assert isinstance(error, RequestTimeoutError)
        assert error.timeout_s == 60.2
        assert "60.2 s" in error.message
    assert len(loop.answer("runs").tokens) > 0
    assert loop.answer("waits").tokens == []


def test_in_time_is_in_time() -> None:
    loop = Loop(harness(), timeout_s=60.0)
    loop.run(submit("a"), lambda: until(loop, 1))
    assert loop.answer("a").finish.reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_late_request_gets_a_503(stream: bool) -> None:
    async def run() -> None:
        async with serving(fails(RequestTimeoutError(30.0))) as server:
            body = {"model": "tiny", "messages": HELLO, "stream": stream}
            response = await server.post(CHAT, body)
            assert response.status_code == 503
            assert response.headers["retry-after"]
            error = response.json()["error"]
            assert (error["code"], error["type"]) == ("request_timeout", "server_error")
            for word in ("within 30 s", "not streamed is lost", "--request-timeout"):
                assert word in error["message"]

    asyncio.run(run())


def test_the_load_is_what_is_going_on() -> None:
    engine = harness(2)
    engine.ask([1, 2, 3] * 16, SHORT)
    for i in range(3):
        engine.submit([1, 2, 3] * 16 + [1 + i], ENDLESS)
    engine.submit([5] * 300, SHORT)
    engine.step()
    load = engine.stepper.load()
    assert (load.n_running, load.n_waiting) == (2, 2)
    assert load.n_cells == engine.target.cache.n_cells
    assert load.n_cells_cached == 48
    assert load.n_cells_used == 48 + 2
    assert load.slots == tuple(
        SlotLoad(id=i, state="decoding", request=f"r{i + 1}", n_prompt=49, n_cached=48, n_tokens=50)
        for i in range(2)
    )


def test_the_load_is_told_in_time_and_when_all_is_done() -> None:
    loop = Loop(harness())
    started_s = time.monotonic()
    loop.run(submit("a", ENDLESS), lambda: None if time.monotonic() < started_s + 0.5 else Cancel("a"))
    assert 2 <= len([load for load in loop.loads if load.n_running]) <= 0.5 / LOAD_PERIOD_S + 2
    assert loop.loads[0].n_running == 0, "an engine says so before anybody asks"
    assert loop.loads[0].slots == (SlotLoad(id=0),)


def test_a_client_knows_the_load(client: ThreadClient) -> None:
    events: Queue[RequestEvent] = Queue()
    client.submit(submit("a", SHORT), events.put)
    done = threading.Event()
    deadline_s = time.monotonic() + 10
    while (load := client.load()).n_running or not load.slots or client.status().n_in_flight:
        assert time.monotonic() < deadline_s
        done.wait(0.01)
    assert (load.n_running, load.n_waiting, len(load.slots)) == (0, 0, 2)
    assert load.n_cells_used == load.n_cells_cached
    client.close()
    assert client.load() == EngineLoad(), "an engine that is gone is busy with nothing"


def test_a_cancel_that_leaves_nothing_to_do_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucebox.engine.loop.LOAD_PERIOD_S", 0.0)
    loop = Loop(harness())
    seen: list[int] = []

    def look(then: Message) -> Message:
        seen.append(loop.loads[-1].n_running)
        return then

    loop.run(submit("runs", ENDLESS), lambda: look(Cancel("runs")), lambda: look(Shutdown()))
    assert seen == [1, 0]
