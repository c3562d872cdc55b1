"""Controllers and drafters that fail cost drafts, never a request, and are heard of once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from lucebox.core import Draft, RoundResult
from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.drafters.base import Drafter, DraftRequest, Observation
from lucebox.engine.timings import Timings
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.drafting import drafter_context
from tests.support.engine_harness import PLUGIN, Answer, Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 12
PROMPT = [1, 2, 3]
PARAMS = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
TARGET = random_model(N_VOCAB, 1)


class Ones(Drafter):
    """Always guesses token 1."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft.chain([1], [None]) for _ in requests]

    def __init__(self) -> None:
        super().__init__(drafter_context(N_VOCAB))

    def release(self, sequence: int) -> None:
        pass


class ForgetfulOnes(Ones):
    def observe(self, observation: Observation) -> None:
        raise RuntimeError("cannot learn")


class UnmeasurableOnes(Ones):
    def n_behind(self, sequence: int, n_prefix: int) -> int:
        raise RuntimeError("cannot count")


class ClingingOnes(Ones):
    def release(self, sequence: int) -> None:
        raise RuntimeError("cannot forget")


class Planning(DraftLengthController):
    """Plans `plan` for every sequence, and keeps what it learns and what it is told to forget."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.learned: list[RoundResult] = []
        self.released: list[int] = []

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        return {state.sequence: self._plan for state in batch}

    def update(self, result: RoundResult) -> None:
        self.learned.append(result)

    def release(self, sequence: int) -> None:
        self.released.append(sequence)


class Raising(Planning):
    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        raise RuntimeError("no plan")


class Incomplete(Planning):
    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        return {}


class Unteachable(Planning):
    def update(self, result: RoundResult) -> None:
        raise RuntimeError("cannot learn")


def ask(drafter: Drafter, controller: Planning) -> Answer:
    harness = Harness(N_VOCAB, TARGET, drafter=drafter)
    id = harness.submit(PROMPT, PARAMS)
    sequence = harness.stepper.scheduler.find(id)
    assert sequence is not None
    sequence.controller = controller
    harness.run()
    return harness.answers[id]


@pytest.fixture(scope="module")
def plain() -> list[int]:
    return Harness(N_VOCAB, TARGET).ask(PROMPT, PARAMS).tokens


@pytest.mark.parametrize(
    ("drafter", "controller", "words"),
    [
        (Ones(), Raising(Plan(PLUGIN, 1)), "no plan"),
        (Ones(), Incomplete(Plan(PLUGIN, 1)), "KeyError"),
        (Ones(), Planning(Plan("twos", 1)), "there is no drafter 'twos'"),
        (Ones(), Unteachable(Plan(PLUGIN, 1)), "cannot learn"),
        (ForgetfulOnes(), Planning(Plan(PLUGIN, 1)), "cannot learn"),
        (UnmeasurableOnes(), Planning(Plan(PLUGIN, 1)), "cannot count"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_failures_cost_drafts_only(
    drafter: Drafter,
    controller: Planning,
    words: str,
    plain: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = ask(drafter, controller)
    assert answer.tokens == plain
    assert sum(step.n_drafted for step in answer.steps) <= 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert words in caplog.text
    assert controller.released == [0]  # or the slot's next owner would be taken for this one


def test_a_drafter_that_cannot_forget_stops_nobody(
    plain: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    controller = Planning(Plan(PLUGIN, 1))
    assert ask(ClingingOnes(), controller).tokens == plain
    assert controller.released == [0]
    assert "ClingingOnes cannot forget" in caplog.text
    harness = Harness(N_VOCAB, TARGET, drafter=ClingingOnes())
    cancelled, other = harness.submit(PROMPT, PARAMS), harness.submit(PROMPT, PARAMS)
    harness.step()
    harness.cancel(cancelled)
    harness.run()
    assert harness.answers[other].tokens == plain


def test_a_controller_learns_what_became_of_each_round(plain: list[int]) -> None:
    controller = Planning(Plan(PLUGIN, 9))
    answer = ask(Ones(), controller)
    assert answer.tokens == plain
    assert sum(1 + result.n_accepted for result in controller.learned) >= len(plain) - 1
    assert [PLUGIN] in [step.drafters for step in answer.steps]
    assert list(answer.finish.timings.drafters) == [PLUGIN]
    for result in controller.learned:
        assert (result.drafter, result.n_drafted) in ((PLUGIN, 1), ("", 0))
        assert result.n_rows >= 1 + result.n_drafted
        assert 0 <= result.n_accepted <= result.n_drafted
        assert result.n_kv >= len(PROMPT)


@pytest.mark.parametrize("spec", ["model", "prediction,model"])
def test_no_forward_is_spent_behind_a_draft_that_is_long_enough(spec: str, plain: list[int]) -> None:
    class Short(Planning):
        def is_long_enough(self, sequence: int, depth: int) -> bool:
            return depth >= 2

    harness = Harness(N_VOCAB, TARGET, TARGET, specs=[spec])
    id = harness.submit(PROMPT, PARAMS)
    sequence = harness.stepper.scheduler.find(id)
    assert sequence is not None
    sequence.drafters, sequence.controller = (spec,), Short(Plan(spec, 8))
    harness.run()
    answer = harness.answers[id]
    assert answer.tokens == plain
    timings = answer.finish.timings
    assert len(harness.draft.n_rows_fed) == timings.draft_n
    assert len(timings.drafted_per_position) == 2


def test_only_those_who_may_guess_for_a_request_watch_it() -> None:
    class Watching(Ones):
        n_observed = 0

        def observe(self, observation: Observation) -> None:
            self.n_observed += 1

    watching = Watching()
    harness = Harness(N_VOCAB, TARGET, drafter=watching, specs=["ngram"])
    harness.ask(PROMPT, replace(PARAMS, speculative=SpeculativeParams(drafter="ngram")))
    assert watching.n_observed == 0
    harness.ask(PROMPT, replace(PARAMS, speculative=SpeculativeParams(drafter=PLUGIN)))
    assert watching.n_observed > 0


def test_one_token_of_prompt_takes_no_negative_time() -> None:
    class Looking(Planning):
        def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
            prompt_ms.extend(state.prompt_ms for state in batch)
            return super().plan(batch, costs)

    prompt_ms: list[float] = []
    harness = Harness(N_VOCAB, TARGET, drafter=Ones())
    id = harness.submit([1], PARAMS)
    sequence = harness.stepper.scheduler.find(id)
    assert sequence is not None
    sequence.controller = Looking(Plan(PLUGIN, 1))
    harness.run()
    assert prompt_ms[0] == 0.0
    assert all(0.0 < ms < 60_000.0 for ms in prompt_ms[1:])


def test_who_knows_the_prediction_guesses_first(plain: list[int]) -> None:
    harness = Harness(N_VOCAB, TARGET, specs=["ngram"])
    id = harness.submit(PROMPT, PARAMS, prediction=plain)
    harness.run()
    answer = harness.answers[id]
    assert answer.tokens == plain
    timings = answer.finish.timings
    assert list(timings.drafters) == ["prediction"]
    assert timings.draft_n_accepted == timings.draft_n == len(plain) - timings.n_rounds
    assert not harness.ask(PROMPT, PARAMS).finish.timings.drafters.keys() & {"prediction"}


def test_the_last_round_is_learned_from_as_well(plain: list[int]) -> None:
    class Watching(Ones):
        def observe(self, observation: Observation) -> None:
            observed.append(list(observation.tokens[observation.n_prefix :]))

    observed: list[list[int]] = []
    controller = Planning(Plan(PLUGIN, 1))
    answer = ask(Watching(), controller)
    assert observed == [step.tokens for step in answer.steps]
    assert [result.n_drafted for result in controller.learned] == [step.n_drafted for step in answer.steps]


def test_no_draft_is_longer_than_its_room() -> None:
    asked: list[int] = []

    class Watching(Ones):
        def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
            asked.extend(request.n_max for request in requests)
            return super().propose(requests)

    harness = Harness(N_VOCAB, TARGET, drafter=Watching())
    id = harness.submit(PROMPT, replace(PARAMS, max_tokens=4))
    sequence = harness.stepper.scheduler.find(id)
    assert sequence is not None
    sequence.controller = Planning(Plan(PLUGIN, 1000))
    harness.run()
    assert asked
    assert max(asked) <= 2


class Alternating(Planning):
    """Plans by the drafters at hand in turn, then for a plain round."""

    n_rounds = 0

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        plans = {}
        for state in batch:
            names = ["", *state.drafters]
            name = names[self.n_rounds % len(names)]
            plans[state.sequence] = Plan(name, 2 if name else 0)
            self.n_rounds += 1
        return plans


def test_every_round_names_its_drafter_and_the_sums_are_theirs(plain: list[int]) -> None:
    harness = Harness(N_VOCAB, TARGET, TARGET, drafter=Ones())
    id = harness.submit(PROMPT, PARAMS)
    sequence = harness.stepper.scheduler.find(id)
    assert sequence is not None
    sequence.controller = controller = Alternating(Plan("", 0))
    harness.run()
    answer = harness.answers[id]
    assert answer.tokens == plain
    learned = {result.n_kv: result.drafter for result in controller.learned}
    n_kv, by_round = len(PROMPT), []
    for step in answer.steps:
        by_round.append(step.drafters)
        if step.finish is None:
            assert step.drafters == [learned[n_kv]] if learned[n_kv] else not step.drafters
        n_kv += len(step.tokens)
    assert by_round[:7] == [[], [], [PLUGIN], ["model"], [], [PLUGIN], ["model"]]  # the first: the prompt's
    merged = answer.steps[0]
    for step in answer.steps[1:]:
        merged = merged.followed_by(step)
    assert merged.drafters == [PLUGIN, "model"]
    timings = answer.finish.timings
    assert sum((drafted.timings() for drafted in merged.drafted), Timings()).drafters == timings.drafters
    right, wrong = timings.drafters["model"], timings.drafters[PLUGIN]
    assert right.n_accepted == right.n_drafted == 2 * right.n_rounds
    assert wrong.n_drafted == wrong.n_rounds


class Twos(Ones):
    """Guesses token 2, three times, without a law."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [
            Draft.chain([2, 2, 2][: request.n_max], [None] * min(3, request.n_max)) for request in requests
        ]


class Nothing(Ones):
    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft.empty() for _ in requests]


class Trimming(Planning):
    """Verifies `n` tokens of what was looked up."""

    def __init__(self, plan: Plan, n: int) -> None:
        super().__init__(plan)
        self.n = n
        self.asked: list[tuple[str, list[int]]] = []

    def trim(self, sequence: int, drafter: str, tokens: Sequence[int]) -> int:
        self.asked.append((drafter, list(tokens)))
        return self.n


def run_two(first: Drafter, second: Drafter, controller: DraftLengthController) -> Answer:
    harness = Harness(N_VOCAB, TARGET)
    for name, drafter in (("first", first), ("second", second)):
        harness.pool._singles[name] = drafter
    id = harness.submit(PROMPT, PARAMS)
    sequence = harness.stepper.scheduler.find(id)
    assert sequence is not None
    sequence.drafters, sequence.controller = ("first", "second"), controller
    harness.run()
    return harness.answers[id]


def test_a_second_drafter_is_asked_where_the_first_has_nothing(plain: list[int]) -> None:
    controller = Trimming(Plan("first", 4, otherwise=Plan("second", 4)), 9)
    answer = run_two(Nothing(), Ones(), controller)
    assert answer.tokens == plain
    assert {result.drafter for result in controller.learned if result.n_drafted} == {"second"}
    assert controller.asked[:2] == [("first", []), ("second", [1])]


def test_looked_up_guesses_are_cut_and_dropped_as_the_controller_says(plain: list[int]) -> None:
    cut = Trimming(Plan("first", 4, otherwise=Plan("second", 4)), 2)
    assert run_two(Twos(), Ones(), cut).tokens == plain
    assert max(result.n_drafted for result in cut.learned) == 2
    assert {result.drafter for result in cut.learned if result.n_drafted} == {"first"}
    dropped = Trimming(Plan("first", 4), 0)
    assert run_two(Twos(), Ones(), dropped).tokens == plain
    assert not any(result.n_drafted for result in dropped.learned)
    assert [token for result in dropped.learned for token in result.tokens] == plain
