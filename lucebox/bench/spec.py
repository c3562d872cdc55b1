"""Speculation beside plain decoding: the same prompts by every arm, in turn, on one loaded engine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from lucebox import acceptance
from lucebox.api import Engine
from lucebox.bench.arms import Arm
from lucebox.bench.workloads import Case, Workload
from lucebox.config import AUTO, MODEL_DRAFTER
from lucebox.engine.timings import Timings
from lucebox.sampling.params import SamplingParams, SpeculativeParams

WARM_UP_ROUND = 0
_WARM_UP_TOKENS = 8
_AGREEMENT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer. `wall_ms` runs from the request to the last token; round 0 warms up.

    `problem` is what the case's check found: None where nothing is checked, "" where nothing was wrong.
    """

    workload: str
    case: str
    arm: str
    round: int
    wall_ms: float
    timings: Timings
    tokens: tuple[int, ...]
    problem: str | None = None


def measure(
    engine: Engine, workload: Workload, arms: Sequence[Arm], n_rounds: int, seed: int
) -> Iterator[Sample]:
    """`n_rounds` rounds behind one that warms up; a round asks every case of every arm, one arm further ahead
    each time, so that no arm always runs first. A seed goes with round and case: arms share it.
    """
    for round_ in range(WARM_UP_ROUND, n_rounds + 1):
        for i, case in enumerate(workload.cases):
            first = (round_ + i) % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                params = sampling_params(engine, case, arm, seed + 1000 * round_ + i)
                yield _ask(engine, workload.name, case, arm, round_, params)


def sampling_params(engine: Engine, case: Case, arm: Arm, seed: int) -> SamplingParams:
    """What `arm` asks of `engine` for `case`.

    A request with a seed would be judged by `match`; unless the arm says otherwise, guesses are judged as
    those of a user who gives none.
    """
    params = SamplingParams(
        temperature=case.temperature,
        max_tokens=case.n_tokens,
        ignore_eos=case.ignore_eos,
        speculative=arm.speculative,
    )
    if params.greedy:
        return params
    speculative = arm.speculative
    if speculative.acceptance is None and engine.info.acceptance == AUTO:
        speculative = replace(speculative, acceptance=acceptance.default(params))
    return replace(params, seed=seed, speculative=speculative)


def warm_up(engine: Engine, arms: Sequence[Arm]) -> None:
    """A few tokens by every fixed arm, so that no first answer pays for pages of a file and for buffers; the
    others are to be seen learning. Raises RequestError and ConfigError for what the engine cannot do."""
    for arm in (arm for arm in arms if arm.is_fixed):
        params = SamplingParams(
            temperature=0.0, max_tokens=_WARM_UP_TOKENS, ignore_eos=True, speculative=arm.speculative
        )
        engine.generate("def add(a, b):", params)


def agreement(engine: Engine, cases: Sequence[Case]) -> float | None:
    """Share of places where the draft model's greedy guess is the target's own token, over the beginnings of
    the greedy answers to `cases`; None when none of them are greedy."""
    timings = Timings()
    speculative = SpeculativeParams(enabled=True, draft_length="fixed:n=1", drafter=MODEL_DRAFTER)
    for case in cases:
        if case.temperature == 0.0:
            params = SamplingParams(temperature=0.0, max_tokens=_AGREEMENT_TOKENS, speculative=speculative)
            timings += engine.generate(case.prompt, params).timings
    return timings.acceptance_rate if timings.draft_n else None


def _ask(engine: Engine, workload: str, case: Case, arm: Arm, round_: int, params: SamplingParams) -> Sample:
    started_s = time.perf_counter()
    completion = engine.generate(case.prompt, params)
    wall_ms = 1000.0 * (time.perf_counter() - started_s)
    problem = None if case.problem is None else case.problem(completion.text)
    return Sample(
        workload, case.name, arm.name, round_, wall_ms, completion.timings, tuple(completion.tokens), problem
    )
