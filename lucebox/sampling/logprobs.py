"""Log-probabilities for clients: of the model's own law, before the sampler chain."""

from __future__ import annotations

from lucebox.core import Float32Array
from lucebox.sampling.kernels import sampling


def logprobs(logits: Float32Array, token: int, n: int) -> tuple[float, list[tuple[int, float]]]:
    """Natural log-probability of `token` under the softmax of `logits` (float32[n_vocab], temperature 1),
    and the `n` likeliest (id, log-probability), likeliest first. Raises LogitsError."""
    log_total = sampling.log_sum_exp(logits)
    likeliest = [int(i) for i in sampling.top(logits, n)] if n > 0 else []
    return float(logits[token]) - log_total, [(i, float(logits[i]) - log_total) for i in likeliest]
