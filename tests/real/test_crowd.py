"""64 clients with 20 requests each at SmolLM2, or fewer: CROWD=64x20 asks for all of them.

Short answers to questions that share a system prompt, four at a time; a fifth of the clients leave before the
end. Prints what it took with `-s`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from lucebox.config import EngineConfig, EngineOptions
from lucebox.engine.process_client import ProcessClient
from lucebox.gguf import read
from lucebox.models import attention
from lucebox.resolve import resolve_engine
from lucebox.sampling.params import SamplingParams
from lucebox.text.chat import ChatTemplate
from lucebox.text.tokenizer import Tokenizer
from tests.support.crowd import Crowd, check_idle, check_told, solo_answers
from tests.support.tiny_engines import TIMEOUT_S, Asked

N_CLIENTS, N_REQUESTS = (int(n) for n in os.environ.get("CROWD", "12x3").split("x"))
N_PARALLEL = 4
N_CTX = 1024
# Our own attention makes every answer the solo one. Others round otherwise for batches of other shapes: that
# moves the gap of the two likeliest by up to 0.4, and a few questions, drawn often or not, have a near-tie.
IS_EXACT = attention.is_available()
GAP = 0.0 if IS_EXACT else 0.5
PARAMS = SamplingParams(temperature=0.0, max_tokens=16)
SYSTEM = "You are a helpful assistant who answers in a few words, and says what is not known. " * 3
QUESTIONS = (
    "What is the capital of France?",
    "Name three colours.",
    "What is 2 + 2?",
    "Write a line of Python that prints hello.",
    "Which animal barks?",
    "Count from one to five.",
    "Who wrote Hamlet?",
    "Translate 'good morning' into Spanish.",
    "What do bees make?",
    "How many legs has a spider?",
    "Say the alphabet's first six letters.",
    "What is water made of?",
)


@pytest.fixture(scope="module")
def config(model_path: Callable[[str], Path]) -> EngineConfig:
    path = str(model_path("smollm2-135m"))
    options = EngineOptions(target_model=path, parallel=N_PARALLEL, threads=2, ctx_size=N_CTX)
    return resolve_engine(options)


def encoded(config: EngineConfig) -> dict[str, list[int]]:
    with read(config.target.path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata, config.target.path)
        template = ChatTemplate.from_metadata(file.metadata, config.target.path)
    assert template is not None
    return {
        question: template.encode(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}], tokenizer
        )
        for question in QUESTIONS
    }


@pytest.mark.slow
def test_nothing_is_lost_or_mixed_up(config: EngineConfig) -> None:
    prompts = encoded(config)
    alone = msgspec.structs.replace(config, n_parallel=1, n_prefix_tokens=0)
    with ProcessClient(alone, log_level="warning") as client:
        client.wait_ready(2 * TIMEOUT_S)
        solos = solo_answers(client, prompts, PARAMS)
    with ProcessClient(config, log_level="warning") as client:
        client.wait_ready(2 * TIMEOUT_S)
        crowd = Crowd(client, prompts, PARAMS, n_clients=N_CLIENTS, n_requests=N_REQUESTS)
        told = crowd.run()
        ties = check_told(told, solos, gap=GAP)
        check_idle(client)
        stats = client.stats()
    assert len(told) == N_CLIENTS * N_REQUESTS == stats.n_finished + stats.n_cancelled
    assert len(ties) <= (0 if IS_EXACT else len(told) // 2)
    timings = stats.timings
    print(
        f"\n{len(told)} requests of {N_CLIENTS} clients in {crowd.elapsed_s:.0f} s, "
        f"{stats.n_cancelled} of them cancelled; "
        f"{timings.predicted_n} tokens, {timings.prompt_n} prompt tokens computed, {timings.cache_n} known, "
        f"{len(ties)} answers differ from a near-tie on, {max(ties, default=0.0):.2f} apart at most"
    )


@pytest.mark.slow
def test_a_second_request_with_a_long_prefix_answers_at_once(config: EngineConfig) -> None:
    """The time to its first token is at most a tenth of the first one's."""
    with read(config.target.path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata, config.target.path)
    text = "The quick brown fox jumps over the lazy dog, and on it goes. " * 80
    prefix = tokenizer.encode(text, parse_special=False)[:1000]
    with ProcessClient(msgspec.structs.replace(config, n_ctx=2048), log_level="warning") as client:
        client.wait_ready(2 * TIMEOUT_S)
        times_ms = []
        for i, rest in enumerate(("One", "Two", "Three", "Four")):
            prompt = [*prefix, *tokenizer.encode(rest, parse_special=False)]
            timings = Asked(client, f"r{i}", prompt, PARAMS).all().finish.timings
            assert timings.cache_n == (0 if i == 0 else 1000 // 16 * 16)
            times_ms.append(timings.prompt_ms)
    print("\n" + ", ".join(f"{ms:.0f} ms" for ms in times_ms))
    assert min(times_ms[1:]) <= 0.1 * times_ms[0]
