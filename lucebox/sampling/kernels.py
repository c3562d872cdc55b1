"""The compiled kernels of this package, or their NumPy twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucebox.sampling import reference

if TYPE_CHECKING:  # the twins have the kernels' signatures
    entropy = filters = gumbel = mask = rng = sampling = reference
else:
    from lucebox._kernels import compiled_or

    entropy = compiled_or("entropy", reference)
    filters = compiled_or("filters", reference)
    gumbel = compiled_or("gumbel", reference)
    mask = compiled_or("mask", reference)
    rng = compiled_or("rng", reference)
    sampling = compiled_or("sampling", reference)

__all__ = ["entropy", "filters", "gumbel", "mask", "rng", "sampling"]
