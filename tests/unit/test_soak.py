"""Many requests of every kind at once, drafters and controllers mixed, clients that leave and come back."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import msgspec
import numpy as np
import pytest

from lucebox import acceptance, draft_length, drafters
from lucebox.core import Draft, Origin
from lucebox.draft_length.base import Costs, DraftLengthController, Plan, SequenceState
from lucebox.drafters.base import Drafter, DraftRequest, Observation
from lucebox.engine.timings import Timings
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.drafting import drafter_context
from tests.support.engine_harness import Answer, Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 10
N_CTX = 48
N_PARALLEL = 4
N_REQUESTS = 60
PROMPTS = ([1, 2, 3], [4], [5, 6, 5, 6, 5, 6, 5, 6], [7] * 20, [1, 2, 3, 1, 2, 3, 1])
NEED_TOKENIZERS = ("slem", "tli")
COMBINATIONS = ("suffix,model", "prediction,ngram:n=2,n_min=1", "recycle,ngram,model", "model,recycle")
# What draws the target's own token, whatever was guessed: the text of a seed is that of plain decoding.
SEEDED = [name for name in ("match", "gumbel") if name in acceptance.names()]
LOSSLESS = [name for name in acceptance.names() if acceptance.get(name).lossless]
SAMPLED = [name for name in acceptance.names() if not acceptance.get(name).temperature_0_only]
target_logits = cache(random_model(N_VOCAB, 1, order=2))
draft_logits = cache(random_model(N_VOCAB, 1, order=2, noise=0.7))


class Erratic(Drafter):
    """Guesses trees where they are welcome, chains elsewhere, often rightly; sometimes fails."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(drafter_context(N_VOCAB))
        self._rng = rng
        self.n_failures = 0

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self._maybe_fail()
        return [self._draft(request) for request in requests]

    def observe(self, observation: Observation) -> None:
        n_path = len(observation.verdict.path)
        assert len(observation.tokens) <= observation.n_prefix + n_path + 1
        assert len(observation.logits) == len(observation.draft) + 1
        self._maybe_fail()

    def n_behind(self, sequence: int, n_prefix: int) -> int:
        self._maybe_fail()
        return 0

    def release(self, sequence: int) -> None:
        self._maybe_fail()

    def _maybe_fail(self) -> None:
        if self._rng.random() < 0.02:
            self.n_failures += 1
            raise RuntimeError("erratic")

    def _draft(self, request: DraftRequest) -> Draft:
        n = self._rng.randint(0, request.n_max)
        contexts = [tuple(request.prefix)]
        tokens, parents = [], []
        while len(tokens) < n:
            row = self._rng.randrange(len(contexts)) if request.shape else len(tokens)
            token = int(target_logits(contexts[row]).argmax())
            if self._rng.random() < 0.3:
                token = self._rng.randrange(N_VOCAB)
            tokens.append(token)
            parents.append(row)
            contexts.append((*contexts[row], token))
        return Draft(np.array(tokens, np.int32), np.array(parents, np.int32), [None] * len(tokens))


class Branching(DraftLengthController):
    """Plans drafts of any length and shape, by anybody."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def plan(self, batch: Sequence[SequenceState], costs: Costs) -> Mapping[int, Plan]:
        rng = self._rng
        return {
            state.sequence: Plan(
                rng.choice(state.drafters), rng.randint(0, state.n_room + 2), rng.choice([(), (3,), (2, 2)])
            )
            for state in batch
        }


@dataclass
class Asked:
    """A request. `text` is what it must say if `is_certain`; `n_before` tokens of that came with it."""

    params: SamplingParams
    prompt: list[int]
    seed: int
    text: list[int]
    prediction: list[int]
    is_certain: bool
    n_before: int = 0
    is_cancelled: bool = False


class Clients:
    """Asks, leaves, and comes back, by chance."""

    def __init__(self, seed: int, controller: str) -> None:
        self.rng = random.Random(seed)
        self.erratic = Erratic(self.rng)
        specs = [name for name in drafters.names() if name not in ("model", *NEED_TOKENIZERS)]
        self.harness = Harness(
            N_VOCAB,
            target_logits,
            draft_logits,
            n_ctx=N_CTX,
            n_parallel=N_PARALLEL,
            draft_n_ctx=N_CTX - 8,
            draft_length=controller,
            drafter=self.erratic,
            specs=specs,
        )
        self.asked: dict[str, Asked] = {}
        self.controllers: list[DraftLengthController] = []
        self._branching = Branching(self.rng)
        self._plain = Harness(N_VOCAB, target_logits, n_ctx=N_CTX)

    def run(self) -> None:
        harness, rng = self.harness, self.rng
        while len(self.asked) < N_REQUESTS or not harness.stepper.scheduler.is_idle:
            if len(self.asked) < N_REQUESTS and rng.random() < 0.5:
                self._ask()
            if rng.random() < 0.05:
                self._leave(come_back=rng.random() < 0.5)
            harness.step()

    def _ask(self) -> None:
        rng = self.rng
        temperature, strategies = rng.choice([(0.0, LOSSLESS), (1.0, SEEDED), (1.0, SAMPLED)])
        strategy = rng.choice(strategies)
        length = rng.choice([None, *draft_length.names()])
        params = SamplingParams(
            temperature=temperature,
            max_tokens=rng.choice([1, 2, 9, 30, None]),
            ignore_eos=rng.random() < 0.7,
            frequency_penalty=rng.choice([0.0, 0.0, 0.8]),
            stop=rng.choice([(), (), ("ab",)]),
            speculative=SpeculativeParams(acceptance=strategy, draft_length=length),
        )
        prompt, seed = rng.choice(PROMPTS), rng.randrange(2)
        text = self._plain.ask(prompt, params, seed=seed).tokens
        if rng.random() < 0.5:
            speculative = SpeculativeParams(
                acceptance=strategy, draft_length=length, drafter=rng.choice(COMBINATIONS)
            )
            params = msgspec.structs.replace(params, speculative=speculative)
        edited = [token if rng.random() < 0.8 else rng.randrange(N_VOCAB) for token in text]
        is_certain = strategies is not SAMPLED
        self._submit(Asked(params, prompt, seed, text, rng.choice([[], edited]), is_certain))

    def _submit(self, asked: Asked) -> None:
        generated = asked.text[: asked.n_before]
        id = self.harness.submit(
            asked.prompt,
            asked.params,
            seed=asked.seed,
            generated=generated,
            prediction=asked.prediction,
        )
        self.asked[id] = asked
        sequence = self.harness.stepper.scheduler.find(id)
        assert sequence is not None
        if asked.params.speculative.drafter is None:
            names = [*self.harness.pool.defaults, *COMBINATIONS]
            sequence.drafters = tuple(self.rng.sample(names, self.rng.randint(1, len(names))))
        if self.rng.random() < 0.3:
            sequence.controller = self._branching
        assert sequence.controller is not None
        self.controllers.append(sequence.controller)

    def _leave(self, come_back: bool) -> None:
        """Cancels a request; its client, or a server whose engine died, may ask for the rest of it."""
        scheduler = self.harness.stepper.scheduler
        live = [*scheduler.running, *scheduler.waiting]
        if not live:
            return
        id = self.rng.choice(live).id
        self.harness.cancel(id)
        asked = self.asked[id]
        asked.is_cancelled = True
        if come_back and asked.is_certain:
            n_before = asked.n_before + len(self.harness.answers[id].tokens)
            self._submit(replace(asked, n_before=n_before, is_cancelled=False))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("controller", draft_length.names())
def test_nobody_depends_on_anybody_and_nothing_is_left(
    controller: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    clients = Clients(seed, controller)
    clients.run()
    harness = clients.harness
    for id, asked in clients.asked.items():
        answer, rest = harness.answers[id], asked.text[asked.n_before :]
        assert (answer.finish.reason == "cancelled") == asked.is_cancelled
        if asked.is_certain:
            assert answer.tokens == (rest[: len(answer.tokens)] if asked.is_cancelled else rest), asked
        elif answer.finish.reason == "length":
            n_room = N_CTX - len(asked.prompt)
            assert len(answer.tokens) == min(asked.params.max_tokens or n_room, n_room)
        check_timings(answer)
    harness.pool.forget()
    assert harness.draft.cache.n_free == harness.draft.cache.n_cells
    harness.draft.cache.check_integrity()
    for learner in (*clients.controllers, *harness.pool.singles()):
        assert not slots_known(learner), f"{type(learner).__name__} remembers sequences that ended"
    failures = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert failures == ["erratic"] * clients.erratic.n_failures
    total = sum((answer.finish.timings for answer in harness.answers.values()), Timings())
    assert len(total.drafters) > 2
    assert 0 < total.draft_n_accepted < total.draft_n


def slots_known(learner: object) -> set[int]:
    """Sequences that `learner` has something of, in whatever mapping it keeps."""
    mappings = [value for value in getattr(learner, "__dict__", {}).values() if isinstance(value, dict)]
    return {key for mapping in mappings for key in mapping if key in range(N_PARALLEL)}


def check_timings(answer: Answer) -> None:
    """The sums of the last event are those of all events."""
    timings = answer.finish.timings
    of_events = sum((drafted.timings() for step in answer.steps for drafted in step.drafted), Timings())
    assert timings.predicted_n == len(answer.tokens)
    assert timings.n_rounds == sum(step.n_rounds for step in answer.steps) >= timings.n_drafted_rounds
    assert timings.draft_n == sum(step.n_drafted for step in answer.steps)
    assert timings.draft_n_accepted == answer.origins.count(Origin.ACCEPTED)
    assert timings.accepted_per_position == of_events.accepted_per_position
    assert timings.drafted_per_position == of_events.drafted_per_position
    assert timings.drafters == of_events.drafters
