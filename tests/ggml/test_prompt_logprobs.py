"""How likely a prompt was, as the engine tells it, against the model asked directly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lucebox.core import Float32Array
from lucebox.engine.messages import TokenLogprobs
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.params import SamplingParams
from tests.support.tiny_engines import LocalEngine, tiny_config

N_VOCAB = 40
LONG = [(7 * i * i + i) % N_VOCAB for i in range(90)]  # several chunks
PROMPTS = [LONG, LONG[:33], LONG[:32], [3, 5], [3]]
MODEL = {"n_vocab": N_VOCAB, "n_layer": 2}


def log_softmax(path: str, prompt: list[int]) -> Float32Array:
    """float32[len(prompt), n_vocab]"""
    with Runtime.load(path, device="CPU", n_threads=1, n_ctx=256, kv_type="f32") as runtime:
        logits = runtime.forward(Rows.chain(0, prompt, 0, want_all=Want.LOGITS)).logits.copy()
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def assert_scores(entries: list[TokenLogprobs], expected: Float32Array, prompt: list[int]) -> None:
    assert [entry.token for entry in entries] == prompt[1:]
    for row, entry in zip(expected, entries, strict=False):
        assert entry.logprob == pytest.approx(row[entry.token], abs=1e-4)
        assert [logprob for _, logprob in entry.top] == pytest.approx(np.sort(row)[::-1][:3], abs=1e-4)


@pytest.mark.parametrize("max_tokens", [0, 5])
def test_prompts_are_scored_whatever_runs_beside_them(tmp_path: Path, max_tokens: int) -> None:
    config = tiny_config(tmp_path, draft={"perturbation": 0.2}, n_parallel=4, **MODEL)
    expected = [log_softmax(config.target.path, prompt) for prompt in PROMPTS]
    params = SamplingParams(
        temperature=0.0, max_tokens=max_tokens, prompt_logprobs=3, logprobs=3, ignore_eos=True
    )
    with LocalEngine(config) as engine:
        engine.ask(LONG, SamplingParams(max_tokens=3))  # its prefix is known, and of no use
        others = [engine.submit(LONG[5:60], SamplingParams(max_tokens=20)) for _ in range(2)]
        answers = [engine.submit(prompt, params) for prompt in PROMPTS]
        engine.run()
    for answer, prompt, rows in zip(answers, PROMPTS, expected, strict=True):
        told = [step.prompt_logprobs for step in answer.steps]
        assert told[0] is not None
        assert told[1:] == [None] * (len(told) - 1)
        assert_scores(told[0], rows, prompt)
        assert len(answer.tokens) == max_tokens
        assert answer.finish.reason == "length"
        assert answer.finish.timings.prompt_n == len(prompt)
        if max_tokens:  # the first generated token is judged by the row behind the prompt
            assert answer.tokens[0] == int(rows[-1].argmax())
            assert answer.logprobs[0].logprob == pytest.approx(rows[-1].max(), abs=1e-4)
    assert all(len(other.tokens) == 20 or other.finish.reason == "stop" for other in others)


def test_nothing_but_reading_the_prompt_may_be_asked(tmp_path: Path) -> None:
    with LocalEngine(tiny_config(tmp_path, draft={"perturbation": 0.2}, **MODEL)) as engine:
        answer = engine.ask(LONG, SamplingParams(max_tokens=0))
        assert (answer.tokens, answer.finish.reason) == ([], "length")
        assert answer.steps[0].prompt_logprobs is None
        # Nothing is left behind, and what was read may be begun with.
        greedy = SamplingParams(temperature=0.0, max_tokens=8)
        again = engine.ask(LONG, greedy)
    with LocalEngine(tiny_config(tmp_path, **MODEL)) as engine:
        assert engine.ask(LONG, greedy).tokens == again.tokens
