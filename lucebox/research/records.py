"""What a trace holds: its header, its requests, its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from lucebox.core import Draft, Int32Array, Verdict
from lucebox.research.kept_law import KeptLaw, Truncation
from lucebox.sampling.params import SamplingParams


class TraceHeader(msgspec.Struct, frozen=True, kw_only=True, tag="header", forbid_unknown_fields=True):
    """How a trace was made. Models are named as their files name themselves; `draft` is None without one."""

    target: str
    draft: str | None
    n_vocab: int
    acceptance: str
    draft_length: str
    drafters: tuple[str, ...]
    params: SamplingParams
    truncation: Truncation


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True, tag="request", forbid_unknown_fields=True):
    """A request: `prompt` as token ids, and the seed of its random numbers."""

    id: str
    prompt: list[int]
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRound:
    """One judged round of one request, plain ones included.

    `tokens` and `parents` are those of lucebox.core.Draft. `p[r]` is the target's law behind row r (row 0:
    the last committed token), `q[i]` the law that token i was drawn from, None for a deterministic one.
    Without `has_q` the strategy that ran did not ask for laws of the draft, and None says nothing. `verdict`
    is what it decided. Times are the batch's, in milliseconds; `n_prefix` tokens stood before the round,
    `n_rows` rows were computed for it, `n_caught_up` by the drafter before its first guess.
    """

    request: str
    n_prefix: int
    drafter: str
    tokens: Int32Array
    parents: Int32Array
    p: Sequence[KeptLaw]
    q: Sequence[KeptLaw | None]
    has_q: bool
    verdict: Verdict
    draft_ms: float
    verify_ms: float
    n_rows: int
    n_caught_up: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_exact(self) -> bool:
        """Whether nothing was left out of any law."""
        return all(law is None or law.rest == 0.0 for law in (*self.p, *self.q))

    @property
    def is_chain(self) -> bool:
        return self.draft().is_chain

    def draft(self, n: int | None = None) -> Draft:
        """The draft, or the first `n` tokens of it; of truncated laws, the rest lies on one token."""
        q = [None if law is None else law.lumped() for law in self.q[:n]]
        return Draft(self.tokens[:n], self.parents[:n], q)
