"""The compiled kernel of this package, or its NumPy twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucebox.draft_length import reference

if TYPE_CHECKING:  # the twin has the kernel's signatures
    entropy = reference
else:
    from lucebox._kernels import compiled_or

    entropy = compiled_or("entropy", reference)

__all__ = ["entropy"]
