"""Who may use a server, as its settings say it: files of API keys, and origins of web pages."""

from __future__ import annotations

import logging
import os
import re
import stat
from pathlib import Path

from lucebox.errors import ConfigError

ANY_ORIGIN = "*"
MAX_KEY_FILE_BYTES = 1 << 20

_ORIGIN = re.compile(r"(https?)://([\w.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?/?", re.ASCII | re.IGNORECASE)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_USUAL_PORTS = {"http": ":80", "https": ":443"}

logger = logging.getLogger(__name__)


def read_key_file(path: str) -> tuple[str, ...]:
    """The keys of a file that has one a line; `#` begins a comment.

    Raises ConfigError when it cannot be read, has no key, or others could add one. Warns when others can read
    it. Never shows what it holds.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read --api-key-file {path}: {error.strerror}") from None
    if mode & stat.S_IWOTH:
        raise ConfigError(f"anybody can add keys to --api-key-file {path}", remedy=f"chmod 600 {path}")
    if mode & stat.S_IROTH:
        logger.warning("anybody on this machine can read --api-key-file %s (remedy: chmod 600)", path)
    if len(text) > MAX_KEY_FILE_BYTES:
        raise ConfigError(f"--api-key-file {path} is too long for a file of keys")
    return _keys(path, text)


def parse_origin(text: str) -> str:
    """An origin as browsers spell it: in lower case, without a usual port. Raises ConfigError."""
    if text == ANY_ORIGIN:
        return text
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise ConfigError(f"--cors-origin must be * or an origin as https://chat.example:8443, not {text!r}")
    scheme, host, port = match[1].lower(), match[2].lower(), match[3] or ""
    return f"{scheme}://{host}{'' if port == _USUAL_PORTS[scheme] else port}"


def _keys(path: str, text: bytes) -> tuple[str, ...]:
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"--api-key-file {path} is no UTF-8 text") from None
    keys = tuple(key for line in lines if (key := _COMMENT.sub("", line).strip()))
    if not keys:
        raise ConfigError(f"--api-key-file {path} has no key", remedy="write one a line")
    if bad := next((n for n, key in enumerate(keys, 1) if not key.isprintable() or " " in key), None):
        raise ConfigError(f"key {bad} of --api-key-file {path} has a space or a control character in it")
    return keys
