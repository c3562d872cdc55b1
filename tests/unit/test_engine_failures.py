"""Whoever fails in a step ends at most one request: the others go on rightly, and what it held is free."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from lucebox.acceptance.base import TargetRows
from lucebox.acceptance.greedy import Greedy
from lucebox.core import Draft, Verdict
from lucebox.draft_length.costs import CostTable
from lucebox.drafters.base import Drafter, DraftRequest, Observation
from lucebox.drafters.model import ModelDrafter
from lucebox.engine import step as step_module
from lucebox.engine.drafting import Drafting
from lucebox.engine.overlap import Overlap
from lucebox.engine.prefix_cache import N_BLOCK, PrefixCache
from lucebox.errors import OutOfCellsError
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import RoundRandom
from tests.support.drafting import drafter_context
from tests.support.engine_harness import PLUGIN, Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 12
PROMPTS = ([1, 2, 3], [4, 5], [6, 7, 8, 9] * 6)
PARAMS = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
TARGET = random_model(N_VOCAB, 1)
DRAFT = random_model(N_VOCAB, 1, noise=0.7)


class Guess(Drafter):
    """Always guesses token 1, and raises in `method`."""

    def __init__(self, method: str) -> None:
        super().__init__(drafter_context(N_VOCAB))
        self._method = method
        self.n_failures = 0

    def lost(self) -> str:
        self._maybe_fail("lost")
        return ""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self._maybe_fail("propose")
        return [Draft.chain([1], [None]) for _ in requests]

    def observe(self, observation: Observation) -> None:
        self._maybe_fail("observe")

    def remember(self, tokens: Sequence[int], n_prompt: int) -> None:
        self._maybe_fail("remember")

    def forget(self) -> None:
        self._maybe_fail("forget")

    def n_behind(self, sequence: int, n_prefix: int) -> int:
        self._maybe_fail("n_behind")
        return 0

    def start(self, sequence: int, prefix: Sequence[int]) -> None:
        self._maybe_fail("start")

    def retire(self, sequence: int) -> None:
        self._maybe_fail("retire")
        super().retire(sequence)

    def release(self, sequence: int) -> None:
        self._maybe_fail("release")

    def close(self) -> None:
        self._maybe_fail("close")

    def _maybe_fail(self, method: str) -> None:
        if method == self._method:
            self.n_failures += 1
            raise RuntimeError(f"cannot {method}")


class Verdicts(Greedy):
    """Says what it is told to, or raises without that."""

    def __init__(self, verdict: Verdict | None) -> None:
        self._verdict = verdict

    def verify(self, draft: Draft, target: TargetRows | Sequence[Any], random: RoundRandom) -> Verdict:
        if self._verdict is None:
            raise RuntimeError("cannot judge")
        return self._verdict


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return [Harness(N_VOCAB, TARGET).ask(prompt, PARAMS).tokens for prompt in PROMPTS]


def ask_all(harness: Harness, plain: list[list[int]]) -> None:
    """Twice, so that slots are used again; one is cancelled in between."""
    for _ in range(2):
        ids = [harness.submit(prompt, PARAMS) for prompt in PROMPTS]
        cancelled = harness.submit(PROMPTS[0], PARAMS)
        for _ in range(4):
            harness.step()
        harness.cancel(cancelled)
        harness.run()
        assert [harness.answers[id].tokens for id in ids] == plain


@pytest.mark.parametrize(
    "method",
    ["lost", "propose", "observe", "remember", "forget", "n_behind", "start", "retire", "release", "close"],
)
def test_a_drafter_may_fail_wherever_it_is_asked(
    method: str, plain: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    drafter = Guess(method)
    harness = Harness(N_VOCAB, TARGET, drafter=drafter, n_parallel=2, remembers=method != "forget")
    ask_all(harness, plain)
    harness.stepper.close()
    assert drafter.n_failures > 0
    assert f"cannot {method}" in caplog.text
    assert harness.target.is_closed


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("is_once", [False, True], ids=["always", "once"])
@pytest.mark.parametrize(
    "method",
    ["settle", "begin", "end", "wait", "take", "note_used", "release", "close", "_keep", "_drop", "_book"],
)
def test_guessing_ahead_may_fail_wherever_it_is_asked(
    method: str,
    is_once: bool,
    is_late: bool,
    plain: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    usual, n_calls = getattr(Overlap, method), 0

    def failing(self: Overlap, *arguments: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        result = usual(self, *arguments) if is_late or (is_once and n_calls > 1) else None
        if is_once and n_calls > 1:
            return result
        raise RuntimeError("no such luck")

    harness = Harness(N_VOCAB, TARGET, DRAFT, n_parallel=2, overlap="on")
    monkeypatch.setattr(Overlap, method, failing)
    ask_all(harness, plain)
    harness.stepper.close()
    assert n_calls > 0
    assert caplog.text.count("nobody does any more") == 1
    assert harness.overlap is not None
    assert not harness.overlap.thread._thread.is_alive()
    harness.draft.cache.check_integrity()


def test_what_failed_ahead_leaves_no_cells(plain: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft model that cannot be forked, once guesses were made behind rejections."""
    harness = Harness(N_VOCAB, TARGET, DRAFT, n_parallel=2, overlap="on")

    def failing(self: Overlap, *arguments: Any) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(Overlap, "_keep", failing)
    ask_all(harness, plain)
    harness.pool.forget()
    cache = harness.draft.cache
    assert [cache.length(s) for s in range(cache.n_sequences)] == [0] * cache.n_sequences
    harness.stepper.close()


def test_a_draft_model_that_cannot_fork_costs_guesses_only(
    plain: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(N_VOCAB, TARGET, DRAFT, n_parallel=2, overlap="on")

    def failing(self: ModelDrafter, source: int, target: int) -> None:
        raise RuntimeError("cannot fork")

    monkeypatch.setattr(ModelDrafter, "fork", failing)
    ask_all(harness, plain)
    harness.stepper.close()


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (None, "cannot judge"),
        ([0], "the acceptance strategy Verdicts returned list, not a Verdict"),
        (Verdict((), -1, 0), "token -1 at row 0"),
        (Verdict((), N_VOCAB, 0), f"token {N_VOCAB} at row 0"),
        (Verdict((0, 0), 1, 1), "(0, 0) is no path of a draft of 1 tokens"),
        (Verdict((0, 1), 1, 2), "(0, 1) is no path"),
        (Verdict((-1,), 1, 0), "(-1,) is no path"),
        (Verdict((0,), 1, 0), "behind row 1 of the draft"),
    ],
)
def test_a_strategy_that_fails_ends_its_request_alone(
    verdict: Any, words: str, plain: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness(N_VOCAB, TARGET, drafter=Guess(""), n_parallel=3)
    ids = [harness.submit(prompt, PARAMS) for prompt in PROMPTS]
    harness.step()
    harness.step()
    bad = harness.stepper.scheduler.find(ids[1])
    assert bad is not None
    bad.acceptance = Verdicts(verdict)
    harness.run()
    assert harness.answers[ids[1]].failure
    assert words in caplog.text
    assert [harness.answers[ids[i]].tokens for i in (0, 2)] == [plain[0], plain[2]]
    ask_all(harness, plain)


def test_a_strategy_that_cannot_say_what_it_takes_costs_its_own_drafts(
    plain: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    class Silent(Greedy):
        @property
        def needs_q(self) -> bool:  # type: ignore[override]
            raise RuntimeError("do not know")

    harness = Harness(N_VOCAB, TARGET, drafter=Guess(""), n_parallel=2)
    ids = [harness.submit(prompt, PARAMS) for prompt in PROMPTS[:2]]
    bad = harness.stepper.scheduler.find(ids[1])
    assert bad is not None
    bad.acceptance = Silent()
    harness.run()
    assert [harness.answers[id].tokens for id in ids] == plain[:2]
    assert [harness.answers[id].finish.timings.draft_n > 0 for id in ids] == [True, False]
    assert "nothing can be drafted for request r1" in caplog.text


def test_log_probabilities_that_fail_end_their_request_alone(
    plain: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("no logarithm")

    monkeypatch.setattr(step_module, "logprobs", failing)
    harness = Harness(N_VOCAB, TARGET, drafter=Guess(""), n_parallel=2)
    bad = harness.submit(PROMPTS[0], replace(PARAMS, logprobs=1))
    good = harness.submit(PROMPTS[1], PARAMS)
    harness.run()
    assert harness.answers[bad].failure
    assert harness.answers[good].tokens == plain[1]


def test_costs_that_cannot_be_learned_stay(
    plain: list[list[int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ArithmeticError("no number")

    monkeypatch.setattr(CostTable, "update", failing)
    monkeypatch.setattr(CostTable, "observe_proposal", failing)
    harness = Harness(N_VOCAB, TARGET, drafter=Guess(""))
    answer = harness.ask(PROMPTS[0], PARAMS)
    assert answer.tokens == plain[0]
    timings = answer.finish.timings
    assert timings.draft_n >= timings.n_rounds - 2  # drafts go on
    assert [record.getMessage() for record in caplog.records] == [
        "costs cannot be learned; the old ones stay"
    ]


def test_a_release_that_fails_is_not_done_twice(
    plain: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, n_calls = Drafting.release, 0

    def failing(self: Drafting, *arguments: Any, **options: Any) -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            raise RuntimeError("no release")
        usual(self, *arguments, **options)

    monkeypatch.setattr(Drafting, "release", failing)
    harness = Harness(N_VOCAB, TARGET, drafter=Guess(""), n_parallel=2)
    ids = [harness.submit(PROMPTS[0], replace(PARAMS, max_tokens=n)) for n in (4, 16)]
    harness.run()
    assert harness.answers[ids[0]].failure
    assert harness.answers[ids[1]].tokens == plain[0]
    ask_all(harness, plain)


def test_an_ended_request_is_released_once() -> None:
    harness = Harness(N_VOCAB, TARGET)
    id = harness.submit(PROMPTS[0], PARAMS)
    harness.step()
    sequence = harness.stepper.scheduler.find(id)
    assert sequence is not None
    for _ in range(2):
        harness.stepper._release(sequence)
        harness.stepper.check_integrity()
    assert harness.stepper.scheduler.is_idle


def test_where_cells_run_out_prefixes_are_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Though `make_room` should have seen to that."""
    prompt = [1 + i % 7 for i in range(3 * N_BLOCK)]
    expected = Harness(N_VOCAB, TARGET).ask([9, *prompt[1:]], PARAMS).tokens
    monkeypatch.setattr(PrefixCache, "make_room", lambda self, n_free: None)
    harness = Harness(N_VOCAB, TARGET)
    harness.ask(prompt, PARAMS)
    assert harness.stepper.prefixes.n_cells > harness.target.cache.n_cells // 2
    with caplog.at_level(logging.WARNING):
        answer = harness.ask([9, *prompt[1:]], PARAMS)
    assert answer.tokens == expected
    assert "all prefixes are given up" in caplog.text


def test_where_cells_are_short_for_good_those_who_run_fail(
    plain: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(N_VOCAB, TARGET, n_parallel=2)
    n_tries = 0

    def short(rows: Rows) -> Output:
        nonlocal n_tries
        n_tries += 1
        raise OutOfCellsError(len(rows), 0, 0)

    with monkeypatch.context() as patched:
        patched.setattr(harness.target, "forward", short)
        ids = [harness.submit(prompt, PARAMS) for prompt in PROMPTS[:2]]
        harness.step()
    assert n_tries == 2
    assert {harness.answers[id].failure.kind for id in ids} == {"OutOfCellsError"}
    ask_all(harness, plain)


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [([[1]], [0]), ([1.0], [0]), ([1], [[0]]), ([1], [0.0])],
)
def test_a_draft_of_another_kind_costs_drafts_only(
    tokens: list[Any], parents: list[Any], plain: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Draft(np.array(tokens), np.array(parents), [None])
    monkeypatch.setattr(Guess, "propose", lambda self, requests: [draft for _ in requests])
    ask_all(Harness(N_VOCAB, TARGET, drafter=Guess(""), n_parallel=2), plain)


def test_plugin_is_the_one_that_guesses(plain: list[list[int]]) -> None:
    """Or the tests above would show nothing."""
    answer = Harness(N_VOCAB, TARGET, drafter=Guess("")).ask(PROMPTS[0], PARAMS)
    assert list(answer.finish.timings.drafters) == [PLUGIN]
