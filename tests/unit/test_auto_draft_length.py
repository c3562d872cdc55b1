"""The no-regret default on simulated machines: against plain decoding, and against every fixed arm."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from lucebox import draft_length
from lucebox.core import Distribution, RoundResult
from lucebox.draft_length.auto import Auto
from lucebox.draft_length.base import SequenceState
from lucebox.draft_length.costs import CostTable
from lucebox.draft_length.fixed import Fixed
from lucebox.errors import ConfigError
from tests.support.simulated_machine import (
    CPU_1B,
    CPU_1B_SLOW_DRAFT,
    CPU_F16,
    CPU_Q4,
    GPU,
    MODEL,
    STEPS,
    SUFFIX,
    Decoder,
    Machine,
    Request,
    Text,
)

LENGTHS = (1, 3, 7, 15)
BURST = replace(CPU_1B, burst=(5.0, 9.0))
CODE, PROSE = Text(0.97), Text(0.5)
EDIT = Text(0.9, matching=0.3, matches=0.5, span=40.0)


def stream(n_requests: int, n_prompt: int, *texts: tuple[int, Text]) -> tuple[Request, ...]:
    return (Request(n_prompt, texts),) * n_requests


@cache
def fixed_ms(machine: Machine, requests: tuple[Request, ...], drafter: str, n: int) -> float:
    drafters = (drafter,) if n else ()
    return Decoder(machine, Fixed(n=n), drafters, seed=1).serve(requests)


def against_plain(machine: Machine, requests: tuple[Request, ...]) -> float:
    """Speed of `auto`, as a multiple of plain decoding's; prompts are part of both."""
    auto_ms = Decoder(machine, Auto(), (SUFFIX, MODEL), seed=1).serve(requests)
    return fixed_ms(machine, requests, "", 0) / auto_ms


def against_the_best(machine: Machine, requests: tuple[Request, ...]) -> float:
    """Speed of `auto`, as a multiple of the best fixed arm's: plain, or any drafter at any length."""
    arms = [(drafter, n) for drafter in (SUFFIX, MODEL) for n in LENGTHS]
    best_ms = min(fixed_ms(machine, requests, *arm) for arm in [("", 0), *arms])
    return against_plain(machine, requests) * best_ms / fixed_ms(machine, requests, "", 0)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.7, 0.9, 0.97])
@pytest.mark.parametrize("informative", [True, False])
@pytest.mark.parametrize(
    "machine", [CPU_1B, CPU_1B_SLOW_DRAFT, CPU_F16, GPU], ids=["1b", "slow", "f16", "gpu"]
)
def test_never_much_slower_than_plain(machine: Machine, informative: bool, alpha: float) -> None:
    assert against_plain(machine, stream(5, 64, (160, Text(alpha, informative)))) > 0.97


@pytest.mark.parametrize(
    ("n_prompt", "n_answer", "n_requests"),
    [(64, 16, 20), (1000, 16, 8), (4000, 16, 4), (1000, 160, 4), (4000, 160, 2), (4000, 1000, 1)],
)
@pytest.mark.parametrize("machine", [CPU_Q4, CPU_F16, GPU], ids=["q4", "f16", "gpu"])
def test_catching_up_on_a_prompt_is_part_of_the_price(
    machine: Machine, n_prompt: int, n_answer: int, n_requests: int
) -> None:
    for text in (CODE, PROSE):
        assert against_plain(machine, stream(n_requests, n_prompt, (n_answer, text))) > 0.97


@pytest.mark.parametrize(
    ("machine", "requests"),
    [
        (CPU_1B, stream(2, 64, (1000, PROSE))),
        (CPU_Q4, stream(2, 64, (1000, CODE))),
        (CPU_Q4, stream(3, 1000, (400, EDIT))),
        (CPU_F16, stream(2, 64, (1000, PROSE))),
        (CPU_F16, stream(2, 64, (1000, CODE))),
        (CPU_F16, stream(2, 1000, (1000, CODE))),
        (CPU_F16, stream(2, 64, (300, CODE), (300, PROSE), (300, CODE))),
        (GPU, stream(2, 64, (1000, PROSE))),
        (GPU, stream(2, 4000, (1000, CODE))),
        (GPU, stream(3, 64, (160, PROSE)) + stream(3, 64, (160, CODE))),
    ],
    ids=[
        "1b prose",
        "q4 code",
        "q4 edit",
        "f16 prose",
        "f16 code",
        "f16 1k code",
        "f16 switch",
        "gpu prose",
        "gpu 4k code",
        "gpu both",
    ],
)
def test_nearly_as_fast_as_the_best_arm(machine: Machine, requests: tuple[Request, ...]) -> None:
    assert against_the_best(machine, requests) > 0.95


def test_gains_where_there_is_something_to_gain() -> None:
    assert against_plain(CPU_F16, stream(2, 64, (1000, CODE))) > 2.5
    assert against_plain(CPU_Q4, stream(2, 64, (1000, Text(0.99)))) > 1.1
    assert against_plain(CPU_Q4, stream(3, 1000, (400, EDIT))) > 1.2


@pytest.mark.parametrize("text", [CODE, PROSE])
def test_a_burst_of_slowness_is_nobody_s_fault(text: Text) -> None:
    assert against_plain(BURST, stream(5, 64, (160, text))) > 0.95


def test_a_short_answer_to_a_long_prompt_is_not_worth_a_draft_model() -> None:
    decoder = Decoder(CPU_Q4, Auto(), (MODEL,), seed=1)
    decoder.serve(stream(3, 4000, (16, Text(0.99))))
    assert MODEL not in decoder.n_by_drafter


STATE = SequenceState(0, 100, 500, (MODEL,), {MODEL: 0})


def trained(costs: CostTable, sequences: tuple[int, ...] = (0,)) -> Auto:
    """After 60 rounds in which all that was drafted stood."""
    auto = Auto()
    for i in range(60):
        for s in sequences:
            plan = auto.plan([replace(STATE, sequence=s, n_behind={MODEL: 0 if i else 1})], costs)[s]
            n, ms = plan.n_max, costs.verify_ms(1 + plan.n_max, 100)
            auto.update(RoundResult(s, plan.drafter, n, n, float(n), ms, 1 + n, 100, n, 0, 1 + n, n))
    return auto


def test_rows_of_a_batch_share_one_forward() -> None:
    """Where every row costs, sequences together draft fewer tokens each than one alone."""
    costs = CostTable(STEPS, MODEL.__eq__)
    costs.verify.set([(1, 0, 10.0), (8, 0, 11.0), (9, 0, 30.0), (64, 0, 300.0)])
    costs.draft.set([(1, 0, 0.2), (64, 0, 1.0)])
    auto = trained(costs, (0, 1, 2, 3))
    alone = auto.plan([STATE], costs)[0].n_max
    together = auto.plan([replace(STATE, sequence=i) for i in range(4)], costs)
    assert alone == 7
    assert sum(plan.n_max for plan in together.values()) == 4


def test_a_draft_ends_where_its_law_is_flat() -> None:
    costs = CPU_Q4.table(1)
    auto = trained(costs)
    assert auto.plan([STATE], costs)[0].n_max > 1
    sure = Distribution(3, np.array([0.99, 0.01, 0.0], np.float32))
    unsure = Distribution(3, np.array([0.34, 0.33, 0.33], np.float32))
    assert auto.keep_drafting(0, sure, 0)
    assert not auto.is_long_enough(0, 1)
    assert not auto.keep_drafting(0, unsure, 1)


def test_looked_up_guesses_are_judged_before_they_are_verified() -> None:
    costs = CPU_1B.table(1)
    auto, state = Auto(), replace(STATE, drafters=(SUFFIX,), n_behind={})
    for right in [False] * 40 + [True] * 80:
        assert auto.plan([state], costs)[0].drafter == SUFFIX
        n = auto.trim(0, SUFFIX, [7] * 8)
        n_accepted = n if right else 0
        tokens = [7] * 9 if right else [3]
        auto.update(RoundResult(0, SUFFIX, n, n_accepted, 0.1, 30.0, 1 + n, 100, n, 0, 1 + n, 0, 1, tokens))
        if not right:
            last_wrong = n
    assert last_wrong == 0  # verifying 8 rows costs five times as much as one
    assert n >= 3


def test_a_released_sequence_is_forgotten() -> None:
    costs = GPU.table(1)
    auto = trained(costs)
    auto.release(0)
    assert auto.keep_drafting(0, Distribution.one_hot(3, 0), 0)
    assert auto.trim(0, SUFFIX, [1, 2]) == 2
    auto.update(RoundResult(0, "", 0, 0, 0.0, 9.0, 1, 100))
    assert auto.plan([STATE], costs)[0].n_max > 1  # what others taught stays


def test_nothing_is_drafted_before_anything_is_measured() -> None:
    costs = CostTable()
    auto = Auto()
    assert auto.plan([STATE], costs)[0].n_max == 0
    costs.update(RoundResult(0, "", 0, 0, 0.0, 9.0, 1, 100))
    assert auto.plan([STATE], costs)[0].n_max >= 0


@pytest.mark.parametrize("epsilon", ["-0.1", "1.5", "nan"])
def test_bad_epsilon(epsilon: str) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        draft_length.create(f"auto:epsilon={epsilon}")
