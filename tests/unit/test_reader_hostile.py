"""The GGUF reader on damaged and hostile files: a ModelFileError that names the field, and nothing worse."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lucebox.errors import ModelFileError, UnsupportedModelError
from lucebox.gguf import read
from lucebox.gguf.describe import describe
from tests.support import gguf_bytes as gb

HUGE = 2**64 - 1
Q4_0 = int(GGMLQuantizationType.Q4_0)


def _key(name: str, kind: int, rest: bytes) -> bytes:
    return gb.string(name) + struct.pack("<I", kind) + rest


HOSTILE = {
    "empty": (b"", "file", "empty"),
    "other magic": (b"PK\x03\x04" + bytes(60), "magic", "not b'GGUF'"),
    "half a magic": (b"GG", "magic", "ends at 2"),
    "version 1": (gb.gguf(version=1), "version", "1 is not among"),
    "version 4": (gb.gguf(version=4), "version", "4 is not among"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version", "big-endian"),
    "tensor count": (gb.gguf(n_tensors=HUGE), "tensor count", "absurd"),
    "tensor count past the end": (gb.gguf(n_tensors=100_000), "tensor count", "the file ends at"),
    "metadata count": (gb.gguf(n_key_values=HUGE), "metadata count", "absurd"),
    "metadata count past the end": (gb.gguf(n_key_values=60_000), "metadata count", "the file ends at"),
    "key past the end": (
        gb.gguf([struct.pack("<Q", 60_000) + bytes(8)]),
        "metadata key 0",
        "the file ends at",
    ),
    "key too long": (gb.gguf([struct.pack("<Q", HUGE) + bytes(8)]), "metadata key 0", "at most 65,535"),
    "key not UTF-8": (gb.gguf([gb.key_value(b"\xff", gb.U32, 1)]), "metadata key 0", "not UTF-8"),
    "key empty": (gb.gguf([gb.key_value("", gb.U32, 1)]), "metadata key 0", "not a name"),
    "key twice": (gb.gguf([gb.key_value("k", gb.U32, 1)] * 2), "k", "twice"),
    "value type": (gb.gguf([_key("k", 13, bytes(8))]), "k", "value type 13 is unknown"),
    "element type": (
        gb.gguf([_key("k", gb.ARRAY, struct.pack("<IQ", 99, 0))]),
        "k",
        "value type 99 is unknown",
    ),
    "nested array": (gb.gguf([_key("k", gb.ARRAY, struct.pack("<IQ", gb.ARRAY, 1))]), "k", "array of arrays"),
    "string past the end": (
        gb.gguf([_key("k", gb.STRING, struct.pack("<Q", HUGE))]),
        "k",
        "the file ends at",
    ),
    "array of 2**64 numbers": (
        gb.gguf([_key("k", gb.ARRAY, struct.pack("<IQ", gb.U8, HUGE))]),
        "k",
        "absurd",
    ),
    "array past the end": (
        gb.gguf([_key("k", gb.ARRAY, struct.pack("<IQ", gb.F64, 1 << 24))]),
        "k",
        "the file ends at",
    ),
    "array of 2**63 strings": (
        gb.gguf([_key("k", gb.ARRAY, struct.pack("<IQ", gb.STRING, 2**63))]),
        "k",
        "absurd",
    ),
    "a string in an array past the end": (
        gb.gguf([_key("k", gb.ARRAY, struct.pack("<IQQQ", gb.STRING, 2, HUGE, 0))]),
        "k",
        "past the end",
    ),
    "the last string in an array past the end": (
        gb.gguf([_key("k", gb.ARRAY, struct.pack("<IQQ", gb.STRING, 1, 1000))]),
        "k",
        "past the end",
    ),
    "alignment 0": (
        gb.gguf([gb.key_value("general.alignment", gb.U32, 0)]),
        "general.alignment",
        "power of two",
    ),
    "alignment 24": (
        gb.gguf([gb.key_value("general.alignment", gb.U32, 24)]),
        "general.alignment",
        "power of two",
    ),
    "alignment 2**63": (
        gb.gguf([gb.key_value("general.alignment", gb.U64, 2**63 - 1)]),
        "general.alignment",
        "power of two",
    ),
    "alignment a string": (
        gb.gguf([gb.key_value("general.alignment", gb.STRING, "32")]),
        "general.alignment",
        "whole number",
    ),
    "no dimensions": (gb.gguf([], [gb.tensor("t", [])]), "tensor t", "0 dimensions"),
    "five dimensions": (gb.gguf([], [gb.tensor("t", [1] * 5)]), "tensor t", "5 dimensions"),
    "2**32-1 dimensions": (
        gb.gguf([], [gb.string("t") + struct.pack("<I", 2**32 - 1) + bytes(32)]),
        "tensor t",
        "dimensions",
    ),
    "a dimension of 0": (gb.gguf([], [gb.tensor("t", [4, 0])]), "tensor t", "not possible"),
    "dimensions that overflow": (gb.gguf([], [gb.tensor("t", [2**32, 2**32])]), "tensor t", "not possible"),
    "dimensions that wrap to 4": (gb.gguf([], [gb.tensor("t", [2**62 + 1, 4])]), "tensor t", "not possible"),
    "tensor type": (gb.gguf([], [gb.tensor("t", [4], kind=4)]), "tensor t", "type 4 is unknown"),
    "rows of half a block": (
        gb.gguf([], [gb.tensor("t", [48], kind=Q4_0)]),
        "tensor t",
        "not whole Q4_0 blocks",
    ),
    "tensor name too long": (gb.gguf([], [gb.tensor("t" * 64, [4])]), "tensor 0 (name)", "at most 63"),
    "tensor name with a NUL": (gb.gguf([], [gb.tensor("a\0b", [4])]), "tensor 0 (name)", "not a name"),
    "tensor past the end": (
        gb.gguf([], [gb.tensor("t", [4])], bytes(15)),
        "tensor t",
        "but the file ends at",
    ),
    "offset past the end": (
        gb.gguf([], [gb.tensor("t", [4], offset=2**64 - 32)], bytes(64)),
        "tensor t",
        "ends at",
    ),
    "offset not aligned": (
        gb.gguf([], [gb.tensor("t", [4], offset=8)], bytes(64)),
        "tensor t",
        "not a multiple",
    ),
    "tensor twice": (
        gb.gguf([], [gb.tensor("t", [4]), gb.tensor("t", [4], offset=32)], bytes(64)),
        "tensor t",
        "twice",
    ),
    "tensors that overlap": (
        gb.gguf([], [gb.tensor("a", [16]), gb.tensor("b", [4], offset=32)], bytes(64)),
        "tensor b",
        "overlaps tensor a",
    ),
    "split count 0": (gb.gguf([gb.key_value("split.count", gb.U16, 0)]), "split.count", "not within"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_by_field(tmp_path: Path, case: str) -> None:
    content, field, problem = HOSTILE[case]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError) as caught:
            read(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    error = caught.value
    assert error.path == str(path)
    assert error.field.startswith(field)
    assert problem in error.problem
    assert error.remedy
    assert peak_bytes < 1 << 20


def test_an_unknown_tensor_type_is_an_unsupported_model(tmp_path: Path) -> None:
    path = tmp_path / "new.gguf"
    path.write_bytes(gb.gguf([], [gb.tensor("t", [4], kind=999)]))
    with pytest.raises(UnsupportedModelError, match="tensor type 999"):
        read(path)


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="No such file"):
        read(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read(tmp_path)
    with pytest.raises(ModelFileError, match="null"):
        read("a\0b")
    os.mkfifo(tmp_path / "pipe")  # without care, opening it waits for a writer for ever
    with pytest.raises(ModelFileError, match="not a regular file"):
        read(tmp_path / "pipe")


SOUND = gb.gguf(
    [
        gb.key_value("general.architecture", gb.STRING, "llama"),
        gb.key_value("general.alignment", gb.U32, 32),
        gb.key_value("a.count", gb.U32, 3),
        gb.key_value("a.ratio", gb.F64, 0.5),
        gb.key_value("a.flag", gb.BOOL, True),
        gb.key_array("a.tokens", gb.STRING, ["one", "two", "three", ""]),
        gb.key_array("a.types", gb.I32, [1, 2, 3]),
    ],
    [
        gb.tensor("x.weight", [32, 2], kind=Q4_0),
        gb.tensor("y.weight", [4, 2], offset=64),
        gb.tensor("z.weight", [2, 2, 2], offset=96),
    ],
    bytes(96 + 32),
)
HEADER_BYTES = len(SOUND) - 128


def _survives(path: Path, content: bytes) -> bool:
    """Whether the file opens; everything in an open file must be readable."""
    path.write_bytes(content)
    try:
        file = read(path)
    except ModelFileError:
        return False
    with file:
        for key in file.metadata:
            assert file.metadata[key] is not None
        for name, info in file.tensors.items():
            assert len(file.data(name)) == info.n_bytes
        describe(file)
    return True


def test_truncation_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    assert _survives(path, SOUND)
    for n_bytes in range(len(SOUND)):
        assert not _survives(path, SOUND[:n_bytes]), n_bytes


def test_every_byte_of_the_header_changed(tmp_path: Path) -> None:
    path = tmp_path / "changed.gguf"
    for position in range(HEADER_BYTES):
        for change in (0x01, 0x80, 0xFF):
            content = bytearray(SOUND)
            content[position] ^= change
            _survives(path, bytes(content))


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    content = bytearray(SOUND)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, HEADER_BYTES - 1))
        kind = draw(st.sampled_from(["byte", "number", "delete", "insert", "repeat"]))
        if kind == "byte":
            content[position] = draw(st.integers(0, 255))
        elif kind == "number":
            number = draw(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 33, HUGE]))
            content[position : position + 8] = struct.pack("<Q", number)
        elif kind == "delete":
            del content[position : position + draw(st.integers(1, 16))]
        elif kind == "insert":
            content[position:position] = draw(st.binary(min_size=1, max_size=16))
        else:
            content[position:position] = content[position : position + draw(st.integers(1, 64))]
    return bytes(content)


@settings(max_examples=1500, deadline=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=_mutated())
def test_mutations_never_do_worse_than_an_error(tmp_path: Path, content: bytes) -> None:
    _survives(tmp_path / "mutated.gguf", content)
