"""An engine in a thread, whose grammars are compiled when the test lets them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue

from lucebox.engine.engine_load import EngineLoad
from lucebox.engine.loop import EngineLoop
from lucebox.engine.messages import Event, Failed, Message, RequestEvent, Shutdown, StepEvent, Submit
from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from lucebox.text.grammar import GrammarCompiler, GrammarMatcher
from lucebox.text.tokenizer import Tokenizer
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import random_model
from tests.support.tiny_models import TinySpec, tiny_metadata

N_VOCAB = 9
TIMEOUT_S = 20
THREE = Grammar("regex", "[a-c]{3}")
WRONG = Grammar("regex", "(")


def tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(tiny_metadata(TinySpec(n_vocab=N_VOCAB)))


class SlowCompiler(GrammarCompiler):
    """Waits for `may_compile`, and then raises what `errors` has for a grammar, if anything."""

    def __init__(self) -> None:
        super().__init__(tokenizer)
        self.compiling = threading.Event()
        self.may_compile = threading.Event()
        self.errors: dict[Grammar, BaseException] = {}
        self.asked: list[Grammar] = []
        self.made: list[Grammar] = []  # those that were not kept

    def compile(self, grammar: Grammar) -> GrammarMatcher:
        self.asked.append(grammar)
        self.compiling.set()
        assert self.may_compile.wait(TIMEOUT_S)
        if grammar in self.errors:
            raise self.errors[grammar]
        if grammar not in self._compiled:
            self.made.append(grammar)
        return super().compile(grammar)


@dataclass
class Running:
    """An engine in a thread of its own."""

    harness: Harness
    compiler: SlowCompiler
    inbox: SimpleQueue[Message] = field(default_factory=SimpleQueue)
    events: SimpleQueue[Event] = field(default_factory=SimpleQueue)

    def submit(self, id: str, grammar: Grammar | None = None, max_tokens: int | None = 5) -> None:
        self.inbox.put(request(id, grammar, max_tokens))

    def next_event(self, is_it: Callable[[Event], bool]) -> Event:
        """Drops what comes before it."""
        while not is_it(event := self.events.get(timeout=TIMEOUT_S)):
            pass
        return event

    def last_of(self, id: str) -> StepEvent | Failed:
        event = self.next_event(lambda event: isinstance(event, StepEvent | Failed) and ends(event, id))
        assert isinstance(event, StepEvent | Failed)
        return event

    def wait_for_load(self, *, n_running: int, n_waiting: int) -> EngineLoad:
        wanted = (n_running, n_waiting)
        load = self.next_event(lambda e: isinstance(e, EngineLoad) and (e.n_running, e.n_waiting) == wanted)
        assert isinstance(load, EngineLoad)
        return load


def request(id: str, grammar: Grammar | None = None, max_tokens: int | None = 5) -> Submit:
    params = SamplingParams(
        temperature=0.0, max_tokens=max_tokens, grammar=grammar, ignore_eos=grammar is None
    )
    return Submit(id=id, prompt=[1, 2], params=params, seed=0)


def ends(event: StepEvent | Failed, id: str) -> bool:
    return event.id == id and (isinstance(event, Failed) or event.finish is not None)


def reason(event: RequestEvent | Failed) -> str:
    assert isinstance(event, StepEvent)
    assert event.finish is not None
    return event.finish.reason


def harness(n_parallel: int = 2, n_ctx: int = 64) -> tuple[Harness, SlowCompiler]:
    compiler = SlowCompiler()
    made = Harness(N_VOCAB, random_model(N_VOCAB, 1), n_parallel=n_parallel, n_ctx=n_ctx)
    made.admission.grammars = compiler
    return made, compiler


@contextmanager
def engine(n_parallel: int = 2, *, n_ctx: int = 64, timeout_s: float | None = None) -> Iterator[Running]:
    running = Running(*harness(n_parallel, n_ctx))
    stepper, admission = running.harness.stepper, running.harness.admission
    loop = EngineLoop(stepper, admission, running.inbox, running.events.put, timeout_s=timeout_s)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        yield running
    finally:
        running.inbox.put(Shutdown())
        thread.join(TIMEOUT_S)
        running.compiler.may_compile.set()
    assert not thread.is_alive(), "an engine that ends waits for no grammar"
    running.harness.stepper.check_integrity()
    for worker in workers():
        worker.join(TIMEOUT_S)
    assert not workers()


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "grammars"]
