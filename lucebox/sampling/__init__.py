"""From logits to laws and tokens: the request's sampler chain and the counter-based random numbers."""

from lucebox.sampling.params import SamplingParams, SpeculativeParams

__all__ = ["SamplingParams", "SpeculativeParams"]
