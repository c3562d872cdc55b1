"""The compiled kernel of this package, or its NumPy twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucebox.acceptance import reference

if TYPE_CHECKING:  # the twin has the kernel's signatures
    verify = reference
else:
    from lucebox._kernels import compiled_or

    verify = compiled_or("verify", reference)

__all__ = ["verify"]
