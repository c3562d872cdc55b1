"""The prefix cache between two engines: a file with tokens, keys and values, and a digest of it all."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from lucebox.config import ModelConfig
from lucebox.engine.prefix_cache import N_BLOCK, PrefixCache
from lucebox.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

MAGIC = b"lucebox prefixes 1\n"
MAX_HEADER_BYTES = 2**30
_LENGTH_BYTES = 8
_CHUNK_BYTES = 2**20


class UnusableFileError(Exception):
    """The file is damaged, or of another model or engine. The next one is written over it."""


class ForeignFileError(Exception):
    """The file does not begin as those of engines do. It is left alone."""


class Header(msgspec.Struct, frozen=True):
    """Blocks as PrefixCache.blocks gives them, each with the number of the one that it stands behind, or -1.

    `key` is all that their keys and values depend on, and `planes` are the (heads, bytes of a cell) of each
    array that follows.
    """

    key: dict[str, str | int]
    planes: list[tuple[int, int]]
    parents: list[int]
    tokens: list[tuple[int, ...]]


class PrefixCacheFile:
    """`path` as the prefix cache of one model. No file is an error: one that is damaged, or of another model,
    is not used and replaced in the end; one that does not begin as ours do is neither used nor replaced; and
    where none can be written, what is lost is computed again.

    The digest of the model is part of the key, and takes a second for each gigabyte or two.
    """

    def __init__(self, path: Path, model: ModelConfig, target: Runtime) -> None:
        self.path = path
        self._target = target
        with open(model.path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._key: dict[str, str | int] = {
            "model": digest,
            "kv_type": model.kv_type,
            "n_ctx": target.n_ctx,
            "n_block": N_BLOCK,
        }
        self._planes = [(plane.n_heads, plane.n_bytes) for plane in target.key_values.planes()]

    def read_into(self, prefixes: PrefixCache) -> None:
        """Fills the empty `prefixes` with as much as it may have."""
        try:
            with self.path.open("rb") as file:
                _check_beginning(file)
                self._check_digest(file)
                n_tokens = self._restore(file, self._header(file), prefixes)
            logger.info("the prefix cache begins with %d tokens of %s", n_tokens, self.path)
        except FileNotFoundError:
            logger.info("the prefix cache will be kept in %s, a new file", self.path)
        except UnusableFileError as error:
            logger.warning("the prefix cache in %s is not used, and will be replaced: %s", self.path, error)
        except (OSError, ForeignFileError) as error:
            logger.warning("the prefix cache in %s is not used: %s", self.path, error)

    def write(self, prefixes: PrefixCache) -> None:
        """Replaces the file by what `prefixes` has. Only its owner may read it: it holds what users wrote."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        try:
            if self.path.exists():
                with self.path.open("rb") as file:
                    _check_beginning(file)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                self._write(file, prefixes)
            os.replace(temporary, self.path)
        except (OSError, ForeignFileError) as error:
            logger.warning("the prefix cache cannot be kept in %s: %s", self.path, error)

    def _write(self, file: BinaryIO, prefixes: PrefixCache) -> None:
        blocks = list(prefixes.blocks())
        number = {block: i for i, block in enumerate(blocks)}
        header = Header(
            self._key,
            self._planes,
            [-1 if block.parent is None else number[block.parent] for block in blocks],
            [block.tokens for block in blocks],
        )
        digest = hashlib.blake2b()

        def put(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        head = msgspec.msgpack.encode(header)
        put(MAGIC + len(head).to_bytes(_LENGTH_BYTES, "little") + head)
        if blocks:
            cells = np.concatenate([block.cells for block in blocks])
            for plane in self._target.key_values.read(cells):
                put(plane.tobytes())
        file.write(digest.digest())

    def _check_digest(self, file: BinaryIO) -> None:
        """Reads the whole file, and goes back to its beginning."""
        digest = hashlib.blake2b()
        left = os.fstat(file.fileno()).st_size - digest.digest_size
        if left < len(MAGIC) + _LENGTH_BYTES:
            raise UnusableFileError("it is damaged: it is too short")
        while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
            digest.update(chunk)
            left -= len(chunk)
        if file.read() != digest.digest():
            raise UnusableFileError("it is damaged")
        file.seek(0)

    def _header(self, file: BinaryIO) -> Header:
        file.seek(len(MAGIC))
        n_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if n_bytes > MAX_HEADER_BYTES:
            raise UnusableFileError("it is damaged")
        try:
            header = msgspec.msgpack.decode(file.read(n_bytes), type=Header)
        except msgspec.MsgspecError as error:
            raise UnusableFileError(f"it is damaged: {error}") from None
        if (header.key, header.planes) != (self._key, self._planes):
            raise UnusableFileError("it is of another model, context size or number type")
        whole = all(len(tokens) == N_BLOCK for tokens in header.tokens)
        ordered = all(-1 <= parent < i for i, parent in enumerate(header.parents))
        distinct = len(set(zip(header.parents, header.tokens, strict=False))) == len(header.tokens)
        if not (whole and ordered and distinct) or len(header.parents) != len(header.tokens):
            raise UnusableFileError("its blocks make no sense")
        n_vocab = self._target.n_vocab
        if not all(0 <= token < n_vocab for tokens in header.tokens for token in tokens):
            raise UnusableFileError(f"it has tokens that the model, with {n_vocab}, has not")
        return header

    def _restore(self, file: BinaryIO, header: Header, prefixes: PrefixCache) -> int:
        cache = self._target.cache
        n_stored = N_BLOCK * len(header.tokens)
        n = min(len(header.tokens), prefixes.n_most // N_BLOCK, cache.n_free // N_BLOCK)
        if not n:
            return 0
        cells = cache.keep_free(n * N_BLOCK)
        try:
            self._target.key_values.write(cells, self._contents(file, n_stored, len(cells)))
        except BaseException:
            cache.leave(cells)
            raise
        prefixes.restore(header.parents[:n], header.tokens[:n], cells)
        return len(cells)

    def _contents(self, file: BinaryIO, n_stored: int, n_wanted: int) -> Iterator[NDArray[np.uint8]]:
        for n_heads, n_bytes in self._planes:
            data = file.read(n_heads * n_stored * n_bytes)
            if len(data) != n_heads * n_stored * n_bytes:
                raise UnusableFileError("it is too short")
            yield np.frombuffer(data, np.uint8).reshape(n_heads, n_stored, n_bytes)[:, :n_wanted]


def _check_beginning(file: BinaryIO) -> None:
    """Goes back to it. Raises ForeignFileError for what no engine wrote, such as a model by mistake."""
    if not MAGIC.startswith(file.read(len(MAGIC))):  # a shorter one was cut
        raise ForeignFileError("that is a file of another kind, and left alone")
    file.seek(0)
