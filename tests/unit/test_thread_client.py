"""The thread transport and the loop, over fake runtimes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import Queue

import pytest

from lucebox.config import EngineConfig, ModelConfig
from lucebox.engine.loader import LoadedEngine, LoadProgress
from lucebox.engine.messages import Failed, RequestEvent, StepEvent, Submit, is_last
from lucebox.engine.thread_client import ThreadClient
from lucebox.errors import EngineError, ModelFileError, RequestError
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Answer, Harness
from tests.support.fake_runtime import random_model
from tests.unit.test_client import info

N_VOCAB = 12
PROMPT = [1, 2, 3]
GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
CONFIG = EngineConfig(
    target=ModelConfig(path="fake.gguf", device="auto", n_threads=1, kv_type="f32"),
    draft=None,
    drafters=(),
    acceptance="auto",
    draft_length="fixed",
    n_ctx=64,
    n_parallel=2,
)
Load = Callable[[EngineConfig, LoadProgress], LoadedEngine]


@pytest.fixture
def harness() -> Harness:
    return Harness(N_VOCAB, random_model(N_VOCAB, 1), random_model(N_VOCAB, 1, noise=0.5), n_parallel=2)


def loads(harness: Harness) -> Load:
    def load(config: EngineConfig, on_progress: LoadProgress, on_round: object, **_: object) -> LoadedEngine:
        on_progress("target model fake.gguf", 1.0)
        return LoadedEngine(harness.stepper, harness.admission, info(n_parallel=2))

    return load


@pytest.fixture
def client(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadClient]:
    monkeypatch.setattr("lucebox.engine.thread_client.load", loads(harness))
    with ThreadClient(CONFIG) as client:
        client.wait_ready(10)
        yield client


def ask(client: ThreadClient, id: str, params: SamplingParams = GREEDY, prompt: list[int] = PROMPT) -> Answer:
    events: Queue[RequestEvent] = Queue()
    client.submit(Submit(id=id, prompt=prompt, params=params, seed=1), events.put)
    answer = Answer()
    while not answer.events or not is_last(answer.events[-1]):
        answer.events.append(events.get(timeout=10))
    return answer


def test_answers_as_the_stepper_does(client: ThreadClient) -> None:
    plain = Harness(N_VOCAB, random_model(N_VOCAB, 1)).ask(PROMPT, GREEDY)
    assert ask(client, "a").tokens == plain.tokens
    assert ask(client, "a").tokens == plain.tokens  # the id is free again


def test_requests_of_many_threads(client: ThreadClient) -> None:
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda i=i: answers.append(ask(client, f"r{i}"))) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({tuple(answer.tokens) for answer in answers}) == 1
    assert len(answers) == 12


def test_a_refused_request_fails_alone_with_its_type(client: ThreadClient) -> None:
    failure = ask(client, "bad", prompt=[]).failure.error()
    assert isinstance(failure, RequestError)
    assert failure.param == "prompt"
    assert len(ask(client, "good").tokens) == 20


def test_cancel_ends_within_a_step(client: ThreadClient, harness: Harness) -> None:
    started, release = threading.Event(), threading.Event()
    events: Queue[RequestEvent] = Queue()
    forward = harness.target.forward

    def slow_forward(rows: object) -> object:
        started.set()
        assert release.wait(10)
        return forward(rows)  # type: ignore[arg-type]

    harness.target.forward = slow_forward  # type: ignore[assignment]
    client.submit(Submit(id="a", prompt=PROMPT, params=GREEDY, seed=1), events.put)
    assert started.wait(10)
    client.cancel("a")
    release.set()
    answer = Answer()
    while not answer.events or not is_last(answer.events[-1]):
        answer.events.append(events.get(timeout=10))
    assert answer.finish.reason == "cancelled"
    assert len(answer.steps) <= 2  # the step under way, and the end
    assert len(ask(client, "b").tokens) == 20


def test_a_slow_reader_stalls_nobody_and_loses_nothing(client: ThreadClient, harness: Harness) -> None:
    plain = ask(client, "plain")
    entered, release = threading.Event(), threading.Event()
    events: list[RequestEvent] = []

    def slow(event: RequestEvent) -> None:
        events.append(event)
        entered.set()
        assert release.wait(10)

    client.submit(Submit(id="slow", prompt=PROMPT, params=GREEDY, seed=1), slow)
    assert entered.wait(10)
    deadline = time.monotonic() + 10
    while not harness.stepper.scheduler.is_idle and time.monotonic() < deadline:
        time.sleep(0.005)
    assert (
        harness.stepper.scheduler.is_idle
    )  # the engine is done while its reader still sits on the first event
    release.set()
    while not is_last(events[-1]):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert [t for e in events if isinstance(e, StepEvent) for t in e.tokens] == plain.tokens
    assert len(events) <= 2  # all that came while it sat there is one event


def test_close_ends_requests_and_frees_memory(client: ThreadClient, harness: Harness) -> None:
    events: Queue[RequestEvent] = Queue()
    endless = SamplingParams(temperature=0.0, ignore_eos=True)
    for i in range(30):
        client.submit(Submit(id=f"r{i}", prompt=PROMPT, params=endless, seed=1), events.put)
    client.close()
    client.close()
    last = [event for event in events.queue if is_last(event)]
    assert len(last) == 30
    assert harness.target.is_closed
    assert harness.draft.is_closed
    with pytest.raises(EngineError, match="closed"):
        client.submit(Submit(id="late", prompt=PROMPT, params=GREEDY, seed=1), events.put)


def test_a_failed_load_arrives_with_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(config: EngineConfig, on_progress: LoadProgress, on_round: object, **_: object) -> LoadedEngine:
        raise ModelFileError("fake.gguf", "magic", "is wrong", remedy="fetch it again")

    monkeypatch.setattr("lucebox.engine.thread_client.load", load)
    with ThreadClient(CONFIG) as client, pytest.raises(ModelFileError, match="fetch it again"):
        client.wait_ready(10)


def test_a_bug_in_the_engine_fails_what_is_running(
    client: ThreadClient, harness: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(harness.stepper.scheduler, "next_turn", broken)
    answer = ask(client, "a")
    assert isinstance(answer.events[-1], Failed)
    assert "a bug" in answer.failure.message
    assert client.status().state == "failed"
    assert "a bug" in caplog.text


def test_two_engines_in_one_process(client: ThreadClient, monkeypatch: pytest.MonkeyPatch) -> None:
    other_harness = Harness(N_VOCAB, random_model(N_VOCAB, 2), n_parallel=2)
    expected = Harness(N_VOCAB, random_model(N_VOCAB, 2)).ask(PROMPT, GREEDY).tokens
    first = ask(client, "a").tokens
    monkeypatch.setattr("lucebox.engine.thread_client.load", loads(other_harness))
    with ThreadClient(CONFIG) as other:
        assert ask(other, "a").tokens == expected != first
    assert ask(client, "a").tokens == first
