"""What drafters have in common whose model has another vocabulary than the target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from lucebox.drafters.base import DrafterContext, DraftRequest
from lucebox.drafters.model import ModelDrafter
from lucebox.drafters.translation import Retokeniser, common_ids, inverse


class ForeignDrafter(ModelDrafter):
    """A draft model that reads the text in its own tokens, tokenised anew behind each round.

    `to_target` is int32[n] of the draft model's ids, `to_draft` int32[n] of the target's: the id that means
    the same, or -1.
    """

    any_vocabulary: ClassVar[bool] = True

    def __init__(self, context: DrafterContext) -> None:
        super().__init__(context)
        target, tokenizer = context.target_tokenizer().vocabulary, context.draft_tokenizer()
        self.to_target = common_ids(tokenizer.vocabulary, target, self.runtime.n_vocab, context.n_vocab)
        self.to_draft = inverse(self.to_target, context.n_vocab)
        self._texts = Retokeniser(target, tokenizer, self.to_draft)

    def n_behind(self, sequence: int, n_prefix: int) -> int:
        return max(0, n_prefix - 1 - self._texts.n_tokens(sequence))

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self._texts.fork(source, target)

    def start(self, sequence: int, prefix: Sequence[int]) -> None:
        """Nothing: the text has no ids yet, and what is cached is found by them in the first round."""

    def retire(self, sequence: int) -> None:
        self.release(sequence)

    def release(self, sequence: int) -> None:
        super().release(sequence)
        self._texts.release(sequence)

    def _inputs(self, request: DraftRequest) -> Sequence[int]:
        return self._texts.ids(request.sequence, request.prefix)
