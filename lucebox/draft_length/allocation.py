"""How many tokens each sequence of a batch drafts, when their rows share one forward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def allocate(
    survival: Mapping[int, Sequence[float]],
    *,
    n_sequences: int,
    verify_ms: Callable[[int], float],
    forward_ms: float,
) -> dict[int, int]:
    """Draft lengths that make the batch's tokens cheapest.

    `survival[s][i]` is the probability that token i of sequence s stands, which falls with i: so the best `n`
    rows are the `n` likeliest. `verify_ms(n)` is a forward with `n` draft rows in all; each depth takes the
    drafters a forward of `forward_ms` together.
    """
    rows = sorted(((p, -i, s) for s, ps in survival.items() for i, p in enumerate(ps)), reverse=True)
    lengths = dict.fromkeys(survival, 0)
    best = dict(lengths)
    n_tokens = float(n_sequences)
    best_ms = verify_ms(0) / n_tokens
    depth = 0
    for n, (p, minus_i, sequence) in enumerate(rows, 1):
        lengths[sequence] += 1
        depth = max(depth, 1 - minus_i)
        n_tokens += p
        ms = (verify_ms(n) + depth * forward_ms) / n_tokens
        if ms < best_ms:
            best_ms, best = ms, dict(lengths)
    return best
