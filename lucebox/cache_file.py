"""What was measured before, kept in the cache directory."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

# What comes of a file that holds anything at all.
UNREADABLE = (OSError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError)


class CacheFile:
    """A file for each key, which says all that the value depends on. Written whole or not at all, so that
    several processes may start at once; one that cannot be understood counts as absent."""

    def __init__(self, folder: Path, name: str, key: Mapping[str, Any]) -> None:
        self._name = name
        text = json.dumps(key, sort_keys=True)
        self._key = json.loads(text)  # as it will be read: a tuple comes back as a list
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.path = folder / f"{digest[:32]}.json"

    def read(self, parse: Callable[[Any], T]) -> T | None:
        """The value as `parse` understands it, who raises an ordinary exception for one that it does not;
        None when there is none."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["key"] != self._key:
                return None
            return parse(content[self._name])
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            logger.warning("%s in %s cannot be read (%s); measuring them again", self._name, self.path, error)
            return None

    def write(self, value: Any) -> None:
        """Keeps `value`, where the folder can be written."""
        content = json.dumps({"key": self._key, self._name: value}, indent=1)
        temporary = self.path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(content + "\n", encoding="utf-8")
            os.replace(temporary, self.path)
        except OSError as error:
            logger.info("%s are not kept: %s", self._name, error)
