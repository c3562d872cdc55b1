"""Which matrices change their type while a model is loaded, and to which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type

from lucebox.config import AUTO, KEEP
from lucebox.errors import ConfigError
from lucebox.gguf.specs import TensorSpec, Use
from lucebox.gguf.tensors import TensorInfo
from lucebox.plugins import did_you_mean

# Those that ggml makes of any numbers. Smaller ones search a grid, and abort on what is not on it.
TYPES = (
    Type.F16,
    Type.BF16,
    Type.Q8_0,
    Type.Q6_K,
    Type.Q5_K,
    Type.Q5_1,
    Type.Q5_0,
    Type.Q4_K,
    Type.Q4_1,
    Type.Q4_0,
    Type.IQ4_NL,
    Type.IQ4_XS,
    Type.MXFP4,
    Type.Q3_K,
    Type.Q2_K,
)
_NEED_IMPORTANCE = ("iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s")
_FASTEST = Type.Q4_0
_CHANGED = (Use.MATRIX, Use.EXPERTS)


@dataclass(frozen=True, slots=True)
class Requantise:
    """Matrices become `type` while loading; vectors, looked-up tables and routers stay as they are.

    `only_if_faster`: only where the device has a layout for faster products of `type`, and the matrix takes
    fewer bytes of it: a draft's time is that of reading its weights.
    """

    type: Type
    only_if_faster: bool = False

    def fits(self, info: TensorInfo) -> bool:
        """Whether the rows of a matrix are whole blocks of `type`."""
        return info.shape[0] % GGML_QUANT_SIZES[self.type][0] == 0

    def check(self, path: object, matched: Sequence[tuple[TensorSpec, TensorInfo]]) -> None:
        """Raises ConfigError where a type was asked for that fits no matrix at all."""
        matrices = [info for spec, info in matched if spec.use in _CHANGED]
        if not self.only_if_faster and not any(map(self.fits, matrices)):
            block, name = GGML_QUANT_SIZES[self.type][0], self.type.name.lower()
            raise ConfigError(
                f"{path} cannot be re-quantised to {name}: no matrix has rows of whole blocks of {block}",
                remedy="use q8_0, q4_0 or another type of blocks of 32" if block > 32 else "use f16",
            )

    def converted(self, spec: TensorSpec, info: TensorInfo) -> TensorInfo | None:
        """`info` as it will lie on the device, or None where it stays."""
        if spec.use not in _CHANGED or info.type == self.type or not self.fits(info):
            return None
        block_elements, block_bytes = GGML_QUANT_SIZES[self.type]
        n_bytes = info.n_elements // block_elements * block_bytes
        if self.only_if_faster and n_bytes >= info.n_bytes:
            return None
        return replace(info, type=self.type, n_bytes=n_bytes)


def parse_requantise(name: str) -> Requantise | None:
    """Of `keep` (None), `auto` or the name of a type, such as `q4_0`. Raises ConfigError."""
    if name == KEEP:
        return None
    if name == AUTO:
        return Requantise(_FASTEST, only_if_faster=True)
    return Requantise(parse_type(name))


def parse_type(name: str) -> Type:
    """One of TYPES by its name in any case. Raises ConfigError."""
    wanted = name.strip().lower()
    names = {kind.name.lower(): kind for kind in TYPES}
    if wanted in names:
        return names[wanted]
    if wanted in _NEED_IMPORTANCE:
        raise ConfigError(
            f"weights cannot be re-quantised to {wanted} while loading: that takes an importance matrix",
            remedy="use q4_0 or another of four bits and more",
        )
    raise ConfigError(
        f"{name!r} is no type that weights can be re-quantised to", remedy=did_you_mean(wanted, list(names))
    )
