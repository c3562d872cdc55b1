"""The float16 copy of a model: the same metadata and numbers, in one file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from lucebox.errors import ConfigError, ModelFileError
from lucebox.gguf.copy import write_f16
from lucebox.gguf.reader import GgufFile, read
from tests.support.tiny_models import write_tiny


def values(file: GgufFile, name: str) -> np.ndarray:
    info = file.tensor(name)
    rows = file.data(name).copy().reshape(*info.shape[:0:-1], -1)
    if info.type == Type.F32:
        return rows.view(np.float32)
    return (
        rows.view(np.float16).astype(np.float32)
        if info.type == Type.F16
        else gguf.dequantize(rows, info.type)
    )


@pytest.mark.parametrize("dtype", ["q4_0", "q8_0", "bf16", "f32", "f16"])
def test_every_matrix_is_the_same_in_float16(tmp_path: Path, dtype: str) -> None:
    path = write_tiny(tmp_path / "m.gguf", dtype=dtype, metadata={"general.file_type": 2})
    progress: list[float] = []
    copy = write_f16(path, tmp_path / "f16.gguf", progress.append)
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    with read(path) as ours, read(copy) as theirs:
        assert list(ours.tensors) == list(theirs.tensors)
        for name, info in ours.tensors.items():
            is_matrix = len(info.shape) > 1
            assert theirs.tensor(name, info.shape).type == (Type.F16 if is_matrix else Type.F32)
            expected = values(ours, name)
            if is_matrix:
                expected = expected.astype(np.float16).astype(np.float32)
            np.testing.assert_array_equal(values(theirs, name), expected)
        assert theirs.uint("general.file_type") == 1
        assert set(ours.metadata) == set(theirs.metadata)
        for key, value in ours.metadata.items():
            if key != "general.file_type":
                np.testing.assert_array_equal(theirs.metadata[key], value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f16.gguf", "m.gguf"]


def test_other_readers_take_the_copy(tmp_path: Path) -> None:
    copy = write_f16(write_tiny(tmp_path / "m.gguf", dtype="q4_0"), tmp_path / "f16.gguf")
    reader = gguf.GGUFReader(copy)
    assert {tensor.tensor_type for tensor in reader.tensors} == {Type.F16, Type.F32}
    assert reader.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_F16


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.gguf")
    with pytest.raises(ConfigError, match="is the model to be copied itself"):
        write_f16(path, path)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_f16(path, tmp_path / "absent" / "f16.gguf")
    (tmp_path / "broken.gguf").write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelFileError):
        write_f16(tmp_path / "broken.gguf", tmp_path / "f16.gguf")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.gguf", "m.gguf"]
