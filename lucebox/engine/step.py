"""One step of the engine: draft, verify all running sequences in one forward, accept, commit.

Only this file changes the target's cache.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from lucebox.core import Float32Array, Verdict
from lucebox.engine.drafting import Drafting
from lucebox.engine.messages import Failed, RequestEvent, TokenLogprobs
from lucebox.engine.round import LawRows, Round
from lucebox.engine.scheduler import Scheduler
from lucebox.engine.sequence import Emission, EngineSequence
from lucebox.engine.timeline import TARGET, Span, WorkHandler, ignore
from lucebox.errors import LuceboxError
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.logprobs import logprobs

logger = logging.getLogger(__name__)

RoundHandler = Callable[[Round, LawRows, Verdict], None]


class Stepper:
    """Owns the target's runtime and `drafting`, and advances all running sequences a round at a time.

    `note_activity` hears what is about to be computed, for the report should ggml end the process.
    `on_round` hears of every judged round before it is committed; the logits behind its laws are valid during
    the call, and an exception out of it ends the request. `on_work` hears of the target's forwards.
    """

    def __init__(
        self,
        target: Runtime,
        drafting: Drafting,
        n_parallel: int,
        note_activity: Callable[[bytes], None] = lambda activity: None,
        on_round: RoundHandler | None = None,
        on_work: WorkHandler = ignore,
    ) -> None:
        self.target = target
        self._note_activity = note_activity
        self._on_round = on_round
        self._on_work = on_work
        self.scheduler = Scheduler(n_parallel, target.n_batch)
        self._drafting = drafting

    def step(self) -> list[RequestEvent]:
        """Advances every running sequence, and returns what its client is to be told."""
        self.scheduler.admit()
        turn = self.scheduler.next_turn()
        if not turn.feeds:
            return []
        rounds = [Round(feed) for feed in turn.feeds]
        self._note_activity(b"drafting for %d sequences" % len(rounds))
        self._drafting.draft(rounds, turn.n_draft_rows)
        self._drafting.begin_ahead(rounds)
        started_s = time.perf_counter()
        try:
            output = self._forward(rounds)
        except Exception as error:
            self._drafting.end_ahead()
            return [self._fail(r.sequence, error) for r in rounds]
        ended_s = time.perf_counter()
        self._drafting.end_ahead()
        self._on_work(Span(TARGET, started_s, ended_s))
        verify_ms = 1000.0 * (ended_s - started_s)
        n_rows = sum(r.n_rows for r in rounds)
        events = [self._settle(r, output, n_rows, verify_ms) for r in rounds]
        return [event for event in events if event is not None]

    def cancel(self, id: str) -> RequestEvent | None:
        """Ends request `id` and frees what it held; None if there is no such request."""
        sequence = self.scheduler.find(id)
        if sequence is None:
            return None
        event = sequence.cancelled()
        self._drafting.remember(sequence)
        self._release(sequence)
        return event

    def close(self) -> None:
        """Frees all device memory. Idempotent."""
        self._drafting.close()
        self.target.close()

    def check_integrity(self) -> None:
        """Asserts, when idle, that nothing is held by anyone."""
        self.scheduler.check_integrity()
        self.target.cache.check_integrity()
        if self.scheduler.is_idle:
            held = [self.target.cache.length(slot) for slot in range(self.scheduler.n_parallel)]
            assert not any(held), f"an idle cache holds {held} tokens"

    def _forward(self, rounds: Sequence[Round]) -> Output:
        first_row = 0
        for r in rounds:
            r.first_row = first_row
            first_row += r.n_rows
        self._note_activity(b"target forward, %d rows of %d sequences" % (first_row, len(rounds)))
        return self.target.forward(Rows.concatenate([r.rows() for r in rounds]))

    def _settle(self, r: Round, output: Output, n_batch_rows: int, verify_ms: float) -> RequestEvent | None:
        """Judges and commits one sequence's rows; an error ends this sequence and no other."""
        if not r.feed.draws:
            self._commit(r, ())
            return None
        r.verify_ms = verify_ms
        sequence, n_prefix = r.sequence, len(r.sequence.tokens)
        try:
            logits = [output.logits_of(r.row_0 + i) for i in range(len(r.draft) + 1)]
            laws = LawRows(sequence, r.draft, logits)
            verdict = sequence.acceptance.verify(r.draft, laws, sequence.random())
            if self._on_round is not None:
                self._on_round(r, laws, verdict)
            emission = sequence.emit(r.draft, verdict, r.drafter, verify_ms)
            logprobs_of_tokens = _logprobs(sequence, emission, logits)
            event = sequence.event(emission, logprobs_of_tokens)
            if emission.finish is None:
                self._commit(r, verdict.path)
            self._drafting.learn(r, verdict, logits, n_prefix, n_batch_rows, verify_ms)
            if emission.finish is not None:
                self._drafting.remember(sequence)
                self._release(sequence)
            return event
        except Exception as error:
            return self._fail(sequence, error)

    def _commit(self, r: Round, path: Sequence[int]) -> None:
        """What was fed and accepted is in the cache from now on; the last token emitted is not."""
        rows = [*range(r.first_row, r.row_0 + 1), *(r.row_0 + 1 + i for i in path)]
        self.target.cache.commit(r.sequence.slot, rows)
        r.sequence.n_cached += len(rows)
        assert r.sequence.n_missing >= 1

    def _release(self, sequence: EngineSequence) -> None:
        slot = sequence.slot
        self.scheduler.remove(sequence)
        if slot >= 0:
            self.target.cache.release(slot)
            self._drafting.release(slot, sequence.controller)

    def _fail(self, sequence: EngineSequence, error: Exception) -> Failed:
        if not isinstance(error, LuceboxError):
            logger.error("request %s failed", sequence.id, exc_info=error)
        self._release(sequence)
        return Failed.of(sequence.id, error)


def _logprobs(
    sequence: EngineSequence, emission: Emission, logits: Sequence[Float32Array]
) -> list[TokenLogprobs] | None:
    """The target's own log-probabilities of what was emitted, when they were asked for."""
    n = sequence.submit.params.logprobs
    if n is None:
        return None
    result = []
    for token, row in zip(emission.tokens, emission.rows, strict=True):
        logprob, top = logprobs(logits[row], token, n)
        result.append(TokenLogprobs(token, logprob, top))
    return result
