"""A queue that a slow reader cannot fill."""

from __future__ import annotations

import threading

from lucebox.core import Origin
from lucebox.engine.messages import Failed, Finish, Loading, StepEvent
from lucebox.engine.outbox import Outbox


def step(id: str, token: int, finish: Finish | None = None) -> StepEvent:
    return StepEvent(id=id, tokens=[token], origins=[Origin.PLAIN], finish=finish)


def test_events_of_a_request_merge_while_nobody_reads() -> None:
    outbox = Outbox()
    for token in range(1000):
        outbox.put(step("a", token))
        outbox.put(step("b", -token))
        outbox.put(Loading("target", token / 1000))
    outbox.put(step("a", 1000, Finish(reason="length")))
    assert len(outbox) == 3
    first = outbox.take()
    assert isinstance(first, StepEvent)
    assert first.tokens == list(range(1001))
    assert first.n_rounds == 1001
    assert first.finish is not None
    second = outbox.take()
    assert isinstance(second, StepEvent)
    assert second.id == "b"
    assert outbox.take() == Loading("target", 0.999)


def test_a_reader_that_keeps_up_gets_every_event() -> None:
    outbox = Outbox()
    outbox.put(step("a", 1))
    assert outbox.take() == step("a", 1)
    outbox.put(step("a", 2))
    assert outbox.take() == step("a", 2)


def test_a_failure_comes_behind_the_tokens() -> None:
    outbox = Outbox()
    failure = Failed(id="a", kind="EngineError", message="m")
    outbox.put(step("a", 1))
    outbox.put(failure)
    assert [outbox.take(), outbox.take()] == [step("a", 1), failure]


def test_closing_ends_the_reader_after_what_is_waiting() -> None:
    outbox = Outbox()
    taken: list[object] = []

    def read() -> None:
        while (event := outbox.take()) is not None:
            taken.append(event)

    reader = threading.Thread(target=read)
    reader.start()
    outbox.put(step("a", 1))
    outbox.close()
    reader.join(5)
    assert not reader.is_alive()
    outbox.put(step("a", 2))
    assert taken == [step("a", 1)]
    assert outbox.take() is None
