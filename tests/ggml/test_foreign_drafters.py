"""Draft models of another vocabulary: the law of the text stays the target's, and greedy text the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lucebox.config import EngineConfig
from lucebox.core import Float32Array
from lucebox.errors import RequestError, VocabularyMismatchError
from lucebox.runtime.rows import Rows
from lucebox.runtime.runtime import Runtime
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.exact_law import chi_squared_p, joint_law
from tests.support.foreign_vocabulary import END, foreign_metadata
from tests.support.tiny_engines import LocalEngine, tiny_config
from tests.support.tiny_models import TinySpec, tiny_tensors
from tests.support.tiny_vocabulary import byte_level_vocabulary

TARGET_TOKENS = ["a", "b", "c", "ab", END]
N_VOCAB = len(TARGET_TOKENS)
N_TOKENS = 3
N_RUNS = 4_000
PROMPT = [1, 2]
MODEL: dict[str, Any] = {
    "n_vocab": N_VOCAB,
    "n_layer": 1,
    "n_embd": 32,
    "n_ff": 32,
    "sharpness": 1.0,
    "metadata": foreign_metadata(TARGET_TOKENS, ["a b"]),
}
DRAFT_TOKENS = ["d", "x", "a", END, "c", "b", "bc", "ca"]
DRAFT: dict[str, Any] = {
    "seed": 5,
    "n_vocab": len(DRAFT_TOKENS),
    "metadata": foreign_metadata(DRAFT_TOKENS, ["b c", "c a"]),
}


def foreign_config(folder: Path, drafter: str, draft: dict[str, Any] = DRAFT, **options: Any) -> EngineConfig:
    config = tiny_config(folder, draft=draft, **options)
    return msgspec.structs.replace(config, drafters=(drafter,))


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["tli", "slem"])
@pytest.mark.parametrize(
    ("acceptance", "draft_length", "filters"),
    [
        ("token", "fixed:n=2", {"top_k": 4, "temperature": 1.3, "frequency_penalty": 0.5}),
        ("block", "fixed:n=3", {}),
    ],
)
def test_joint_law_of_the_first_tokens(
    tmp_path: Path, drafter: str, acceptance: str, draft_length: str, filters: dict[str, float]
) -> None:
    config = foreign_config(
        tmp_path, drafter, acceptance=acceptance, draft_length=draft_length, n_ctx=16, n_parallel=64, **MODEL
    )
    params = SamplingParams(max_tokens=N_TOKENS, ignore_eos=True, **filters)  # type: ignore[arg-type]
    with Runtime.load(config.target.path, device="CPU", n_threads=1, n_ctx=16, kv_type="f32") as runtime:

        def logits_of(context: tuple[int, ...]) -> Float32Array:
            return runtime.forward(Rows.chain(0, context, 0)).logits[0].copy()

        law = joint_law(logits_of, N_VOCAB, PROMPT, params, N_TOKENS)
    with LocalEngine(config) as engine:
        answers = [engine.submit(PROMPT, params, seed=seed) for seed in range(N_RUNS)]
        engine.run()
    timings = [answer.finish.timings for answer in answers]
    accepted = sum(t.draft_n_accepted for t in timings) / sum(t.draft_n for t in timings)
    counts = Counter(tuple(answer.tokens) for answer in answers)
    p_value = chi_squared_p(counts, law, N_VOCAB, N_TOKENS)
    print(f"{drafter} {acceptance} {draft_length}: p = {p_value:.3f}, {accepted:.0%} accepted")
    assert 0.05 < accepted < 0.95
    assert p_value > 1e-3


GREEDY = SamplingParams(temperature=0.0, max_tokens=80, ignore_eos=True)
SPLIT_CHARACTER = [*"🤖".encode()[:3]]
# As many tokens as the tiny vocabulary has, in another order and with other merges.
LETTERS = [*byte_level_vocabulary().tokens[:256]]
CONTROL = [f"<|{i}|>" for i in range(9)]
WIDE_TOKENS = ["<|im_end|>", "th", "ing", "in", *reversed(LETTERS), "ng", *CONTROL, "<|other|>", END]
WIDE = {"seed": 5, "metadata": foreign_metadata(WIDE_TOKENS, ["t h", "i n", "n g", "i ng"])}


def wide_config(folder: Path, drafter: str, **options: Any) -> EngineConfig:
    return foreign_config(folder, drafter, WIDE, **options)


@pytest.mark.parametrize("drafter", ["tli", "slem", "ngram:n=2,slem"])
def test_greedy_text_is_the_targets(tmp_path: Path, drafter: str) -> None:
    prompts = [[7, 8, 9], [258, 260, 261, 12], [*SPLIT_CHARACTER, 5]]
    with LocalEngine(tiny_config(tmp_path, n_parallel=3)) as engine:
        plain = [engine.ask(prompt, GREEDY).tokens for prompt in prompts]
    with LocalEngine(wide_config(tmp_path, drafter, n_parallel=3)) as engine:
        answers = [engine.submit(prompt, GREEDY) for prompt in prompts]
        engine.run()
    assert [answer.tokens for answer in answers] == plain
    assert sum(answer.finish.timings.draft_n for answer in answers) > 100


@pytest.mark.parametrize("acceptance", ["rrs", "gumbel"])
def test_trees_and_shared_noise_are_in_the_targets_ids(tmp_path: Path, acceptance: str) -> None:
    """A draft model that is the target under other ids: what it guesses is accepted, whatever the rule."""
    order = np.random.default_rng(0).permutation(272)
    tokens = byte_level_vocabulary().tokens
    weights = tiny_tensors(TinySpec())
    for name in ("token_embd.weight", "output.weight"):
        weights[name] = weights[name][order]
    metadata = foreign_metadata([tokens[i] for i in order], byte_level_vocabulary().merges, end="<|im_end|>")
    draft = {"tensors": weights, "metadata": metadata}
    config = foreign_config(tmp_path, "tli", draft, acceptance=acceptance)
    params = SamplingParams(temperature=1.0, max_tokens=60, ignore_eos=True)
    with LocalEngine(config) as engine:
        timings = engine.ask([7, 8, 9], params).finish.timings
    print(f"{acceptance}: {timings.draft_n_accepted} of {timings.draft_n} accepted")
    assert timings.draft_n_accepted == timings.draft_n > 30


def test_drafters_take_turns_with_one_draft_model(tmp_path: Path) -> None:
    """Requests that name another drafter find what the one before left in the draft model's cache."""
    config = wide_config(tmp_path, "tli")
    with LocalEngine(config) as engine:
        answers = []
        for drafter in ("tli", "slem", "tli", "slem"):
            params = msgspec.structs.replace(GREEDY, speculative=SpeculativeParams(drafter=drafter))
            answers.append(engine.ask([7, 8, 9], params))
            assert answers[-1].finish.timings.draft_n > 0
    assert len({tuple(answer.tokens) for answer in answers}) == 1


def test_a_cut_head_is_no_obstacle(tmp_path: Path) -> None:
    config = wide_config(tmp_path, "tli")
    assert config.draft is not None
    cut = msgspec.structs.replace(config.draft, n_head_rows=40)
    with LocalEngine(msgspec.structs.replace(config, draft=cut)) as engine:
        assert engine.ask([7, 8, 9], GREEDY).finish.timings.draft_n > 0


@pytest.mark.parametrize("spec", ["model", "ngram:n=2,model", "tli,model"])
def test_a_drafter_that_does_not_translate_is_refused(tmp_path: Path, spec: str) -> None:
    with pytest.raises(VocabularyMismatchError, match=r"id 0 is .*--drafter tli or --drafter slem"):
        LocalEngine(wide_config(tmp_path, spec))


def test_a_request_for_such_a_drafter_is_refused(tmp_path: Path) -> None:
    params = msgspec.structs.replace(GREEDY, speculative=SpeculativeParams(drafter="model"))
    with LocalEngine(wide_config(tmp_path, "tli")) as engine:
        with pytest.raises(RequestError, match="needs a draft model of the target's vocabulary"):
            engine.ask([7, 8, 9], params)
        assert engine.ask([7, 8, 9], GREEDY).finish.timings.draft_n > 0


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    draft = {"n_vocab": 4, "metadata": foreign_metadata(["x", "y", "xy", "<|q|>"], ["x y"], end="<|q|>")}
    with pytest.raises(VocabularyMismatchError, match="no text in common"):
        LocalEngine(foreign_config(tmp_path, "tli", draft, **MODEL))
