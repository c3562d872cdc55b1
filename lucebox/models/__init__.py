"""Architectures, one file each, found by the value of `general.architecture`."""

from __future__ import annotations

from lucebox.errors import UnsupportedModelError
from lucebox.gguf.reader import GgufFile
from lucebox.models.base import Architecture
from lucebox.models.hparams import Hparams
from lucebox.plugins import Registry

__all__ = ["Architecture", "Hparams", "for_file", "get", "names"]

_registry: Registry[Architecture] = Registry(
    "lucebox.models", None, helpers=("attention", "base", "blocks", "experts", "forward", "hparams")
)


def names() -> list[str]:
    """Every architecture that can be run."""
    return _registry.names()


def get(name: str) -> type[Architecture]:
    """The architecture `name`; ConfigError when there is none."""
    return _registry.get(name)


def for_file(file: GgufFile) -> type[Architecture]:
    """The architecture of a model file; UnsupportedModelError when it is none of ours."""
    name = file.architecture
    if name not in names():
        raise UnsupportedModelError(
            file.path,
            "general.architecture",
            f"{name!r} is not implemented",
            remedy=f"use a model of one of these: {', '.join(names())}",
        )
    return get(name)
