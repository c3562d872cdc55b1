"""Grammars compiled beside the engine: whoever needs none is served meanwhile, and nobody loses his place."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lucebox.engine.messages import Cancel, Failed, StepEvent, Submit
from lucebox.engine.sequence import EngineSequence
from lucebox.grammar import Grammar
from lucebox.text.grammar import MAX_CACHED_GRAMMARS, MAX_GRAMMAR_CHARS, GrammarMatcher
from tests.support.compiling_engine import THREE, TIMEOUT_S, WRONG, Running, engine, reason, workers


@pytest.fixture
def running() -> Iterator[Running]:
    with engine() as running:
        yield running


def test_others_are_served_while_a_grammar_is_compiled(running: Running) -> None:
    running.submit("bound", THREE)
    running.submit("free")
    assert reason(running.last_of("free")) == "length"
    assert running.compiler.compiling.wait(TIMEOUT_S)
    running.compiler.may_compile.set()
    assert reason(running.last_of("bound")) == "stop"


def test_who_has_a_known_grammar_does_not_wait_behind_one_that_is_compiled(running: Running) -> None:
    running.compiler.may_compile.set()
    running.submit("first", THREE)
    assert reason(running.last_of("first")) == "stop"
    running.submit("wrong", WRONG)
    assert isinstance(running.last_of("wrong"), Failed)
    running.compiler.may_compile.clear()
    running.submit("slow", Grammar("regex", "[a-c]{4}"))
    running.submit("known to be wrong", WRONG)
    running.submit("known", THREE)
    assert isinstance(running.last_of("known to be wrong"), Failed)
    assert reason(running.last_of("known")) == "stop"
    assert not running.compiler.may_compile.is_set()
    assert len(running.compiler.asked) <= 3


def test_many_grammars_at_once_are_compiled_once_each(running: Running) -> None:
    """More than the compiler keeps, in one thread, and the one that was first again last."""
    grammars = [Grammar("regex", f"[a-c]{{{i + 1}}}") for i in range(MAX_CACHED_GRAMMARS + 4)]
    for i, grammar in enumerate([*grammars, grammars[0]]):
        running.submit(f"r{i}", grammar, max_tokens=40)
    running.wait_for_load(n_running=0, n_waiting=len(grammars) + 1)
    assert len(workers()) == 1
    running.compiler.may_compile.set()
    ended: dict[str, str] = {}
    while len(ended) <= len(grammars):
        event = running.next_event(lambda e: isinstance(e, StepEvent) and e.finish is not None)
        assert isinstance(event, StepEvent)
        ended[event.id] = reason(event)
    assert set(ended.values()) == {"stop"}
    assert running.compiler.made == grammars
    assert len(running.compiler.asked) == len(grammars) + 1, "compiled for admission, too"


def test_those_whose_grammar_is_compiled_are_counted_as_waiting(running: Running) -> None:
    for i in range(3):
        running.submit(f"r{i}", Grammar("regex", f"[a-c]{{{i + 1}}}"))
    running.wait_for_load(n_running=0, n_waiting=3)
    running.inbox.put(Cancel("r1"))
    running.wait_for_load(n_running=0, n_waiting=2)
    running.compiler.may_compile.set()
    running.wait_for_load(n_running=0, n_waiting=0)


def test_who_came_first_is_served_first_when_its_grammar_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(n_parallel=1, n_ctx=100_000) as running:
        admission, is_admitted = running.harness.admission, threading.Event()
        admit = admission.admit

        def note(submit: Submit, matcher: GrammarMatcher | None = None) -> EngineSequence:
            if submit.id == "bound":
                is_admitted.set()
            return admit(submit, matcher)

        monkeypatch.setattr(admission, "admit", note)
        running.submit("endless", max_tokens=None)
        running.submit("bound", THREE)
        for i in range(3):
            running.submit(f"free{i}")
        running.wait_for_load(n_running=1, n_waiting=4)
        running.compiler.may_compile.set()
        assert is_admitted.wait(TIMEOUT_S)
        running.inbox.put(Cancel("endless"))
        ended: list[str] = []
        while len(ended) < 5:
            event = running.next_event(lambda e: isinstance(e, StepEvent) and e.finish is not None)
            assert isinstance(event, StepEvent)
            ended.append(event.id)
        assert ended == ["endless", "bound", "free0", "free1", "free2"]


def test_a_wrong_grammar_fails_its_request(running: Running) -> None:
    running.compiler.may_compile.set()
    for _ in range(2):  # found out, and known
        running.submit("bound", WRONG)
        last = running.last_of("bound")
        assert isinstance(last, Failed)
        assert last.kind == "RequestError"
        assert "unclosed group" in last.message


class Panic(BaseException):
    """As PyO3 raises it."""


@pytest.mark.parametrize("error", [ValueError("broken"), Panic("broken"), KeyboardInterrupt("broken")])
def test_a_compiler_that_breaks_fails_the_request(running: Running, error: BaseException) -> None:
    broken = Grammar("regex", "[a-c]")
    running.compiler.errors[broken] = error
    for id, grammar in (("broken", broken), ("bound", THREE), ("broken too", broken)):
        running.submit(id, grammar)
    running.wait_for_load(n_running=0, n_waiting=3)
    running.compiler.may_compile.set()
    for id in ("broken", "broken too"):
        last = running.last_of(id)
        assert isinstance(last, Failed)
        assert (last.kind, last.message) == ("EngineError", "the grammar cannot be compiled: broken")
    assert reason(running.last_of("bound")) == "stop"
    running.submit("free")
    assert reason(running.last_of("free")) == "length"


def test_a_grammar_that_is_too_long_fails_its_request(running: Running) -> None:
    """Of which the compiler remembers nothing."""
    running.compiler.may_compile.set()
    running.submit("bound", Grammar("regex", "a" * (MAX_GRAMMAR_CHARS + 1)))
    last = running.last_of("bound")
    assert isinstance(last, Failed)
    assert "characters" in last.message
