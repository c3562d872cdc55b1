"""Costs that were measured before, kept in the cache directory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lucebox.cache_file import CacheFile
from lucebox.config import ModelConfig
from lucebox.draft_length.costs import CostTable
from lucebox.ggml.library import library_identity

FORMAT = 1


class CostFile:
    """A file for each combination of models, options, devices, libraries and machine."""

    def __init__(self, folder: Path, key: Mapping[str, Any]) -> None:
        self._file = CacheFile(folder, "costs", {"format": FORMAT, **key})
        self.path = self._file.path

    def read_into(self, table: CostTable) -> bool:
        """Whether there was something to read."""

        def restore(costs: Any) -> bool:
            table.restore(costs)
            return True

        return self._file.read(restore) is not None

    def write(self, table: CostTable) -> None:
        """Keeps `table`, where the folder can be written."""
        self._file.write(table.to_dict())


def model_key(config: ModelConfig, hardware: str) -> dict[str, Any]:
    """What the costs of a model depend on; `hardware` is its layout's."""
    status = Path(config.path).stat()
    return {
        "n_bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "hardware": hardware,
        "n_threads": config.n_threads,
        "cores": config.cores,
        "kv_type": config.kv_type,
        "quantise": config.quantise,
        "n_head_rows": config.n_head_rows,
        "cpu_kernels": config.cpu_kernels,
    }


def machine_key() -> dict[str, Any]:
    """What costs depend on besides the models."""
    try:
        version = importlib.metadata.version("lucebox")
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        version = ""
    return {
        "version": version,
        "ggml": library_identity(),
        "machine": platform.machine(),
        "node": platform.node(),
        "n_cores": os.cpu_count(),
    }
