"""Compiled from `kernels/*.pyx`. Each has a NumPy twin beside its user, oracle and fallback."""

from __future__ import annotations

import importlib
import logging
from types import ModuleType

logger = logging.getLogger(__name__)


def compiled_or(name: str, twin: ModuleType) -> ModuleType:
    """The compiled kernel `name`, or its NumPy twin where it was not built."""
    module = f"{__name__}.{name}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
    logger.warning(
        "kernel %s is not built: NumPy takes its place, many times slower; reinstall lucebox", name
    )
    return twin
