"""What drafters are made of in tests."""

from __future__ import annotations

from typing import NoReturn

from lucebox.drafters.base import DrafterContext
from lucebox.text.tokenizer import Tokenizer
from tests.support.fake_runtime import FakeRuntime


def drafter_context(
    n_vocab: int,
    draft: FakeRuntime | None = None,
    *,
    n_ctx: int = 64,
    n_sequences: int = 2,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
) -> DrafterContext:
    """For a target of `n_vocab` ids, and maybe a draft model; `tokenizers` are of target and draft model."""
    return DrafterContext(
        n_vocab=n_vocab,
        n_ctx=n_ctx,
        n_sequences=n_sequences,
        end_tokens=frozenset(),
        draft_model=draft,  # type: ignore[arg-type]
        target_tokenizer=_no_tokenizer if tokenizers is None else lambda: tokenizers[0],
        draft_tokenizer=_no_tokenizer if tokenizers is None else lambda: tokenizers[1],
    )


def _no_tokenizer() -> NoReturn:
    raise AssertionError("this drafter asks for a tokenizer")
