"""Drafts text from a model of another vocabulary, in the target's tokens (SLEM, arXiv:2502.05202)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lucebox.core import Distribution, Draft, Float32Array
from lucebox.drafters.base import DrafterContext, DraftRequest
from lucebox.drafters.foreign import ForeignDrafter
from lucebox.drafters.model import PendingDraft
from lucebox.drafters.translation import BytesEncoder
from lucebox.sampling.kernels import sampling


class SlemDrafter(ForeignDrafter):
    """String-level exact match: the draft model's likeliest continuation, as the target would tokenise it.

    Tokens are proposed without a law: the draft model has none over the target's. Chains only.
    """

    can_run_ahead = False  # which text a draft would become is known at its end

    def __init__(self, context: DrafterContext) -> None:
        super().__init__(context)
        self._vocabulary = context.draft_tokenizer().vocabulary
        self._encoder = BytesEncoder(context.target_tokenizer())

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        chains = [replace(request, shape=()) if request.shape else request for request in requests]
        drafts = super().propose(chains)
        return [self._translated(*pair) for pair in zip(drafts, requests, strict=True)]

    def _row(self, logits: Float32Array) -> Float32Array:
        return logits

    def _draw(self, d: PendingDraft, logits: Float32Array) -> None:
        """Takes the likeliest of the draft model's own ids; a control token ends the draft."""
        law = Distribution(len(logits), sampling.softmax(logits, 1.0))
        if not d.request.keep_drafting(law, d.request.n_before + len(d.tokens)):
            return
        token = law.argmax()
        d.tokens.append(token)
        d.q.append(None)
        if self._is_text(token):
            d.pending.append(token)

    def _translated(self, draft: Draft, request: DraftRequest) -> Draft:
        """A draft of the draft model's ids in the target's."""
        ids = draft.tokens.tolist()
        data = b"".join(self._vocabulary.bytes_of(token) for token in ids if self._is_text(token))
        tokens = self._encoder.encode(whole_characters(data))
        if ids and not self._is_text(ids[-1]) and self.to_target[ids[-1]] >= 0:
            tokens.append(int(self.to_target[ids[-1]]))
        return request.deterministic(tokens)

    def _is_text(self, token: int) -> bool:
        vocabulary = self._vocabulary
        return token < vocabulary.n_tokens and not vocabulary.is_special(token)


def whole_characters(data: bytes) -> bytes:
    """`data` without the beginning of a character at its end."""
    for n in range(1, min(3, len(data)) + 1):
        byte = data[-n]
        if byte >= 0xC0:  # the first of 2, 3 or 4 bytes
            n_bytes = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return data[:-n] if n < n_bytes else data
        if byte < 0x80:
            return data
    return data


Plugin = SlemDrafter
