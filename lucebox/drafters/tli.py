"""Drafts from a model of another vocabulary, on the tokens that both have (TLI, arXiv:2502.05202)."""

from __future__ import annotations

import numpy as np

from lucebox.core import Float32Array
from lucebox.drafters.base import DrafterContext
from lucebox.drafters.foreign import ForeignDrafter
from lucebox.errors import VocabularyMismatchError


class TliDrafter(ForeignDrafter):
    """Token-level intersection: the request's own sampler chain over the draft model's logits of those tokens
    that the target has, too. So q is the law that tokens were drawn from, over the target's ids."""

    def __init__(self, context: DrafterContext) -> None:
        super().__init__(context)
        self._draft_ids = np.flatnonzero(self.to_target >= 0)  # ascending
        self._target_ids = self.to_target[self._draft_ids]
        vocabulary = context.draft_tokenizer().vocabulary
        if all(map(vocabulary.is_special, self._draft_ids.tolist())):
            raise VocabularyMismatchError(
                "the tokens of the draft model and of the target have no text in common",
                remedy="use --drafter slem, or another draft model",
            )

    def _input(self, token: int) -> int:
        return int(self.to_draft[token])

    def _row(self, logits: Float32Array) -> Float32Array:
        n_known = int(np.searchsorted(self._draft_ids, len(logits)))  # fewer where the head was cut
        row = np.full(self.context.n_vocab, -np.inf, np.float32)
        row[self._target_ids[:n_known]] = logits[self._draft_ids[:n_known]]
        return row


Plugin = TliDrafter
