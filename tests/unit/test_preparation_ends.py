"""Requests that end while their grammar is compiled, and engines that do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import Queue
from types import SimpleNamespace

import msgspec
import pytest

from lucebox.engine import preparation
from lucebox.engine.messages import Cancel, Failed, RequestEvent, StepEvent
from lucebox.engine.thread_client import ThreadClient
from lucebox.errors import QueueFullError, RequestTimeoutError
from lucebox.grammar import Grammar
from tests.support.compiling_engine import (
    THREE,
    TIMEOUT_S,
    WRONG,
    Running,
    engine,
    harness,
    reason,
    request,
    workers,
)
from tests.support.source_tree import ROOT
from tests.unit.test_thread_client import CONFIG, loads


@pytest.fixture
def running() -> Iterator[Running]:
    with engine() as running:
        yield running


def test_a_cancel_is_answered_while_the_grammar_is_compiled(running: Running) -> None:
    running.submit("compiled", THREE)
    assert running.compiler.compiling.wait(TIMEOUT_S)
    running.submit("queued", WRONG)
    for id in ("compiled", "queued"):
        running.inbox.put(Cancel(id))
        last = running.last_of(id)
        assert isinstance(last, StepEvent)
        assert (reason(last), last.tokens) == ("cancelled", [])
        assert last.finish is not None
        assert (last.finish.timings.prompt_n, last.finish.timings.prompt_ms) == (2, 0.0)
    running.inbox.put(Cancel("compiled"))
    running.submit("compiled", Grammar("regex", "[a-c]{4}"))  # the id is free again
    running.compiler.may_compile.set()
    last = running.last_of("compiled")
    assert isinstance(last, StepEvent)
    assert reason(last) == "stop"
    assert len(running.compiler.made) == 2, "nobody waited for the queued one"
    running.submit("again", THREE)
    assert reason(running.last_of("again")) == "stop"
    assert len(running.compiler.asked) == 2, "what was compiled for nobody is kept"


def test_who_waits_too_long_for_a_grammar_is_told_so() -> None:
    with engine(timeout_s=0.05) as running:
        running.submit("bound", THREE)
        last = running.last_of("bound")
        assert isinstance(last, Failed)
        error = last.error()
        assert isinstance(error, RequestTimeoutError)
        assert error.timeout_s == 0.05
        assert not running.compiler.may_compile.is_set()


def test_who_is_late_is_told_so_while_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(n_ctx=100_000, timeout_s=60.0) as running:
        running.submit("endless", max_tokens=None)
        running.submit("bound", THREE)
        assert running.compiler.compiling.wait(TIMEOUT_S)
        running.wait_for_load(n_running=1, n_waiting=1)
        now_s = running.harness.stepper.scheduler.running[0].clock.arrived_s
        with monkeypatch.context() as patched:
            patched.setattr(preparation, "time", SimpleNamespace(monotonic=lambda: now_s + 61.0))
            last = running.last_of("bound")
        assert isinstance(last, Failed)
        assert last.kind == "RequestTimeoutError"
        running.inbox.put(Cancel("endless"))
        assert reason(running.last_of("endless")) == "cancelled"


def test_an_engine_that_ends_tells_those_whose_grammar_is_compiled() -> None:
    with engine() as running:
        running.submit("bound", THREE)
        running.submit("queued", WRONG)
        assert running.compiler.compiling.wait(TIMEOUT_S)
    assert reason(running.last_of("bound")) == "cancelled"
    assert reason(running.last_of("queued")) == "cancelled"
    assert running.compiler.asked == [THREE], "compiled for nobody"


def test_a_client_counts_them_towards_its_queue_and_closes_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, compiler = harness()
    monkeypatch.setattr("lucebox.engine.thread_client.load", loads(made))
    events: Queue[RequestEvent] = Queue()
    with ThreadClient(msgspec.structs.replace(CONFIG, max_queue=1)) as client:
        client.wait_ready(TIMEOUT_S)
        for i in range(CONFIG.n_parallel + 1):
            client.submit(request(f"r{i}", THREE), events.put)
        with pytest.raises(QueueFullError):
            client.submit(request("one too many", THREE), events.put)
        assert compiler.compiling.wait(TIMEOUT_S)
        client.cancel("r0")
        assert reason(events.get(timeout=TIMEOUT_S)) == "cancelled"
        client.submit(request("r3", THREE), events.put)
        client.close()
        assert [reason(events.get(timeout=TIMEOUT_S)) for _ in range(3)] == ["cancelled"] * 3
        assert not compiler.may_compile.is_set()
    compiler.may_compile.set()
    for worker in workers():
        worker.join(TIMEOUT_S)


def test_a_request_fails_for_which_there_is_no_thread(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    running.compiler.may_compile.set()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        running.submit("bound", THREE)
        last = running.last_of("bound")
    assert isinstance(last, Failed)
    assert "can't start new thread" in last.message
    running.submit("bound", THREE)
    assert reason(running.last_of("bound")) == "stop"


END_WHILE_COMPILING = r"""
import atexit, time
from lucebox.engine.messages import Submit
from lucebox.engine.preparation import Preparation
from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from lucebox.text.grammar import GrammarCompiler
from tests.support.compiling_engine import tokenizer

class EndsSlowly:
    def __del__(self, sleep=time.sleep):
        sleep(0.7)

rules = range(5000)
text = "start: " + " | ".join(f"r{i}" for i in rules)
text += "".join(f'\nr{i}: "a{i}" /[a-z]+{i}x/' for i in rules)
made = GrammarCompiler(tokenizer)
made.check(Grammar("regex", "a"))
preparation = Preparation(made, lambda: None)
params = SamplingParams(grammar=Grammar("lark", text))
assert preparation.begin(Submit(id="a", prompt=[1], params=params, seed=0)) is None
time.sleep(0.05)
preparation.close()
atexit.kept = EndsSlowly()  # in a module that goes late
"""


def test_a_program_may_end_while_a_grammar_is_compiled() -> None:
    """Threads that come back from compiled code to an interpreter that is half gone crash."""
    command = [sys.executable, "-c", END_WHILE_COMPILING]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
