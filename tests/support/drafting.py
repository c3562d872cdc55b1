"""What drafters are made of in tests."""

from __future__ import annotations

from typing import NoReturn

from lucebox.drafters.base import DrafterContext
from tests.support.fake_runtime import FakeRuntime


def drafter_context(
    n_vocab: int, draft: FakeRuntime | None = None, *, n_ctx: int = 64, n_sequences: int = 2
) -> DrafterContext:
    """For a target of `n_vocab` ids, and maybe a draft model; there are no tokenizers."""
    return DrafterContext(
        n_vocab=n_vocab,
        n_ctx=n_ctx,
        n_sequences=n_sequences,
        end_tokens=frozenset(),
        draft_model=draft,  # type: ignore[arg-type]
        target_tokenizer=_no_tokenizer,
        draft_tokenizer=_no_tokenizer,
    )


def _no_tokenizer() -> NoReturn:
    raise AssertionError("this drafter asks for a tokenizer")
