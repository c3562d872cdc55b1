"""Rounds as a client that asks for them sees them: drafts, tokens, and who computed when."""

from __future__ import annotations

import threading

import pytest

from lucebox.core import Origin
from lucebox.engine.timeline import DRAFT, TARGET, Span, WorkLog
from lucebox.engine.timings import RoundTrace
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Answer, Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 12
GREEDY = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)


def answer(*, traced: bool, company: bool = False) -> Answer:
    target, draft = random_model(N_VOCAB, 1), random_model(N_VOCAB, 1, noise=1.0)
    harness = Harness(N_VOCAB, target, draft, draft_length="fixed:n=3", n_parallel=2)
    id = harness.submit([1, 2, 3], GREEDY, traced=traced)
    if company:
        harness.submit([4, 5], GREEDY)
    harness.run()
    return harness.answers[id]


def traces(answer: Answer) -> list[RoundTrace]:
    return [trace for event in answer.events for trace in getattr(event, "traces", ())]


@pytest.mark.parametrize("company", [False, True])
def test_rounds_add_up_to_the_answer(company: bool) -> None:
    asked = answer(traced=True, company=company)
    rounds, timings = traces(asked), asked.finish.timings
    assert [trace.index for trace in rounds] == list(range(1, timings.n_rounds + 1))
    assert sum(trace.n_tokens for trace in rounds) == len(asked.tokens) == 30
    drafts = [trace.drafted for trace in rounds if trace.drafted is not None]
    assert sum(drafted.n_drafted for drafted in drafts) == timings.draft_n > 0
    assert sum(d.n_accepted for d in drafts) == asked.origins.count(Origin.ACCEPTED) > 0
    assert sum(trace.verify_ms for trace in rounds[1:]) == pytest.approx(timings.verify_ms)


def test_work_lies_in_the_order_it_was_done_in() -> None:
    end_ms = 0.0
    for trace in traces(answer(traced=True)):
        assert trace.work[-1].party == TARGET
        assert {work.party for work in trace.work[:-1]} == ({DRAFT} if trace.drafted else set())
        for work in trace.work:
            assert end_ms <= work.start_ms <= work.end_ms
            end_ms = work.end_ms
        assert end_ms <= trace.time_ms


def test_who_does_not_ask_is_told_nothing() -> None:
    plain = answer(traced=False)
    assert traces(plain) == []
    assert plain.tokens == answer(traced=True).tokens


def test_a_slow_reader_gets_all_rounds() -> None:
    asked = answer(traced=True)
    merged = asked.events[0]
    for event in asked.events[1:]:
        merged = merged.followed_by(event)
    assert merged.traces == traces(asked)


def test_a_log_that_nobody_takes_stays_small() -> None:
    heard: list[Span] = []
    log = WorkLog(heard.append)
    spans = [Span(DRAFT, float(i), i + 0.5) for i in range(2 * WorkLog.MAX_SPANS)]
    for span in spans:
        log.note(span)
    assert heard == spans
    assert log.take() == spans[WorkLog.MAX_SPANS :]
    assert log.take() == []


def test_a_log_is_noted_in_by_two_threads_at_once() -> None:
    log = WorkLog()
    taken: list[Span] = []
    writer = threading.Thread(target=lambda: [log.note(Span(DRAFT, i, i)) for i in range(20_000)])
    writer.start()
    while writer.is_alive() or not taken:
        taken += log.take()
    taken += log.take()
    starts = [span.start_s for span in taken]
    assert starts == sorted(set(starts))
