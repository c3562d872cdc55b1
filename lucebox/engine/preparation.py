"""What may take long before a request can be admitted: its grammar, compiled beside the engine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lucebox.engine.clock import Clock
from lucebox.engine.messages import Failed, Finish, StepEvent, Submit
from lucebox.errors import EngineError, LuceboxError, RequestError, RequestTimeoutError
from lucebox.grammar import Grammar
from lucebox.text.grammar import GrammarCompiler, GrammarMatcher

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Preparing:
    """One request from its arrival to its admission. `outcome` is what became of its grammar, None before
    that is known and for a request without one."""

    submit: Submit
    outcome: GrammarMatcher | LuceboxError | None = None
    clock: Clock = field(default_factory=Clock)

    def matcher(self) -> GrammarMatcher | None:
        """At its grammar's beginning. Raises why that was refused."""
        if isinstance(self.outcome, LuceboxError):
            raise self.outcome
        return self.outcome

    def cancelled(self) -> StepEvent:
        """The last event of a request that its client gave up."""
        now_s = time.monotonic()
        timings = self.clock.timings(now_s, n_prompt=len(self.submit.prompt), n_predicted=0)
        finish = Finish(reason="cancelled", timings=timings)
        id, now_ms = self.submit.id, now_s * 1000.0
        return StepEvent(id=id, tokens=[], origins=[], n_rounds=0, time_ms=now_ms, finish=finish)


class Preparation:
    """Compiles the grammars of requests, one after another in a thread that ends when there are no more.

    Used by the engine's thread, which is never held up: known grammars are there at once, requests may be
    given up while theirs is compiled, and `wake` is called from the other thread when `take` has something.
    As many requests may be here as a client may have in flight.
    """

    def __init__(self, grammars: GrammarCompiler | None, wake: Callable[[], None]) -> None:
        self._grammars = grammars
        self._wake = wake
        self._lock = threading.Lock()
        self._requests: dict[str, Preparing] = {}  # in order of arrival
        self._is_compiling = False

    @property
    def n_requests(self) -> int:
        """How many are here."""
        return len(self._requests)

    @property
    def ids(self) -> list[str]:
        with self._lock:
            return list(self._requests)

    def begin(self, submit: Submit) -> Preparing | None:
        """What `take` would give, where that is known at once; else None."""
        request = Preparing(submit)
        grammar = submit.params.grammar
        if grammar is None or self._grammars is None:
            return request
        try:
            request.outcome = self._grammars.find(grammar)
        except RequestError as error:
            request.outcome = error
        if request.outcome is not None:
            return request
        with self._lock:
            self._requests[submit.id] = request
            is_alone, self._is_compiling = not self._is_compiling, True
        if is_alone:
            self._start(self._grammars, submit.id)
        return None

    def take(self) -> list[Preparing]:
        """Those whose grammar is compiled or refused, in order of arrival."""
        with self._lock:
            done = [request for request in self._requests.values() if request.outcome is not None]
            for request in done:
                del self._requests[request.submit.id]
        return done

    def cancel(self, id: str) -> StepEvent | None:
        """Ends request `id`; None if it is not here."""
        with self._lock:
            request = self._requests.pop(id, None)
        return None if request is None else request.cancelled()

    def expire(self, timeout_s: float) -> list[Failed]:
        """Ends the requests that came longer than `timeout_s` ago."""
        latest_s = time.monotonic() - timeout_s
        with self._lock:
            late = [id for id, request in self._requests.items() if request.clock.arrived_s < latest_s]
            for id in late:
                del self._requests[id]
        return [Failed.of(id, RequestTimeoutError(timeout_s)) for id in late]

    def close(self) -> None:
        """Forgets all requests, so that the thread ends. What it compiles is not waited for."""
        with self._lock:
            self._requests.clear()

    def _start(self, grammars: GrammarCompiler, id: str) -> None:
        """Raises RuntimeError where the system has no thread for request `id`, which is forgotten then."""
        # No daemon: an interpreter that ends while llguidance compiles crashes.
        thread = threading.Thread(target=self._compile_all, args=(grammars,), name="grammars", daemon=False)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                del self._requests[id]
                self._is_compiling = False
            raise

    def _compile_all(self, grammars: GrammarCompiler) -> None:
        latest: Grammar | None = None
        while (request := self._next(latest)) is not None:
            latest = request.submit.params.grammar
            request.outcome = _compiled(grammars, request.submit)
            self._wake()

    def _next(self, latest: Grammar | None) -> Preparing | None:
        """Whose grammar comes next: all who wait for the `latest`, while it is known, then the first."""
        with self._lock:
            left = [request for request in self._requests.values() if request.outcome is None]
            same = (request for request in left if request.submit.params.grammar == latest)
            self._is_compiling = bool(left)
            return next(same, left[0]) if left else None


def _compiled(grammars: GrammarCompiler, submit: Submit) -> GrammarMatcher | LuceboxError:
    assert submit.params.grammar is not None
    try:
        return grammars.compile(submit.params.grammar)
    except RequestError as error:
        return error
    except BaseException as error:  # a panic of llguidance is no Exception
        logger.exception("the grammar of request %s cannot be compiled", submit.id)
        return EngineError(f"the grammar cannot be compiled: {error}")
