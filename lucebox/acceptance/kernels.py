"""The compiled kernels of this package, or their NumPy twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucebox.acceptance import reference, tree_reference

if TYPE_CHECKING:  # the twins have the kernels' signatures
    divergence = verify = reference
    tree = tree_reference
else:
    from lucebox._kernels import compiled_or

    divergence = compiled_or("divergence", reference)
    tree = compiled_or("tree", tree_reference)
    verify = compiled_or("verify", reference)

__all__ = ["divergence", "tree", "verify"]
