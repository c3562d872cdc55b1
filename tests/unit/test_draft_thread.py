"""The draft model's own thread: one job after the other, errors where somebody waits for them."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from lucebox.engine.draft_thread import DraftThread, ModelOnThread
from lucebox.runtime.rows import Rows
from tests.support.fake_runtime import FakeRuntime, random_model


def test_everything_runs_in_one_thread_and_in_order() -> None:
    thread = DraftThread()
    seen: list[tuple[int, int]] = []
    thread.begin(lambda: (time.sleep(0.01), seen.append((0, threading.get_ident())))[1])
    for i in range(1, 4):
        thread.call(lambda i=i: seen.append((i, threading.get_ident())))  # type: ignore[misc]
    thread.wait()
    thread.close()
    assert [i for i, _ in seen] == [0, 1, 2, 3]
    assert len({ident for _, ident in seen}) == 1
    assert threading.get_ident() not in {ident for _, ident in seen}


def test_a_call_returns_or_raises_what_the_work_does() -> None:
    thread = DraftThread()
    assert thread.call(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)
    assert thread.call(lambda: "still there") == "still there"
    thread.close()


def test_what_was_begun_is_waited_for_once() -> None:
    thread = DraftThread()
    go, done = threading.Event(), threading.Event()
    thread.begin(lambda: (go.wait(5), done.set())[1])
    assert not done.is_set()
    with pytest.raises(AssertionError, match="two jobs"):
        thread.begin(lambda: None)
    go.set()
    thread.wait()
    assert done.is_set()
    thread.wait()  # nothing is under way
    thread.begin(lambda: [][0])
    with pytest.raises(IndexError):
        thread.wait()
    thread.wait()
    thread.close()


def test_closing_waits_and_may_be_repeated() -> None:
    thread = DraftThread()
    done = threading.Event()
    thread.begin(lambda: (time.sleep(0.02), done.set())[1])
    thread.close()
    assert done.is_set()
    thread.close()


def test_a_model_on_a_thread_computes_there() -> None:
    thread = DraftThread()
    idents: list[int] = []

    class Watched(FakeRuntime):
        def forward(self, rows: Rows):  # type: ignore[no-untyped-def]
            idents.append(threading.get_ident())
            return super().forward(rows)

    model = ModelOnThread(Watched(5, random_model(5, 1)), thread)
    model.forward(Rows.chain(0, np.array([1, 2], np.int32), 0))
    assert (model.n_batch, model.n_ctx) == (64, 64)
    model.cache.commit(0, range(2))
    assert model.cache.length(0) == 2
    assert threading.get_ident() not in idents
    thread.close()
