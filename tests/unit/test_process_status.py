"""What a supervisor makes of deaths, hangs and workers that are away, told by processes that only pretend."""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest

from lucebox.engine import process_client
from lucebox.engine.child_process import Ending
from lucebox.engine.child_setup import EXIT_FAILED, EXIT_WORKER_LOST
from lucebox.engine.client import EngineState, EngineStatus
from lucebox.engine.messages import (
    Degraded,
    Event,
    Failed,
    Finish,
    Message,
    Ping,
    Pong,
    Ready,
    RequestEvent,
    StepEvent,
    Submit,
)
from lucebox.engine.process_client import ProcessClient
from lucebox.engine.pulse import Pulse
from lucebox.errors import GgmlError, WorkerError
from lucebox.sampling.params import SamplingParams
from tests.support.serving import server_config
from tests.support.waiting import eventually
from tests.unit.test_client import info

TIMEOUT_S = 10.0
AWAY = WorkerError("The worker 10.0.0.1:50052 refuses connections")
LOST = Ending("engine", EXIT_WORKER_LOST, "The worker 10.0.0.1:50052 has not answered for 4 s")


class Process:
    """An engine's process as the test plays it."""

    pid = 1

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.answers_pings = True
        self.busy_s = 0.0
        self.ending = Ending("engine", -9)
        self._events: SimpleQueue[Event | None] = SimpleQueue()

    def say(self, *events: Event) -> None:
        for event in events:
            self._events.put(event)

    def end(self, ending: Ending) -> None:
        self.ending = ending
        self._events.put(None)

    def fail_to_load(self, error: Exception) -> None:
        self.say(Failed.of(None, error))
        self.end(Ending("engine", EXIT_FAILED))

    @property
    def submits(self) -> list[Submit]:
        return [message for message in self.sent if isinstance(message, Submit)]

    def send(self, message: Message) -> None:
        self.sent.append(message)
        if isinstance(message, Ping) and self.answers_pings:
            self._events.put(Pong(self.busy_s))

    def receive(self, timeout_s: float | None = None) -> Event | None:
        try:
            return self._events.get(timeout=timeout_s)
        except Empty:
            raise TimeoutError from None

    def kill(self) -> None:
        self.end(Ending("engine", -9))

    def reap(self, timeout_s: float) -> Ending:
        return self.ending


class Supervised:
    """A ProcessClient, the processes it has started, and what it has said of itself."""

    def __init__(self) -> None:
        self.processes: SimpleQueue[Process] = SimpleQueue()
        self.seen: list[EngineStatus] = []
        self.client = ProcessClient(server_config().engine, self.seen.append)

    def make(self, *_: object) -> Process:
        process = Process()
        self.processes.put(process)
        return process

    def next(self) -> Process:
        return self.processes.get(timeout=TIMEOUT_S)

    def ready(self) -> Process:
        """The next process, which loads without trouble."""
        process = self.next()
        process.say(Ready(info()))
        assert eventually(lambda: self.client.status().state is EngineState.READY)
        return process

    def submit(self, id: str = "a") -> list[RequestEvent]:
        events: list[RequestEvent] = []
        submit = Submit(id=id, prompt=[1], params=SamplingParams(), seed=1)
        self.client.submit(submit, events.append)
        return events


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    monkeypatch.setattr(process_client, "FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr(process_client, "MAX_BACKOFF_S", 0.02)
    monkeypatch.setattr(process_client, "PING_S", 0.02)
    supervised = Supervised()
    monkeypatch.setattr(process_client, "EngineProcess", supervised.make)
    supervised.client.start()
    yield supervised
    supervised.client._closing.set()
    while supervised.client._supervisor.is_alive():
        child = supervised.client._child
        if isinstance(child, Process):
            child.kill()
        supervised.client._supervisor.join(0.01)
    supervised.client.close()


def step(tokens: list[int], finish: Finish | None = None) -> StepEvent:
    return StepEvent(id="a", tokens=tokens, origins=[], finish=finish)


def test_a_request_waits_for_a_lost_worker_and_goes_on(supervised: Supervised) -> None:
    first = supervised.ready()
    events = supervised.submit()
    first.say(step([5, 6]))
    assert eventually(lambda: bool(events))
    first.end(LOST)
    for _ in range(7):  # more than the deaths in a row that end an engine's patience
        supervised.next().fail_to_load(AWAY)
    assert supervised.client.status().state is EngineState.RESTARTING
    last = supervised.ready()
    assert last.submits[0].generated == [5, 6]
    last.say(step([7], Finish(reason="stop")))
    assert eventually(lambda: len(events) == 2)
    assert supervised.client.status().n_restarts == 1
    assert supervised.client.status().state is EngineState.READY


def test_a_worker_that_stays_away_is_waited_for_no_longer_than_promised(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_client, "WORKER_WAIT_S", 0.1)
    monkeypatch.setattr(process_client, "MIN_WORKER_WAIT_S", 0.1)
    first = supervised.ready()
    events = supervised.submit()
    first.end(LOST)
    waiting = supervised.next()
    assert eventually(lambda: bool(events))
    (failure,) = events
    assert isinstance(failure, Failed)
    assert isinstance(failure.error(), WorkerError)
    assert "has not answered" in failure.message
    assert supervised.client.status().state is EngineState.AWAY
    with pytest.raises(WorkerError):
        supervised.submit("b")
    waiting.fail_to_load(AWAY)
    assert eventually(lambda: "refuses" in supervised.client.status().detail)
    assert supervised.client.status().state is EngineState.AWAY
    supervised.ready()
    supervised.submit("c")
    assert not supervised.seen[-1].detail


def test_patience_ends_with_the_wait_that_it_was_for(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_client, "WORKER_WAIT_S", 0.3)
    monkeypatch.setattr(process_client, "MIN_WORKER_WAIT_S", 0.3)
    supervised.ready().end(LOST)
    second = supervised.ready()
    time.sleep(0.2)
    events = supervised.submit()
    second.end(LOST)
    time.sleep(0.2)
    assert not events
    assert supervised.client.status().state is EngineState.RESTARTING


def test_a_worker_that_is_away_at_the_first_start_is_an_error(supervised: Supervised) -> None:
    supervised.next().fail_to_load(AWAY)
    with pytest.raises(WorkerError, match="refuses"):
        supervised.client.wait_ready(TIMEOUT_S)
    assert supervised.client.status().state is EngineState.FAILED


def test_ggmls_own_end_for_a_worker_counts_as_one(supervised: Supervised) -> None:
    words = "ggml aborted: /x/ggml-rpc/ggml-rpc.cpp:519: Remote RPC server crashed"
    first = supervised.ready()
    events = supervised.submit()
    first.end(Ending("engine", -6, words))
    supervised.next().fail_to_load(AWAY)
    supervised.ready().end(Ending("engine", -6, words))
    supervised.ready()
    assert not events, "a request is no suspect when a worker dies"
    assert "ggml-rpc.cpp" not in str(Ending("engine", -6, words))


def test_an_engine_that_keeps_dying_is_tried_again_after_a_while(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_client, "LONG_BACKOFF_S", 0.1)
    supervised.ready().end(Ending("engine", -11))
    events = supervised.submit()
    for _ in range(process_client.MAX_DEATHS_IN_A_ROW - 1):
        supervised.next().fail_to_load(GgmlError("out of luck"))
    assert eventually(lambda: supervised.client.status().state is EngineState.AWAY)
    assert isinstance(events[0], Failed)
    with pytest.raises(GgmlError):
        supervised.submit("b")
    supervised.ready()
    supervised.submit("c")


def test_a_silent_engine_is_pinged_and_ended_if_it_does_not_answer(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_client, "HANG_S", 0.2)
    first = supervised.ready()
    events = supervised.submit()
    assert eventually(lambda: sum(isinstance(m, Ping) for m in first.sent) > 20)
    assert supervised.client.status().n_restarts == 0, "a long prompt is no hang"
    first.answers_pings = False
    second = supervised.ready()
    assert "did not answer" in next(s.detail for s in supervised.seen if s.state is EngineState.RESTARTING)
    assert [submit.id for submit in second.submits] == ["a"]
    assert not events


def test_an_engine_that_nobody_asked_is_not_ended(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that was paused, or a server that got no time: silence, but of nobody who was asked."""
    monkeypatch.setattr(process_client, "HANG_S", 0.2)
    first = supervised.ready()
    receive = first.receive

    def paused(timeout_s: float | None = None) -> Event | None:
        monkeypatch.setattr(first, "receive", receive)
        time.sleep(0.4)
        raise TimeoutError

    monkeypatch.setattr(first, "receive", paused)
    assert eventually(lambda: first.receive == receive)
    n_pings = len(first.sent)
    assert eventually(lambda: len(first.sent) > n_pings + 5)
    assert supervised.client.status().n_restarts == 0


def test_an_engine_that_is_stuck_in_a_step_is_ended(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_client, "STUCK_S", 100.0)
    first = supervised.ready()
    events = supervised.submit()
    first.busy_s = 99.0
    n_pings = len(first.sent)
    assert eventually(lambda: len(first.sent) > n_pings + 5)
    assert supervised.client.status().n_restarts == 0
    first.busy_s = 101.0
    second = supervised.ready()
    assert "running for 101 s" in next(s.detail for s in supervised.seen if s.state is EngineState.RESTARTING)
    assert [submit.id for submit in second.submits] == ["a"]
    assert not events


def test_a_pulse_says_how_long_the_step_has_been_running() -> None:
    pulse = Pulse()
    assert pulse.busy_s == 0.0
    with pulse.step():
        time.sleep(0.02)
        assert 0.02 <= pulse.busy_s < 10.0
    assert pulse.busy_s == 0.0
    with pytest.raises(ValueError, match="broken"), pulse.step():
        raise ValueError("broken")
    assert pulse.busy_s == 0.0


def test_degraded_is_told_and_ends_with_the_engine(supervised: Supervised) -> None:
    first = supervised.ready()
    first.say(Degraded("the draft model was lost"))
    assert eventually(lambda: supervised.client.status().degraded == "the draft model was lost")
    assert supervised.client.status().state is EngineState.READY
    assert supervised.seen[-1].degraded
    first.say(Degraded(""))
    assert eventually(lambda: not supervised.client.status().degraded)
    first.say(Degraded("again"))
    first.end(Ending("engine", -9))
    supervised.ready()
    assert not supervised.client.status().degraded


def test_endings_say_what_is_worth_knowing() -> None:
    assert str(LOST) == LOST.last_words
    assert str(Ending("draft", 3)) == "the draft process exited with status 3"
    assert str(Ending("engine", -9, "bye")) == "the engine process was ended by SIGKILL: bye"
    assert not Ending("engine", -9).is_lost_worker
