"""The compiled kernel of this package, or its twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucebox.drafters import reference

if TYPE_CHECKING:  # the twin has the kernel's signatures
    suffix = reference
else:
    from lucebox._kernels import compiled_or

    suffix = compiled_or("suffix", reference)

__all__ = ["suffix"]
