"""Costs that were measured before, kept in the cache directory."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lucebox.config import ModelConfig
from lucebox.draft_length.costs import CostTable

logger = logging.getLogger(__name__)

FORMAT = 1
# What comes of a file that holds anything at all.
UNREADABLE = (OSError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError)


class CostFile:
    """A file for each combination of models, options, device and machine. Written whole or not at all, so
    that several engines may start at once; one that cannot be understood is measured anew."""

    def __init__(self, folder: Path, key: Mapping[str, Any]) -> None:
        self._key = {"format": FORMAT, **key}
        digest = hashlib.sha256(json.dumps(self._key, sort_keys=True).encode()).hexdigest()
        self.path = folder / f"{digest[:32]}.json"

    def read_into(self, table: CostTable) -> bool:
        """Whether there was something to read."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["key"] != self._key:
                return False
            table.restore(content["costs"])
        except FileNotFoundError:
            return False
        except UNREADABLE as error:
            logger.warning("costs in %s cannot be read (%s); measuring them again", self.path, error)
            return False
        return True

    def write(self, table: CostTable) -> None:
        """Keeps `table`, where the folder can be written."""
        content = json.dumps({"key": self._key, "costs": table.to_dict()}, indent=1)
        temporary = self.path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(content + "\n", encoding="utf-8")
            os.replace(temporary, self.path)
        except OSError as error:
            logger.info("costs are not kept: %s", error)


def model_key(config: ModelConfig, device: str) -> dict[str, Any]:
    """What the costs of a model depend on; `device` says more than its name does."""
    status = Path(config.path).stat()
    return {
        "n_bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "device": device,
        "n_threads": config.n_threads,
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
        "machine": platform.machine(),
        "node": platform.node(),
        "n_cores": os.cpu_count(),
    }
