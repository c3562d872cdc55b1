"""What every transport shares: who hears of what, limits, deaths and new beginnings."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from lucebox.core import Origin
from lucebox.engine.client import EngineClient, EngineState, EngineStatus
from lucebox.engine.engine_load import EngineLoad, SlotLoad
from lucebox.engine.messages import (
    Cancel,
    Embed,
    Embedded,
    EngineInfo,
    Event,
    Failed,
    Finish,
    Loading,
    Message,
    ModelInfo,
    Ready,
    RequestEvent,
    StepEvent,
    Submit,
)
from lucebox.engine.timings import DraftedRound, Timings
from lucebox.errors import ConfigError, EngineError, LuceboxError
from lucebox.sampling.params import SamplingParams

MODEL = ModelInfo(
    path="m.gguf",
    name="m",
    architecture="llama",
    device="CPU",
    n_vocab=8,
    n_embd=2,
    n_ctx_train=64,
    n_bytes=1,
)


def info(n_parallel: int = 1) -> EngineInfo:
    return EngineInfo(
        target=MODEL,
        draft=None,
        n_ctx=64,
        n_parallel=n_parallel,
        drafters=(),
        acceptance="auto",
        draft_length="fixed",
        load_ms=1.0,
    )


class Scripted(EngineClient):
    """The test plays the engine: it sees what is sent, and says what happens."""

    def __init__(self, **options: int) -> None:
        self.seen: list[EngineStatus] = []
        super().__init__(self.seen.append, **options)
        self.sent: list[Message] = []

    def start(self) -> None:
        pass

    def close(self, timeout_s: float = 10.0) -> None:
        self._give_up(EngineError("the engine was closed"), EngineState.STOPPED)

    def _send(self, message: Message) -> None:
        self.sent.append(message)

    def happen(self, event: Event) -> None:
        self._dispatch(event)

    def die(self, reason: str = "killed") -> int:
        n_failed = self._lost(reason)
        self._set_status(EngineState.RESTARTING, reason, n_deaths=1)
        self.sent.clear()
        self._resubmit()
        return n_failed

    def break_down(self, error: LuceboxError) -> None:
        self._give_up(error)


def submit(client: Scripted, id: str = "a") -> list[RequestEvent]:
    events: list[RequestEvent] = []
    client.submit(Submit(id=id, prompt=[1, 2], params=SamplingParams(), seed=3), events.append)
    return events


def step(
    id: str, *tokens: int, finish: Finish | None = None, drafted: Sequence[DraftedRound] = ()
) -> StepEvent:
    origins = [Origin.PLAIN] * len(tokens)
    return StepEvent(id=id, tokens=list(tokens), origins=origins, finish=finish, drafted=list(drafted))


def test_status_follows_the_engine() -> None:
    client = Scripted()
    assert client.status().state == "loading"
    client.happen(Loading("target model m", 0.5))
    assert client.status() == EngineStatus(EngineState.LOADING, "target model m", 0.5)
    with pytest.raises(EngineError, match="not ready"):
        client.wait_ready(0)
    client.happen(Ready(info()))
    assert client.wait_ready(0) == info()
    assert [status.state for status in client.seen] == ["loading", "ready"]


def test_events_reach_their_request_until_the_last() -> None:
    client = Scripted()
    a, b = submit(client, "a"), submit(client, "b")
    assert client.status().n_in_flight == 2
    client.happen(step("a", 5))
    client.happen(step("b", 6, finish=Finish(reason="stop")))
    client.happen(step("b", 7))  # of a dead engine: nobody is there any more
    client.happen(step("nobody", 7))
    assert [event.tokens for event in a if isinstance(event, StepEvent)] == [[5]]
    assert [event.tokens for event in b if isinstance(event, StepEvent)] == [[6]]
    assert client.status().n_in_flight == 1


def test_an_id_in_use_and_too_many_requests_are_refused() -> None:
    client = Scripted(max_in_flight=2)
    submit(client, "a")
    with pytest.raises(ValueError, match="in use"):
        submit(client, "a")
    submit(client, "b")
    with pytest.raises(EngineError, match="already has 2"):
        submit(client, "c")


def test_cancel_is_sent_only_for_requests_in_flight() -> None:
    client = Scripted()
    submit(client, "a")
    client.cancel("a")
    client.cancel("b")
    assert client.sent[1:] == [Cancel("a")]


def test_a_failing_handler_cancels_its_request_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    client = Scripted()

    def broken(event: RequestEvent) -> None:
        raise RuntimeError("handler")

    client.submit(Submit(id="a", prompt=[1], params=SamplingParams(), seed=3), broken)
    other = submit(client, "b")
    client.happen(step("a", 1))
    client.happen(step("b", 1))
    assert Cancel("a") in client.sent
    assert len(other) == 1
    assert "handler" in caplog.text


def test_an_engine_that_hangs_shows_as_quiet() -> None:
    client = Scripted()
    client.happen(Ready(info()))
    time.sleep(0.3)
    assert client.status().quiet_s == 0.0
    submit(client, "a")
    assert client.status().quiet_s < 0.3
    time.sleep(0.03)
    quiet_s = client.status().quiet_s
    assert quiet_s >= 0.03
    client.happen(step("a", 1))
    assert client.status().quiet_s < quiet_s


def test_a_failing_status_handler_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    client = Scripted()

    def broken(status: EngineStatus) -> None:
        raise BrokenPipeError("nobody reads stderr")

    client._on_status = broken
    client.happen(Ready(info()))
    assert client.wait_ready(0) == info()
    assert "nobody reads" in caplog.text


def test_after_a_death_requests_go_on_from_what_was_sent() -> None:
    client = Scripted()
    client.happen(Ready(info()))
    a = submit(client, "a")
    client.happen(step("a", 5, 6, drafted=[DraftedRound("model", 4, 4, 1)]))
    assert client.die() == 0
    assert client.status().state == "restarting"
    assert client.status().n_restarts == 1
    assert client.sent == [Submit(id="a", prompt=[1, 2], params=SamplingParams(), seed=3, generated=[5, 6])]
    client.happen(Ready(info()))
    rest = Timings(prompt_n=2, predicted_n=1, n_rounds=1) + DraftedRound("suffix", 2, 2, 2).timings()
    client.happen(step("a", 7, finish=Finish(reason="length", timings=rest)))
    last = a[-1]
    assert isinstance(last, StepEvent)
    assert last.finish is not None
    timings = last.finish.timings
    assert (timings.prompt_n, timings.predicted_n, timings.draft_n, timings.n_rounds) == (2, 3, 6, 2)
    assert timings.accepted_per_position == [2, 1, 0, 0]
    assert timings.drafted_per_position == [2, 2, 1, 1]
    assert {name: totals.n_accepted for name, totals in timings.drafters.items()} == {"model": 1, "suffix": 2}


def test_a_request_on_which_two_engines_died_fails_and_others_go_on() -> None:
    client = Scripted()
    client.happen(Ready(info(n_parallel=1)))
    a, b = submit(client, "a"), submit(client, "b")
    client.happen(step("a", 5))
    assert client.die() == 0
    assert client.die("assert failed") == 1
    failure = a[-1]
    assert isinstance(failure, Failed)
    assert "assert failed" in failure.message
    assert b == []
    assert [message.id for message in client.sent if isinstance(message, Submit)] == ["b"]


def test_progress_clears_a_request_of_suspicion() -> None:
    client = Scripted()
    client.happen(Ready(info()))
    submit(client, "a")
    for token in range(5):
        assert client.die() == 0
        client.happen(step("a", token))


def test_who_ran_is_suspected_before_who_came_first() -> None:
    client = Scripted()
    client.happen(Ready(info(n_parallel=2)))
    waits, answered, reported = (
        submit(client, "waits"),
        submit(client, "answered"),
        submit(client, "reported"),
    )
    for _ in range(2):
        client.happen(EngineLoad(n_running=1, slots=(SlotLoad(id=0, state="prompt", request="reported"),)))
        client.happen(step("answered", 5))
        client.die()
    assert isinstance(reported[-1], Failed)
    assert not waits
    assert not any(isinstance(event, Failed) for event in answered), "it got on with each engine"


def test_a_cancelled_request_is_cancelled_in_the_new_engine() -> None:
    client = Scripted()
    client.happen(Ready(info()))
    submit(client, "a")
    client.cancel("a")
    client.die()
    assert [type(message) for message in client.sent] == [Submit, Cancel]


def test_giving_up_fails_all_requests_and_every_later_call_with_the_same_error() -> None:
    client = Scripted()
    a = submit(client, "a")
    client.break_down(ConfigError("no such device", remedy="see lucebox devices"))
    failure = a[-1]
    assert isinstance(failure, Failed)
    assert isinstance(failure.error(), ConfigError)
    for call in (lambda: client.wait_ready(1), lambda: submit(client, "b")):
        with pytest.raises(ConfigError, match="see lucebox devices"):
            call()
    assert client.status().state == "failed"
    client.close()
    assert client.status().state == "failed"


def test_closing_ends_requests() -> None:
    client = Scripted()
    a = submit(client, "a")
    client.close()
    client.close()
    assert isinstance(a[-1], Failed)
    assert client.status().state == "stopped"
    with pytest.raises(EngineError, match="closed"):
        submit(client, "b")


def test_stats_sum_up_what_ended() -> None:
    client = Scripted()
    for id in "abcd":
        submit(client, id)
    guessed = DraftedRound("model", 3, 3, 2)
    rest = Timings(predicted_n=4) + guessed.timings()
    client.happen(step("a", 1, drafted=[guessed], finish=Finish(reason="stop", timings=rest)))
    client.happen(step("b", 1, finish=Finish(reason="cancelled", timings=Timings(predicted_n=2))))
    client.happen(step("c", 1, drafted=[DraftedRound("suffix", 1, 1, 0)]))
    client.happen(Failed(id="c", kind="EngineError", message="m"))
    stats = client.stats()
    assert (stats.n_finished, stats.n_cancelled, stats.n_failed, stats.n_in_flight) == (1, 1, 1, 1)
    assert stats.timings.predicted_n == 7
    assert stats.timings.accepted_per_position == [1, 1, 0]
    assert stats.timings.drafted_per_position == [2, 1, 1]
    assert list(stats.timings.drafters) == ["model", "suffix"]
    client.die()
    assert client.stats().n_restarts == 1


def test_a_text_is_embedded_by_the_next_engine_if_the_first_dies() -> None:
    client, events = Scripted(), list[RequestEvent]()
    client.happen(Ready(info()))
    embed = Embed(id="a", prompt=[1, 2], pooling="mean")
    client.submit(embed, events.append)
    client.die()
    assert client.sent == [embed]
    client.happen(Ready(info()))
    client.happen(Embedded(id="a", vector=b""))
    client.happen(Embedded(id="a", vector=b"twice"))
    assert events == [Embedded(id="a", vector=b"")]
    assert (client.stats().n_finished, client.stats().n_in_flight) == (1, 0)
