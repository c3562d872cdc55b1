"""Where Lucebox keeps files of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """The cache directory: LUCEBOX_CACHE, else XDG_CACHE_HOME/lucebox, else ~/.cache/lucebox. Not created."""
    environ = os.environ if environ is None else environ
    if own := environ.get("LUCEBOX_CACHE"):
        return Path(own).expanduser().absolute()
    shared = Path(environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (shared if shared.is_absolute() else Path("~/.cache").expanduser()) / "lucebox"


def models_dir() -> Path:
    """Where models are that were fetched or made. Not created."""
    return cache_dir() / "models"
