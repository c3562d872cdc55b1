"""The file of a trace: a magic with a version, then frames.

A frame is (compressed bytes, bytes) as two little-endian uint32, then that many bytes of zlib over one
msgpack record: a header, then requests and rounds as they happened, then an end that counts them. Numbers in
arrays are little-endian int32 and float32.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec
import numpy as np

from lucebox.core import Distribution, Int32Array, Verdict
from lucebox.errors import TraceError
from lucebox.research.kept_law import KeptLaw
from lucebox.research.records import RecordedRequest, RecordedRound, TraceHeader

MAGIC = b"LBTRACE"
VERSION = 1
_FRAME = struct.Struct("<II")
_MAX_FRAME_BYTES = 2**30  # a round of 500 dense rows of half a million tokens
_MAX_ZLIB_RATIO = 1100  # zlib's own limit is 1032
_LEVEL = 1
_MAX_MASS_ERROR = 1e-3  # of the sum of a law of float32 probabilities


class _Law(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    ids: bytes | None
    probs: bytes
    rest: float


class _Round(msgspec.Struct, frozen=True, kw_only=True, tag="round", forbid_unknown_fields=True):
    request: str
    n_prefix: int
    drafter: str
    tokens: bytes
    parents: bytes
    p: list[_Law]
    q: list[_Law | None]
    has_q: bool
    path: tuple[int, ...]
    token: int
    row: int
    draft_ms: float
    verify_ms: float
    n_rows: int
    n_caught_up: int


class _End(msgspec.Struct, frozen=True, kw_only=True, tag="end", forbid_unknown_fields=True):
    n_requests: int
    n_rounds: int


_Record = TraceHeader | RecordedRequest | _Round | _End


class TraceWriter:
    """Writes a trace as it happens; the file appears under its name only when it is complete.

    Raises OSError.
    """

    def __init__(self, path: str | Path, header: TraceHeader) -> None:
        self._path = Path(path)
        self._partial = self._path.with_name(self._path.name + ".part")
        self._file = open(self._partial, "wb")  # noqa: SIM115 (closed in __exit__)
        self._n_requests = self._n_rounds = 0
        self._file.write(MAGIC + bytes([VERSION]))
        self._write(header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._write(_End(n_requests=self._n_requests, n_rounds=self._n_rounds))
        finally:
            self._file.close()
            if kind is not None:
                self._partial.unlink()
        if kind is None:
            os.replace(self._partial, self._path)

    def write(self, record: RecordedRequest | RecordedRound) -> None:
        """Appends a request, or a round of a request written before."""
        if isinstance(record, RecordedRequest):
            self._n_requests += 1
            self._write(record)
        else:
            self._n_rounds += 1
            self._write(_packed(record))

    def _write(self, record: _Record) -> None:
        raw = msgspec.msgpack.encode(record)
        assert len(raw) <= _MAX_FRAME_BYTES
        compressed = zlib.compress(raw, _LEVEL)
        self._file.write(_FRAME.pack(len(compressed), len(raw)) + compressed)


def read_records(path: str | Path) -> Iterator[TraceHeader | RecordedRequest | RecordedRound]:
    """The records of a complete trace, in order, the header first. Raises TraceError and OSError."""
    with open(path, "rb") as file:
        magic = file.read(len(MAGIC) + 1)
        if magic[:-1] != MAGIC:
            raise TraceError(path, "this is not a trace")
        if magic[-1] != VERSION:
            raise TraceError(
                path, f"version {magic[-1]} of the format", remedy=f"this Lucebox reads version {VERSION}"
            )
        try:
            yield from _checked(_frames(file))
        except _DamagedError as error:
            raise TraceError(path, str(error), remedy="record it again") from error


class _DamagedError(Exception):
    """What is wrong with the file."""


def _frames(file: BinaryIO) -> Iterator[_Record]:
    decoder = msgspec.msgpack.Decoder(_Record)
    while sizes := file.read(_FRAME.size):
        if len(sizes) < _FRAME.size:
            raise _DamagedError("it ends within a frame")
        n_compressed, n_raw = _FRAME.unpack(sizes)
        if n_raw > min(_MAX_FRAME_BYTES, _MAX_ZLIB_RATIO * n_compressed) or n_compressed > _MAX_FRAME_BYTES:
            raise _DamagedError(f"a frame of {n_compressed} bytes claims to hold {n_raw}")
        compressed = file.read(n_compressed)
        if len(compressed) < n_compressed:
            raise _DamagedError("it ends within a frame")
        inflater = zlib.decompressobj()
        try:
            raw = inflater.decompress(compressed, n_raw + 1)
            if len(raw) != n_raw or not inflater.eof or inflater.unused_data:
                raise _DamagedError("a frame is not of the size it claims")
            record = decoder.decode(raw)
        except (zlib.error, msgspec.DecodeError) as error:
            raise _DamagedError(f"a frame cannot be read: {error}") from error
        yield record


def _checked(records: Iterator[_Record]) -> Iterator[TraceHeader | RecordedRequest | RecordedRound]:
    """The records but the end, each of them possible where it stands."""
    header = next(records, None)
    if not isinstance(header, TraceHeader) or not 0 < header.n_vocab <= 2**31 - 1:
        raise _DamagedError("it does not begin with a header")
    yield header
    requests: set[str] = set()
    n_rounds = 0
    for record in records:
        match record:
            case RecordedRequest():
                if record.id in requests:
                    raise _DamagedError(f"request {record.id!r} begins twice")
                requests.add(record.id)
                yield record
            case _Round():
                if record.request not in requests:
                    raise _DamagedError(f"a round belongs to no request: {record.request!r}")
                n_rounds += 1
                yield _unpacked(record, header.n_vocab)
            case _End():
                if (record.n_requests, record.n_rounds) != (len(requests), n_rounds):
                    raise _DamagedError("records are missing")
                if next(records, None) is not None:
                    raise _DamagedError("something follows its end")
                return
            case TraceHeader():
                raise _DamagedError("it has two headers")
    raise _DamagedError("it has no end: the recording was cut off")


def _packed(r: RecordedRound) -> _Round:
    return _Round(
        request=r.request,
        n_prefix=r.n_prefix,
        drafter=r.drafter,
        tokens=r.tokens.astype("<i4").tobytes(),
        parents=r.parents.astype("<i4").tobytes(),
        p=[_packed_law(law) for law in r.p],
        q=[None if law is None else _packed_law(law) for law in r.q],
        has_q=r.has_q,
        path=r.verdict.path,
        token=r.verdict.token,
        row=r.verdict.row,
        draft_ms=r.draft_ms,
        verify_ms=r.verify_ms,
        n_rows=r.n_rows,
        n_caught_up=r.n_caught_up,
    )


def _packed_law(law: KeptLaw) -> _Law:
    ids = law.known.ids
    packed_ids = None if ids is None else ids.astype("<i4").tobytes()
    return _Law(packed_ids, law.known.probs.astype("<f4").tobytes(), law.rest)


def _unpacked(r: _Round, n_vocab: int) -> RecordedRound:
    tokens = _array(r.tokens, "<i4").astype(np.int32)
    parents = _array(r.parents, "<i4").astype(np.int32)
    n = len(tokens)
    p = [_unpacked_law(law, n_vocab) for law in r.p]
    q = [None if law is None else _unpacked_law(law, n_vocab) for law in r.q]
    is_possible = (
        len(parents) == len(q) == len(p) - 1 == n
        and ((tokens >= 0) & (tokens < n_vocab)).all()
        and ((parents >= 0) & (parents <= np.arange(n))).all()
        and _is_path(r.path, r.row, parents)
        and 0 <= r.token < n_vocab
        and 0 < r.n_prefix < 2**31
        and all(p[int(parents[i])].holds(int(tokens[i])) for i in range(n))
        and all(law is None or law.holds(int(token)) for law, token in zip(q, tokens, strict=True))
        and all(law is None or _keep_the_same(law, p[int(parents[i])]) for i, law in enumerate(q))
    )
    if not is_possible:
        raise _DamagedError(f"a round of {n} tokens contradicts itself")
    return RecordedRound(
        request=r.request,
        n_prefix=r.n_prefix,
        drafter=r.drafter,
        tokens=tokens,
        parents=parents,
        p=p,
        q=q,
        has_q=r.has_q,
        verdict=Verdict(r.path, r.token, r.row),
        draft_ms=r.draft_ms,
        verify_ms=r.verify_ms,
        n_rows=r.n_rows,
        n_caught_up=r.n_caught_up,
    )


def _is_path(path: tuple[int, ...], row: int, parents: Int32Array) -> bool:
    """Whether the drafted tokens `path` lead from the root down to `row`."""
    here = 0
    for i in path:
        if not 0 <= i < len(parents) or parents[i] != here:
            return False
        here = i + 1
    return here == row


def _keep_the_same(q: KeptLaw, p: KeptLaw) -> bool:
    """Laws of one row of which something was left out know the same tokens."""
    if q.rest == p.rest == 0.0:
        return True
    return q.known.ids is not None and p.known.ids is not None and np.array_equal(q.known.ids, p.known.ids)


def _unpacked_law(law: _Law, n_vocab: int) -> KeptLaw:
    probs = _array(law.probs, "<f4").astype(np.float32)
    total = float(probs.sum(dtype=np.float64)) + law.rest
    is_law = bool((probs >= 0).all()) and law.rest >= 0 and abs(total - 1.0) <= _MAX_MASS_ERROR
    if law.ids is None:
        is_law = is_law and len(probs) == n_vocab and law.rest == 0.0
        ids = None
    else:
        ids = _array(law.ids, "<i4").astype(np.int32)
        is_law = is_law and len(ids) == len(probs) and bool((np.diff(ids) > 0).all())
        is_law = is_law and (len(ids) == 0 or 0 <= int(ids[0]) <= int(ids[-1]) < n_vocab)
        is_law = is_law and (law.rest == 0.0 or len(ids) < n_vocab)
    if not is_law:
        raise _DamagedError(f"a law of {len(probs)} tokens and {law.rest} besides is none")
    return KeptLaw(Distribution(n_vocab, probs, ids), law.rest)


def _array(data: bytes, kind: str) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    if len(data) % 4:
        raise _DamagedError("an array has a part of a number")
    return np.frombuffer(data, kind)
