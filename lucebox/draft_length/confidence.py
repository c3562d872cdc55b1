"""How often guesses of some confidence are accepted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

N_BUCKETS = 12
BUCKETS_PER_E = 2.0  # even in log(1 - q): being wrong once in 10 or once in 100 makes the difference
DISCOUNT = 0.99  # of what is known of a bucket, per token that says more of it
PRIOR_WEIGHT = 3.0  # tokens that "as likely as the draft model thinks" counts for
LOWEST, HIGHEST = 0.02, 0.995


def bucket_of(q: float) -> int:
    """The bucket of `q`, the probability of the likeliest token in the draft's own law."""
    return min(N_BUCKETS - 1, int(BUCKETS_PER_E * -math.log(max(1e-9, 1.0 - q))))


def _centre(bucket: int) -> float:
    return min(HIGHEST, 1.0 - math.exp(-(bucket + 0.5) / BUCKETS_PER_E))


@dataclass(slots=True)
class Confidence:
    """The probability of being accepted, by bucket, over all sequences."""

    known: list[float] = field(default_factory=lambda: [_centre(b) for b in range(N_BUCKETS)])
    _n_accepted: list[float] = field(
        default_factory=lambda: [PRIOR_WEIGHT * _centre(b) for b in range(N_BUCKETS)]
    )
    _n_judged: list[float] = field(default_factory=lambda: [PRIOR_WEIGHT] * N_BUCKETS)

    def add(self, buckets: Sequence[int], n_accepted: int) -> None:
        """A draft whose tokens fell into `buckets`, the first `n_accepted` of which were accepted."""
        for i in range(min(n_accepted + 1, len(buckets))):
            b = buckets[i]
            self._n_accepted[b] = DISCOUNT * self._n_accepted[b] + (i < n_accepted)
            self._n_judged[b] = DISCOUNT * self._n_judged[b] + 1.0
            self.known[b] = min(HIGHEST, max(LOWEST, self._n_accepted[b] / self._n_judged[b]))
