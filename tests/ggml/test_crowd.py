"""Many clients at one engine, with tiny models: nothing is lost or mixed up, or held at the end."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from lucebox.engine.process_client import ProcessClient
from lucebox.engine.thread_client import ThreadClient
from lucebox.sampling.params import SamplingParams
from tests.support.crowd import Crowd, check_idle, check_told, solo_answers
from tests.support.tiny_engines import TIMEOUT_S, tiny_config

N_CLIENTS, N_REQUESTS = 32, 8
GAP = 1e-3  # of log-probabilities in float32
PARAMS = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def prompts() -> dict[str, list[int]]:
    """Of all lengths, most of them behind one of two beginnings."""
    rng = random.Random(3)
    beginnings = [rng.choices(range(5, 60), k=k) for k in (150, 70, 0)]
    return {
        f"p{i}": [*beginnings[i % 3], *rng.choices(range(5, 60), k=rng.randint(1, 40))] for i in range(18)
    }


@pytest.mark.parametrize("draft_length", ["fixed:n=3", "auto"])
def test_every_answer_is_the_solo_one(tmp_path: Path, draft_length: str) -> None:
    config = tiny_config(
        tmp_path, draft={"perturbation": 0.1}, n_ctx=256, n_parallel=4, draft_length=draft_length
    )
    alone = msgspec.structs.replace(config, n_parallel=1, n_prefix_tokens=0)
    with ThreadClient(alone) as client:
        client.wait_ready(TIMEOUT_S)
        solos = solo_answers(client, prompts(), PARAMS)
    with ProcessClient(config, log_level="warning") as client:
        client.wait_ready(TIMEOUT_S)
        crowd = Crowd(client, prompts(), PARAMS, n_clients=N_CLIENTS, n_requests=N_REQUESTS)
        told = crowd.run()
        assert len(told) == N_CLIENTS * N_REQUESTS
        assert len(check_told(told, solos, gap=GAP)) <= len(told) // 20
        check_idle(client)
        stats = client.stats()
        assert stats.n_finished + stats.n_cancelled == len(told)
        assert stats.n_cancelled > 0
        assert stats.timings.cache_n > stats.timings.prompt_n, "most of the prompts was known"
        assert stats.timings.draft_n_accepted > 0
