"""Prefixes in real keys and values: what is restored leads to the logits of a fresh run."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from lucebox.config import EngineConfig
from lucebox.core import Float32Array
from lucebox.engine.prefix_cache import N_BLOCK, PrefixCache
from lucebox.runtime.rows import Rows
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Answer
from tests.support.tiny_engines import LocalEngine, tiny_config
from tests.support.tiny_models import write_tiny

N_CTX = 256
ATOL = 2e-4  # of log-probabilities in float32: batches of other shapes add up in another order
GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, logprobs=5)


def tokens(seed: int, n: int) -> list[int]:
    return random.Random(seed).choices(range(5, 60), k=n)


def last_logits(runtime: Runtime, sequence: int, ids: list[int]) -> Float32Array:
    """Feeds what `sequence` lacks of `ids`, and commits it."""
    n_known = runtime.cache.length(sequence)
    output = runtime.forward(Rows.chain(sequence, ids[n_known:], n_known))
    logits = output.logits[-1].copy()
    runtime.cache.commit(sequence, range(len(ids) - n_known))
    return logits


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_a_restored_prefix_has_the_logits_of_a_fresh_run(tmp_path: Path, architecture: str) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", architecture)
    system, others = tokens(1, 5 * N_BLOCK + 3), [tokens(seed, 40) for seed in range(2, 6)]
    with Runtime.load(path, device="CPU", n_threads=1, n_ctx=N_CTX, n_sequences=3, kv_type="f32") as runtime:
        prefixes = PrefixCache(runtime.cache)
        last_logits(runtime, 2, others[0])  # so that cells of the prefix are not the first ones
        last_logits(runtime, 0, system)
        prefixes.add(system, runtime.cache.cells(0))
        runtime.cache.release(0)
        for i, rest in enumerate(others):
            prompt = [*system, *rest]
            cells = prefixes.find(prompt[:-1])
            assert len(cells) == 5 * N_BLOCK
            runtime.cache.adopt(0, cells)
            restored = last_logits(runtime, 0, prompt)
            fresh = last_logits(runtime, 1, prompt)
            np.testing.assert_allclose(restored, fresh, atol=1e-4, rtol=1e-4)
            if i % 2:  # what else is computed meanwhile lies beside it
                runtime.cache.release(2)
                last_logits(runtime, 2, rest)
            runtime.cache.release(0)
            runtime.cache.release(1)
        prefixes.check_integrity()
        runtime.cache.check_integrity()


def assert_close(answer: Answer, fresh: Answer) -> None:
    """The same tokens with the same log-probabilities, up to rounding; a near-tie may go the other way."""
    for ours, theirs in zip(answer.logprobs, fresh.logprobs, strict=False):
        np.testing.assert_allclose([p for _, p in ours.top], [p for _, p in theirs.top], atol=ATOL)
        if ours.token != theirs.token:
            assert theirs.top[0][1] - theirs.top[1][1] < ATOL
            return
        assert abs(ours.logprob - theirs.logprob) < ATOL


@pytest.mark.parametrize(
    ("draft_length", "acceptance"),
    [("fixed:n=4", "auto"), ("fixed:shape=2x2x1", "specinfer"), ("auto", "auto")],
)
def test_answers_behind_prefixes_are_those_of_fresh_engines(
    tmp_path: Path, draft_length: str, acceptance: str
) -> None:
    config: EngineConfig = tiny_config(
        tmp_path,
        draft={"perturbation": 0.1},
        n_ctx=N_CTX,
        n_parallel=3,
        draft_length=draft_length,
        acceptance=acceptance,
    )
    alone = msgspec.structs.replace(config, n_prefix_tokens=0, draft=None, drafters=(), n_parallel=1)
    rng = random.Random(7)
    texts = [tokens(seed, 200) for seed in range(3)]
    asked: list[tuple[list[int], Answer]] = []
    with LocalEngine(config) as engine, LocalEngine(alone) as fresh:
        stepper = engine.loaded.stepper
        for _ in range(24):
            prompt = [*rng.choice(texts)[: rng.randint(1, 200)], *tokens(rng.randrange(9), rng.randint(1, 6))]
            asked.append((prompt, engine.submit(prompt, GREEDY)))
            for _ in range(rng.randint(0, 8)):
                for event in stepper.step():
                    assert event.id is not None
                    engine.answers[event.id].events.append(event)
            running = stepper.scheduler.running
            if running and rng.random() < 0.2:
                id = rng.choice(running).id
                event = stepper.cancel(id)
                assert event is not None
                engine.answers[id].events.append(event)
        engine.run()
        n_cached = sum(answer.finish.timings.cache_n for _, answer in asked)
        assert n_cached > sum(len(prompt) for prompt, _ in asked) // 4
        for prompt, answer in asked:
            assert answer.finish.reason == "cancelled" or len(answer.tokens) == GREEDY.max_tokens
            assert_close(answer, fresh.ask(prompt, GREEDY))
