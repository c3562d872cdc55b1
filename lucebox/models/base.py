"""The contract of an architecture: one file in this package, found by its name in GGUF metadata."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lucebox.gguf.fusion import Fusion
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.specs import TensorSpec
from lucebox.models.forward import Forward
from lucebox.models.hparams import Hparams, read_hparams


class Architecture(ABC):
    """What Lucebox knows of one value of `general.architecture`: the module's name, exported as `Plugin`."""

    @classmethod
    def hparams(cls, file: GgufFile) -> Hparams:
        """Read and checked from metadata; raises ModelFileError or UnsupportedModelError."""
        return read_hparams(file)

    @classmethod
    @abstractmethod
    def tensors(cls, hparams: Hparams) -> list[TensorSpec]:
        """Every tensor that `build` may use, with its shape."""

    @classmethod
    def fusions(cls, hparams: Hparams) -> list[Fusion]:
        """Matrices that `build` can also use as one, where a file stores them side by side."""
        return []

    @classmethod
    @abstractmethod
    def build(cls, forward: Forward, hparams: Hparams) -> None:
        """Adds the nodes of one forward to `forward`, ending in `forward.finish`."""
