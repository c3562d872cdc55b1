"""The compiled kernels of this package, or their NumPy twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucebox.sampling import reference

if TYPE_CHECKING:  # the twins have the kernels' signatures
    entropy = gumbel = rng = sampling = reference
else:
    from lucebox._kernels import compiled_or

    entropy = compiled_or("entropy", reference)
    gumbel = compiled_or("gumbel", reference)
    rng = compiled_or("rng", reference)
    sampling = compiled_or("sampling", reference)

__all__ = ["entropy", "gumbel", "rng", "sampling"]
