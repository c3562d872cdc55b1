"""Many clients at one engine at once, who leave when they like, and what each of them ought to be told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from lucebox.engine.client import EngineClient
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Answer
from tests.support.tiny_engines import TIMEOUT_S, Asked

CANCEL_SHARE = 0.2
PATIENCE_S = 10 * TIMEOUT_S  # of a client far back in the queue


@dataclass(frozen=True)
class Solo:
    """A greedy answer of an engine that does nothing else; `gaps` are between the two likeliest tokens."""

    tokens: list[int]
    gaps: list[float]


def solo_answers(
    client: EngineClient, prompts: Mapping[str, Sequence[int]], params: SamplingParams
) -> dict[str, Solo]:
    """One after another, without speculation."""
    plain = replace(params, logprobs=2, speculative=replace(params.speculative, enabled=False))
    answers = {}
    for name, prompt in prompts.items():
        answer = Asked(client, f"solo-{name}", prompt, plain).all()
        gaps = [entry.top[0][1] - entry.top[1][1] for entry in answer.logprobs]
        answers[name] = Solo(answer.tokens, gaps)
    return answers


@dataclass
class Told:
    """One request of the crowd, with the number of tokens after which its client left, if it did."""

    name: str
    leaves_after: int | None
    answer: Answer

    def first_difference(self, solo: Solo) -> int | None:
        pairs = zip(self.answer.tokens, solo.tokens, strict=False)
        return next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)


class Crowd:
    """`n_clients` threads that ask `n_requests` things each, one after another, about any of `prompts`."""

    def __init__(
        self,
        client: EngineClient,
        prompts: Mapping[str, Sequence[int]],
        params: SamplingParams,
        *,
        n_clients: int,
        n_requests: int,
        seed: int = 1,
    ) -> None:
        self._client = client
        self._prompts = prompts
        self._params = params
        self._n_requests = n_requests
        self._seed = seed
        self.told: list[list[Told]] = [[] for _ in range(n_clients)]
        self.elapsed_s = 0.0

    def run(self) -> list[Told]:
        """What all were told. An exception in any client is raised here."""
        errors: list[BaseException] = []
        threads = [
            threading.Thread(target=self._ask, args=(i, errors), daemon=True) for i in range(len(self.told))
        ]
        started_s = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.elapsed_s = time.perf_counter() - started_s
        if errors:
            raise errors[0]
        return [told for mine in self.told for told in mine]

    def _ask(self, i: int, errors: list[BaseException]) -> None:
        rng = random.Random(self._seed * 1000 + i)
        try:
            for k in range(self._n_requests):
                self.told[i].append(self._ask_once(f"{i}/{k}", rng))
        except BaseException as error:
            errors.append(error)

    def _ask_once(self, id: str, rng: random.Random) -> Told:
        name = rng.choice(list(self._prompts))
        n_max = self._params.max_tokens
        assert n_max is not None
        leaves_after = rng.randrange(n_max // 2) if rng.random() < CANCEL_SHARE else None
        asked = Asked(self._client, id, self._prompts[name], self._params)
        if leaves_after is not None:
            while not asked.is_over and len(asked.answer.tokens) < leaves_after:
                asked.next(PATIENCE_S)
            self._client.cancel(id)
        return Told(name, leaves_after, asked.all(PATIENCE_S))


def check_told(told: Sequence[Told], solos: Mapping[str, Solo], *, gap: float) -> list[float]:
    """Asserts that every answer is the solo one, or a part of it where the client left; an answer may leave
    it where two tokens were as likely, by `gap`. Returns the gaps where that happened."""
    ties = []
    for one in told:
        solo, finish = solos[one.name], one.answer.finish
        i = one.first_difference(solo)
        if i is not None:
            assert solo.gaps[i] < gap, f"{one.name} leaves its solo answer at token {i}, {solo.gaps[i]} ahead"
            ties.append(solo.gaps[i])
            continue
        n = len(one.answer.tokens)
        if finish.reason == "cancelled":
            assert one.leaves_after is not None
            assert one.leaves_after <= n <= len(solo.tokens)
        else:
            assert n == len(solo.tokens), f"{one.name}: {n} of {len(solo.tokens)} tokens"
    return ties


def check_idle(client: EngineClient) -> None:
    """Asserts that nothing is under way, every slot free, and every cell in use that of a prefix."""
    deadline_s = time.monotonic() + 5.0
    while ((load := client.load()).n_running or load.n_waiting) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert (load.n_running, load.n_waiting) == (0, 0)
    assert load.slots
    assert {slot.state for slot in load.slots} == {"idle"}
    assert load.n_cells_used == load.n_cells_cached <= load.n_cells
    assert client.status().n_in_flight == 0
