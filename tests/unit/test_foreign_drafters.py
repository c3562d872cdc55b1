"""tli and slem without ggml: what the draft model reads, and what becomes of its guesses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from lucebox.core import Distribution, DrawMode, Float32Array
from lucebox.drafters.base import DraftRequest
from lucebox.drafters.slem import SlemDrafter
from lucebox.drafters.tli import TliDrafter
from lucebox.errors import VocabularyMismatchError
from lucebox.sampling.draw import sample
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import Purpose, RoundRandom
from lucebox.sampling.sampler import Sampler
from lucebox.text.tokenizer import Tokenizer
from tests.support.drafting import drafter_context
from tests.support.fake_runtime import FakeRuntime, random_model, scripted
from tests.support.foreign_vocabulary import END, foreign_metadata
from tests.support.vocabularies import byte_level_metadata

TARGET = Tokenizer.from_metadata(byte_level_metadata())
N_TARGET = TARGET.vocabulary.n_tokens + 3  # rows that pad the table
LETTERS = [*"abdefghilnortĠð"]
DRAFT_TOKENS = [END, "Ġhe", "he", "hel", "<|im_end|>", "lo", "hell", *LETTERS, "Ł", "¤", "ĸ", "o!"]
DRAFT_TOKENS.insert(7, "!")
MERGES = ["h e", "Ġ he", "l o", "he l", "hel l", "o !"]
DRAFT = Tokenizer.from_metadata(
    {**byte_level_metadata("smollm"), **foreign_metadata(DRAFT_TOKENS, MERGES, end="<|im_end|>")}
)
N_DRAFT = len(DRAFT_TOKENS)
TOKENIZERS = (TARGET, DRAFT)


def of_target(text: str) -> list[int]:
    return TARGET.encode(text, parse_special=True)


def of_draft(*tokens: str) -> list[int]:
    return [DRAFT_TOKENS.index(token) for token in tokens]


def runtime(logits_of: Callable[[tuple[int, ...]], Float32Array], n_ctx: int = 64) -> FakeRuntime:
    return FakeRuntime(N_DRAFT, logits_of, n_ctx=n_ctx, n_sequences=2)


def saying(script: Sequence[str], n_prompt: int) -> FakeRuntime:
    """A draft model that says `script` behind a prompt of `n_prompt` tokens of its own."""
    return runtime(scripted(N_DRAFT, of_draft(*script), n_prompt))


def ask(prefix: Sequence[int], n_max: int = 4, **changed: Any) -> DraftRequest:
    values: dict[str, Any] = {
        "sequence": 0,
        "prefix": list(prefix),
        "n_max": n_max,
        "draw_mode": DrawMode.SAMPLE,
        "sampler": Sampler(changed.pop("params", SamplingParams()), N_TARGET, prefix),
        "random": RoundRandom(5, len(prefix)),
        "keep_drafting": lambda law, depth: True,
        "stop_tokens": frozenset(),
    }
    return DraftRequest(**{**values, **changed})


def test_tli_draws_from_the_chain_over_common_tokens() -> None:
    model = random_model(N_DRAFT, 1)
    drafter = TliDrafter(drafter_context(N_TARGET, runtime(model), tokenizers=TOKENIZERS))
    params = SamplingParams(temperature=0.8, top_k=6, frequency_penalty=1.5)
    prefix = of_target("hello the end")
    (draft,) = drafter.propose([ask(prefix, 4, params=params)])
    assert len(draft) == 4
    read = DRAFT.encode("hello the end", parse_special=False)
    sampler, random = Sampler(params, N_TARGET, prefix), RoundRandom(5, len(prefix))
    for i, token in enumerate(draft.tokens.tolist()):
        logits = np.full(N_TARGET, -np.inf, np.float32)
        for ours, value in enumerate(model(tuple(read))):
            theirs = of_target(DRAFT.vocabulary.bytes_of(ours).decode("utf-8", "replace"))
            if len(theirs) == 1 and TARGET.vocabulary.bytes_of(theirs[0]) == DRAFT.vocabulary.bytes_of(ours):
                logits[theirs[0]] = value
            elif (byte := DRAFT.vocabulary.bytes_of(ours)) and len(byte) == 1:
                logits[next(t for t in range(256) if TARGET.vocabulary.bytes_of(t) == byte)] = value
        law = sampler.law(logits, draft.tokens[:i].tolist())
        q = draft.q[i]
        assert q is not None
        np.testing.assert_array_equal(q.dense(), law.dense())
        assert token == sample(law, random.uniform(i, Purpose.DRAFT))
        (ours,) = [
            t for t in range(N_DRAFT) if DRAFT.vocabulary.bytes_of(t) == TARGET.vocabulary.bytes_of(token)
        ]
        read.append(ours)


@pytest.mark.parametrize("kind", [TliDrafter, SlemDrafter])
def test_only_what_changed_of_the_text_is_read_again(kind: type[TliDrafter | SlemDrafter]) -> None:
    fake = runtime(random_model(N_DRAFT, 1))
    drafter = kind(drafter_context(N_TARGET, fake, tokenizers=TOKENIZERS))
    prefix = of_target("the hel")
    drafter.propose([ask(prefix, 1)])
    n_read = len(DRAFT.encode("the hel", parse_special=False))
    assert fake.n_rows_fed == [n_read]
    assert drafter.n_behind(0, len(prefix)) == 0
    assert drafter.n_behind(0, len(prefix) + 3) == 2
    fake.n_rows_fed.clear()
    drafter.propose([ask([*prefix, *of_target("l")], 1)])
    assert fake.n_rows_fed == [1]  # "hell" in place of "hel"
    fake.n_rows_fed.clear()
    drafter.fork(0, 1)
    drafter.propose([ask([*prefix, *of_target("le")], 1, sequence=1)])
    assert fake.n_rows_fed == [1]
    drafter.release(0)
    drafter.release(1)
    assert drafter.n_behind(0, len(prefix)) == len(prefix) - 1
    fake.cache.check_integrity()


def test_tli_ends_where_the_target_would() -> None:
    drafter = TliDrafter(
        drafter_context(N_TARGET, saying(["hel", "<|im_end|>", "a"], 1), tokenizers=TOKENIZERS)
    )
    end = TARGET.vocabulary.eos_id
    assert end is not None
    request = ask(of_target("a"), 8, draw_mode=DrawMode.ARGMAX, stop_tokens=frozenset({end}))
    (draft,) = drafter.propose([request])
    assert draft.tokens[-1] == end  # "hel" is no token of the target's, so that something else came first
    assert len(draft) > 1


@pytest.mark.parametrize(
    ("script", "n_max", "expected"),
    [
        (["hel", "lo", "o!", "a"], 4, "helloo!a"),
        (["hel", "l", "o", "Ġhe"], 4, "hello he"),
        (["hel", "l", "o", "Ġhe"], 2, "hell"),
        (["h", "ð", "Ł", "¤"], 4, "h"),
        (["ð", "Ł", "¤", "ĸ", "a"], 5, "🤖a"),
        (["a", "<|im_end|>", "b"], 4, "a<|im_end|>"),
        (["a", END, "b"], 4, "a<|endoftext|>"),
        (["ð", "Ł"], 2, ""),
    ],
)
def test_slem_proposes_the_text_in_the_targets_tokens(script: list[str], n_max: int, expected: str) -> None:
    drafter = SlemDrafter(drafter_context(N_TARGET, saying(script, 1), tokenizers=TOKENIZERS))
    (draft,) = drafter.propose([ask(of_target("a"), n_max, shape=(2, 2))])
    assert draft.tokens.tolist() == of_target(expected)[:n_max]
    assert list(draft.q) == [None] * len(draft)
    assert draft.is_chain


def test_slem_stops_behind_a_stop_token() -> None:
    drafter = SlemDrafter(drafter_context(N_TARGET, saying(["a", "b", "d"], 1), tokenizers=TOKENIZERS))
    stop = of_target("b")[0]
    (draft,) = drafter.propose([ask(of_target("a"), 6, stop_tokens=frozenset({stop}))])
    assert draft.tokens.tolist() == of_target("ab")


def test_slem_asks_the_controller_before_each_token() -> None:
    laws: list[Distribution] = []

    def keep(law: Distribution, depth: int) -> bool:
        assert depth == len(laws)
        laws.append(law)
        return depth < 2

    drafter = SlemDrafter(drafter_context(N_TARGET, saying(["a", "b", "d"], 1), tokenizers=TOKENIZERS))
    (draft,) = drafter.propose([ask(of_target("a"), 6, keep_drafting=keep)])
    assert draft.tokens.tolist() == of_target("ab")
    assert all(law.probs.max() > 0.99 for law in laws)


@pytest.mark.parametrize("kind", [TliDrafter, SlemDrafter])
def test_a_text_longer_than_the_draft_context_gets_no_draft(kind: type[TliDrafter | SlemDrafter]) -> None:
    fake = runtime(random_model(N_DRAFT, 1), n_ctx=8)
    drafter = kind(drafter_context(N_TARGET, fake, tokenizers=TOKENIZERS))
    (draft,) = drafter.propose([ask(of_target("the end of the tale"), 4)])
    assert len(draft) == 0


def test_vocabularies_without_common_text_are_refused_by_tli() -> None:
    metadata = foreign_metadata(["xx", "yy", "xxyy", "<|e|>"], ["xx yy"], end="<|e|>")
    strange = Tokenizer.from_metadata({**byte_level_metadata("smollm"), **metadata})
    with pytest.raises(VocabularyMismatchError, match="no text in common"):
        TliDrafter(drafter_context(N_TARGET, runtime(random_model(N_DRAFT, 1)), tokenizers=(TARGET, strange)))
