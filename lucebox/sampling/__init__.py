"""From logits to laws and tokens: the request's sampler chain and the counter-based random numbers."""

from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams, SpeculativeParams

__all__ = ["Grammar", "SamplingParams", "SpeculativeParams"]
