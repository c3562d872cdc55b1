"""One step of the engine: draft, verify all running sequences in one forward, accept, commit.

Only this file changes the target's cache.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from lucebox.core import Float32Array, Verdict
from lucebox.engine.drafting import Drafting
from lucebox.engine.embedding import Pooler
from lucebox.engine.engine_load import EngineLoad, SlotLoad
from lucebox.engine.messages import Failed, RequestEvent, TokenLogprobs
from lucebox.engine.prefix_cache import PrefixCache
from lucebox.engine.round import LawRows, Round
from lucebox.engine.scheduler import Scheduler
from lucebox.engine.sequence import Emission, EngineSequence
from lucebox.engine.timeline import TARGET, Span, WorkLog
from lucebox.errors import LuceboxError, OutOfCellsError, RequestError, RequestTimeoutError
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.constraint import share_spare_time
from lucebox.sampling.logprobs import logprobs

logger = logging.getLogger(__name__)

RoundHandler = Callable[[Round, LawRows, Verdict], None]


class Stepper:
    """Owns the target's runtime and `drafting`, and advances all running sequences a round at a time.

    `note_activity` hears what is about to be computed, for the report should ggml end the process.
    `on_round` hears of every judged round before it is committed; the logits behind its laws are valid during
    the call, and an exception out of it ends the request. `work` notes when the target and the drafters
    computed. The prefix cache keeps `n_prefix_tokens`, None for as many as there is room for.
    """

    def __init__(
        self,
        target: Runtime,
        drafting: Drafting,
        n_parallel: int,
        note_activity: Callable[[bytes], None] = lambda activity: None,
        on_round: RoundHandler | None = None,
        work: WorkLog | None = None,
        n_prefix_tokens: int | None = None,
    ) -> None:
        self.target = target
        self._note_activity = note_activity
        self._on_round = on_round
        self._work = work or WorkLog()
        self.prefixes = PrefixCache(target.cache, n_prefix_tokens)
        self.scheduler = Scheduler(n_parallel, target.n_batch, shares_prefixes=self.prefixes.is_on)
        self._drafting = drafting

    def step(self) -> list[RequestEvent]:
        """Advances every running sequence, and returns what its client is to be told."""
        for sequence in self.scheduler.admit():
            self._drafting.start(sequence)
        constraints = (sequence.sampler.constraint for sequence in self.scheduler.running)
        share_spare_time(constraint for constraint in constraints if constraint is not None)
        self._reuse_prefixes()
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
        self._work.note(Span(TARGET, started_s, ended_s))
        work = self._work.take()
        verify_ms = 1000.0 * (ended_s - started_s)
        n_rows = sum(r.n_rows for r in rounds)
        for r in rounds:
            r.work = work
        events = [self._settle(r, output, n_rows, verify_ms) for r in rounds]
        return [event for event in events if event is not None]

    def cancel(self, id: str) -> RequestEvent | None:
        """Ends request `id` and frees what it held; None if there is no such request."""
        sequence = self.scheduler.find(id)
        if sequence is None:
            return None
        event = sequence.cancelled()
        if sequence.pooler is None:
            self._drafting.remember(sequence)
        self._release(sequence)
        return event

    def expire(self, timeout_s: float) -> list[RequestEvent]:
        """Ends the requests that came longer than `timeout_s` ago, waiting or running."""
        scheduler, latest_s = self.scheduler, time.monotonic() - timeout_s
        late = [s for s in (*scheduler.waiting, *scheduler.running) if s.clock.arrived_s < latest_s]
        for sequence in late:
            self._release(sequence)
        return [Failed.of(sequence.id, RequestTimeoutError(timeout_s)) for sequence in late]

    def load(self) -> EngineLoad:
        """What is going on now."""
        scheduler, cache = self.scheduler, self.target.cache
        slots = {slot: SlotLoad(id=slot) for slot in range(scheduler.n_parallel)}
        for sequence in scheduler.running:
            slots[sequence.slot] = SlotLoad(
                id=sequence.slot,
                state="decoding" if sequence.is_decoding else "prompt",
                request=sequence.id,
                n_prompt=len(sequence.submit.prompt),
                n_cached=sequence.n_reused,
                n_tokens=len(sequence.tokens),
            )
        return EngineLoad(
            n_running=len(scheduler.running),
            n_waiting=len(scheduler.waiting),
            n_cells=cache.n_cells,
            n_cells_used=cache.n_cells - cache.n_free,
            n_cells_cached=self.prefixes.n_cells,
            slots=tuple(slots.values()),
        )

    def close(self) -> None:
        """Frees all device memory. Idempotent."""
        self._drafting.close()
        self.target.close()

    def check_integrity(self) -> None:
        """Asserts every invariant; when idle, that nothing is held by anyone but the prefix cache."""
        cache = self.target.cache
        self.scheduler.check_integrity()
        self.prefixes.check_integrity()
        cache.check_integrity()
        for sequence in self.scheduler.running:
            assert cache.length(sequence.slot) == sequence.n_cached < len(sequence.tokens)
        if self.scheduler.is_idle:
            held = [cache.length(slot) for slot in range(self.scheduler.n_parallel)]
            assert not any(held), f"an idle cache holds {held} tokens"
            assert cache.n_cells - cache.n_free == self.prefixes.n_cells, "cells are lost"

    def _reuse_prefixes(self) -> None:
        """Prompts go on behind what is known of them, be it that others have computed it since."""
        if not self.prefixes.is_on:
            return
        cache = self.target.cache
        for sequence in self.scheduler.running:
            if sequence.is_decoding or not sequence.may_reuse:
                continue
            cells = self.prefixes.find(sequence.tokens[:-1])  # the last token has to be fed, for its logits
            n_more = len(cells) - sequence.n_cached
            if n_more > 0:
                cache.release(sequence.slot)
                cache.adopt(sequence.slot, cells)
                sequence.n_cached += n_more
                sequence.n_reused += n_more

    def _keep_prefix(self, sequence: EngineSequence) -> None:
        """Others may begin with what is computed of `sequence`."""
        if sequence.pooler is not None:
            return
        known = sequence.tokens[: sequence.n_cached]
        self.prefixes.add(known, self.target.cache.cells(sequence.slot))

    def _forward(self, rounds: Sequence[Round]) -> Output:
        first_row = 0
        for r in rounds:
            r.first_row = first_row
            first_row += r.n_rows
        self.prefixes.make_room(first_row)
        self._note_activity(b"target forward, %d rows of %d sequences" % (first_row, len(rounds)))
        rows = Rows.concatenate([r.rows() for r in rounds])
        try:
            return self.target.forward(rows)
        except OutOfCellsError as error:
            logger.warning("%s; all prefixes are given up for that", error)
        self.prefixes.clear()
        return self.target.forward(rows)

    def _settle(self, r: Round, output: Output, n_batch_rows: int, verify_ms: float) -> RequestEvent | None:
        """Judges and commits one sequence's rows; an error ends this sequence and no other."""
        try:
            return self._advance(r, output, n_batch_rows, verify_ms)
        except Exception as error:
            return self._fail(r.sequence, error)

    def _advance(self, r: Round, output: Output, n_batch_rows: int, verify_ms: float) -> RequestEvent | None:
        if r.sequence.pooler is not None:
            return self._pool(r, r.sequence.pooler, output)
        if r.sequence.scores is not None or r.sequence.n_left <= 0:
            ending = self._read_prompt(r, output)
            if ending is not None:
                return ending
        if not r.feed.draws:
            self._commit(r, ())
            self._keep_prefix(r.sequence)
            return None
        r.verify_ms = verify_ms
        sequence, n_prefix, was_decoding = r.sequence, len(r.sequence.tokens), r.sequence.is_decoding
        logits = [output.logits_of(r.row_0 + i) for i in range(len(r.draft) + 1)]
        laws = LawRows(sequence, r.draft, logits)
        verdict = sequence.acceptance.verify(r.draft, laws, sequence.random())
        r.check(verdict)
        verdict = laws.ended(verdict)
        if self._on_round is not None:
            self._on_round(r, laws, verdict)
        emission = sequence.emit(r.draft, verdict, r.drafter, verify_ms)
        logprobs_of_tokens = _logprobs(sequence, emission, logits)
        event = sequence.event(emission, logprobs_of_tokens)
        if sequence.submit.traced:
            event = replace(event, traces=[r.trace(emission, event.round, event.time_ms)])
        self._commit(r, verdict.path[: len(emission.tokens) - 1])
        if not was_decoding:
            self._keep_prefix(sequence)
        self._drafting.learn(r, verdict, logits, n_prefix, n_batch_rows, verify_ms)
        if emission.finish is not None:
            self._drafting.remember(sequence)
            self._release(sequence)
        return event

    def _read_prompt(self, r: Round, output: Output) -> RequestEvent | None:
        """Takes down how likely the prompt was, and ends a sequence of which nothing else is wanted."""
        sequence = r.sequence
        if sequence.scores is not None and not sequence.scores.is_done:
            sequence.scores.add(output, r.first_row, r.feed.n_rows)
        if not r.feed.draws or sequence.n_left > 0:
            return None
        event = sequence.event(Emission([], [], [], "length"), None)
        self._release(sequence)
        return event

    def _pool(self, r: Round, pooler: Pooler, output: Output) -> RequestEvent | None:
        """Takes a part of a text into its embedding, which ends the sequence with the last one."""
        event = pooler.add(output, r.first_row, r.n_rows)
        if event is None:
            self._commit(r, ())
        else:
            self._release(r.sequence)
        return event

    def _commit(self, r: Round, path: Sequence[int]) -> None:
        """What was fed and accepted is in the cache from now on; the last token emitted is not."""
        rows = [*range(r.first_row, r.row_0 + 1), *(r.row_0 + 1 + i for i in path)]
        self.target.cache.commit(r.sequence.slot, rows)
        r.sequence.n_cached += len(rows)
        assert r.sequence.n_missing >= 1

    def _release(self, sequence: EngineSequence, *, is_sound: bool = True) -> None:
        """Frees what `sequence` held, except what later requests may begin with, if that `is_sound`.
        Idempotent."""
        if sequence not in (*self.scheduler.running, *self.scheduler.waiting):
            return
        slot = sequence.slot
        if slot >= 0 and is_sound:
            is_sound = self._try_keep_prefix(sequence)
        self.scheduler.remove(sequence)
        if slot >= 0:
            self.target.cache.release(slot)
        if not is_sound:
            self.prefixes.forget(sequence.tokens)
        if slot >= 0:
            self._drafting.release(slot, sequence.controller, is_sound=is_sound)

    def _try_keep_prefix(self, sequence: EngineSequence) -> bool:
        try:
            self._keep_prefix(sequence)
        except Exception:
            logger.exception("nothing that request %s computed is kept", sequence.id)
            return False
        return True

    def _fail(self, sequence: EngineSequence, error: Exception) -> Failed:
        """A request that asked for what cannot be says nothing against what was computed for it."""
        if not isinstance(error, LuceboxError):
            logger.error("request %s failed", sequence.id, exc_info=error)
        self._release(sequence, is_sound=isinstance(error, RequestError))
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
