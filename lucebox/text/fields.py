"""Typed access to the `tokenizer.*` keys of a model file, with errors that name key and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucebox.errors import ModelFileError, UnsupportedModelError

PREFIX = "tokenizer.ggml."
CONVERT_AGAIN = "convert the model again with current tools, or use another file of it"


class TokenizerFields:
    """The keys below `tokenizer.ggml.` of any mapping: a GGUF reader's metadata, or a dict in a test."""

    def __init__(self, metadata: Mapping[str, Any], path: object) -> None:
        self._metadata = metadata
        self._path = path

    def has(self, name: str) -> bool:
        return PREFIX + name in self._metadata

    def string(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self.error(name, f"{value!r:.60} is not a string")
        return value

    def bool(self, name: str, *, default: bool) -> bool:
        if not self.has(name):
            return default
        value = self._get(name)
        if not isinstance(value, bool | np.bool_):
            raise self.error(name, f"{value!r:.60} is not true or false")
        return bool(value)

    def token_id(self, name: str, n_tokens: int) -> int | None:
        """The token a key names; None when the file has no such key."""
        if not self.has(name):
            return None
        value = self._get(name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise self.error(name, f"{value!r:.60} is not a token id")
        if not 0 <= value < n_tokens:
            raise self.error(name, f"{value:,} is not one of the {n_tokens:,} token ids")
        return int(value)

    def strings(self, name: str) -> list[str]:
        value = self._get(name)
        if isinstance(value, np.ndarray) and not len(value):
            return []  # an empty array may be stored with any element type
        if not isinstance(value, list | tuple) or not set(map(type, value)) <= {str}:
            raise self.error(name, "is not an array of strings")
        return list(value)

    def numbers(self, name: str, n_expected: int) -> NDArray[Any]:
        """A one-dimensional array of `n_expected` finite numbers, as stored."""
        value = np.asarray(self._get(name))
        if value.ndim != 1 or value.dtype.kind not in "iuf":
            raise self.error(name, "is not an array of numbers")
        if len(value) != n_expected:
            raise self.error(name, f"has {len(value):,} entries for {n_expected:,} tokens")
        if not np.isfinite(value).all():
            raise self.error(name, "holds a value that is not finite")
        return value

    def error(self, name: str, problem: str) -> ModelFileError:
        return ModelFileError(self._path, PREFIX + name, problem, remedy=CONVERT_AGAIN)

    def unsupported(self, name: str, problem: str, *, remedy: str) -> UnsupportedModelError:
        return UnsupportedModelError(self._path, PREFIX + name, problem, remedy=remedy)

    def _get(self, name: str) -> Any:
        if not self.has(name):
            raise self.error(name, "the key is missing")
        return self._metadata[PREFIX + name]
