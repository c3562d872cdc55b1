"""The GGUF reader on sound files: against the `gguf` package, and on every value type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from lucebox.errors import ModelFileError
from lucebox.gguf import read
from lucebox.gguf.describe import TypeShare, describe
from tests.support import gguf_bytes as gb
from tests.support.tiny_models import TinySpec, tiny_tensors, write_tiny


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8_0", "q4_0"])
def test_agrees_with_the_gguf_package(tmp_path: Path, dtype: str) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", "qwen2", dtype=dtype)
    oracle = GGUFReader(path)
    with read(path) as file:
        for key, field in oracle.fields.items():
            if key.startswith("GGUF."):
                continue
            expected = field.contents()
            found = file.metadata[key]
            assert (found.tolist() if isinstance(found, np.ndarray) else found) == expected, key
        assert [info.name for info in file.tensors.values()] == [tensor.name for tensor in oracle.tensors]
        for tensor in oracle.tensors:
            info = file.tensors[tensor.name]
            assert info.shape == tuple(tensor.shape.tolist())
            assert (info.type, info.n_bytes, info.offset) == (
                tensor.tensor_type,
                tensor.n_bytes,
                tensor.data_offset,
            )
            assert np.array_equal(file.data(tensor.name), tensor.data.view(np.uint8).reshape(-1))


def test_data_is_the_mapped_file(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", n_vocab=6)
    expected = tiny_tensors(TinySpec(n_vocab=6))
    with read(path) as file:
        for name, array in expected.items():
            info = file.tensor(name, array.shape[::-1])
            view = file.data(name)
            assert not view.flags.writeable
            assert view.ctypes.data == file.address() + info.offset
            assert np.array_equal(view.view(np.float32).reshape(array.shape), array)
        del view


SCALARS = [
    (gb.U8, 255),
    (gb.I8, -128),
    (gb.U16, 65535),
    (gb.I16, -2),
    (gb.U32, 2**32 - 1),
    (gb.I32, -3),
    (gb.F32, 0.5),
    (gb.BOOL, True),
    (gb.STRING, "é\n"),
    (gb.U64, 2**64 - 1),
    (gb.I64, -(2**63)),
    (gb.F64, 1e300),
]


@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type(tmp_path: Path, version: int) -> None:
    path = tmp_path / "types.gguf"
    key_values = [gb.key_value(f"scalar.{kind}", kind, value) for kind, value in SCALARS]
    key_values += [gb.key_array(f"array.{kind}", kind, [value] * 3) for kind, value in SCALARS]
    key_values += [gb.key_array(f"empty.{kind}", kind, []) for kind, _ in SCALARS]
    path.write_bytes(gb.gguf(key_values, version=version))
    with read(path) as file:
        assert len(file.metadata) == 3 * len(SCALARS)
        for kind, value in SCALARS:
            found = file.metadata[f"scalar.{kind}"]
            assert (found, type(found)) == (value, type(value))
            array, empty = file.metadata[f"array.{kind}"], file.metadata[f"empty.{kind}"]
            assert list(array) == [value] * 3
            assert isinstance(array, list if kind == gb.STRING else np.ndarray)
            assert file.metadata.length(f"array.{kind}") == 3
            assert len(empty) == 0
        assert file.metadata[f"array.{gb.BOOL}"].dtype == np.bool_


def test_bytes_that_are_not_utf8_survive(tmp_path: Path) -> None:
    path = tmp_path / "bytes.gguf"
    raw = bytes(range(256))
    path.write_bytes(
        gb.gguf([gb.key_value("one", gb.STRING, raw), gb.key_array("many", gb.STRING, [raw, b""])])
    )
    with read(path) as file:
        assert file.string("one").encode("utf-8", "surrogateescape") == raw
        assert [text.encode("utf-8", "surrogateescape") for text in file.strings("many")] == [raw, b""]


def test_typed_getters_name_the_field(tmp_path: Path) -> None:
    path = tmp_path / "getters.gguf"
    path.write_bytes(
        gb.gguf(
            [
                gb.key_value("count", gb.U32, 7),
                gb.key_value("negative", gb.I32, -7),
                gb.key_value("ratio", gb.F32, 0.5),
                gb.key_value("nan", gb.F32, float("nan")),
                gb.key_value("flag", gb.BOOL, True),
                gb.key_value("text", gb.STRING, "hello"),
                gb.key_array("names", gb.STRING, ["a", "b"]),
                gb.key_array("sizes", gb.I32, [1, 2, 3]),
            ]
        )
    )
    with read(path) as file:
        assert (file.uint("count", minimum=7, maximum=7), file.uint("absent", default=3)) == (7, 3)
        assert (file.float("ratio"), file.float("count"), file.float("absent", default=2.5)) == (
            0.5,
            7.0,
            2.5,
        )
        assert (file.bool("flag"), file.bool("absent", default=False)) == (True, False)
        assert (file.string("text"), file.string("absent", default="")) == ("hello", "")
        assert file.strings("names", length=2) == ["a", "b"]
        assert file.numbers("sizes", length=3).tolist() == [1, 2, 3]
        for call, field, problem in [
            (lambda: file.uint("absent"), "absent", "missing"),
            (lambda: file.uint("count", minimum=8), "count", "not within 8"),
            (lambda: file.uint("count", maximum=6, default=1), "count", "not within 0 to 6"),
            (lambda: file.uint("negative"), "negative", "not within"),
            (lambda: file.uint("flag"), "flag", "not a whole number"),
            (lambda: file.uint("ratio"), "ratio", "not a whole number"),
            (lambda: file.uint("sizes"), "sizes", "an array is not a whole number"),
            (lambda: file.float("nan"), "nan", "not a finite number"),
            (lambda: file.float("text"), "text", "not a finite number"),
            (lambda: file.float("ratio", minimum=1.0), "ratio", "not within"),
            (lambda: file.bool("count"), "count", "not true or false"),
            (lambda: file.string("names"), "names", "not a string"),
            (lambda: file.strings("text"), "text", "not an array of strings"),
            (lambda: file.strings("names", length=3), "names", "2 entries where 3"),
            (lambda: file.strings("absent"), "absent", "missing"),
            (lambda: file.numbers("names"), "names", "not an array of numbers"),
            (lambda: file.numbers("sizes", length=2), "sizes", "3 entries where 2"),
            (lambda: file.metadata.length("text"), "text", "not an array"),
            (lambda: file.tensor("blk.0.attn_q.weight"), "tensor blk.0.attn_q.weight", "missing"),
        ]:
            with pytest.raises(ModelFileError, match=problem) as caught:
                call()
            assert (caught.value.path, caught.value.field) == (str(path), field)
            assert caught.value.remedy


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", n_vocab=6)
    with read(path) as file, pytest.raises(ModelFileError, match=r"has shape \(64, 6\) where .*\(64, 7\)"):
        file.tensor("token_embd.weight", (64, 7))


def test_alignment_of_the_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    data = np.arange(4, dtype=np.float32).tobytes()
    path.write_bytes(
        gb.gguf(
            [gb.key_value("general.alignment", gb.U32, 1024)], [gb.tensor("a", [4])], data, alignment=1024
        )
    )
    with read(path) as file:
        assert file.tensors["a"].offset == 1024
        assert bytes(file.data("a")) == data


def _write_split(directory: Path, *, n_parts: int = 3, announced: int = 3) -> list[Path]:
    paths = []
    for index in range(n_parts):
        key_values = [
            gb.key_value("split.no", gb.U16, index),
            gb.key_value("split.count", gb.U16, n_parts),
            gb.key_value("split.tensors.count", gb.I32, announced),
        ]
        if index == 0:
            key_values.append(gb.key_value("general.architecture", gb.STRING, "llama"))
        data = np.full(8, index, np.float32).tobytes()
        path = directory / f"model-{index + 1:05}-of-{n_parts:05}.gguf"
        path.write_bytes(gb.gguf(key_values, [gb.tensor(f"t{index}", [8])], data))
        paths.append(path)
    return paths


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_split_files_open_as_one(tmp_path: Path, opened: int) -> None:
    paths = _write_split(tmp_path)
    with read(paths[opened]) as file:
        assert file.path == paths[0]
        assert file.architecture == "llama"
        assert [file.data(f"t{index}").view(np.float32)[0] for index in range(3)] == [0, 1, 2]
        assert [file.tensors[f"t{index}"].part for index in range(3)] == [0, 1, 2]
        assert file.n_bytes == sum(path.stat().st_size for path in paths)
        assert describe(file).n_parts == 3


def test_damaged_splits_are_refused(tmp_path: Path) -> None:
    paths = _write_split(tmp_path)
    third = paths[2].read_bytes()
    paths[2].unlink()
    with pytest.raises(ModelFileError, match=r"00003-of-00003.*No such file"):
        read(paths[0])
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(ModelFileError, match=r"is part 2 of 3, where part 3 of 3"):
        read(paths[0])
    paths[2].write_bytes(third.replace(b"t2", b"t0"))
    with pytest.raises(ModelFileError, match="tensor t0: is in another part too"):
        read(paths[0])
    paths[2].write_bytes(third)
    renamed = paths[0].rename(tmp_path / "model.gguf")
    with pytest.raises(ModelFileError, match=r"split.count.*not named so"):
        read(renamed)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ModelFileError, match=r"the parts hold 3 tensors where 4 are announced"):
        read(_write_split(other, announced=4)[0])


def test_describe(tmp_path: Path) -> None:
    path = write_tiny(
        tmp_path / "tiny.gguf", n_vocab=6, n_ctx=77, dtype="f16", metadata={"general.license": "mit"}
    )
    with read(path) as file:
        found = describe(file)
    assert (found.architecture, found.licence, found.n_vocab, found.n_ctx_train) == ("llama", "mit", 6, 77)
    assert (found.n_layer, found.n_embd, found.n_head, found.n_head_kv) == (2, 64, 4, 2)
    arrays = tiny_tensors(TinySpec(n_vocab=6)).values()
    matrices = [array for array in arrays if array.ndim == 2]
    vectors = [array for array in arrays if array.ndim == 1]
    assert found.types == (
        TypeShare("F16", len(matrices), 2 * sum(array.size for array in matrices)),
        TypeShare("F32", len(vectors), 4 * sum(array.size for array in vectors)),
    )
    assert found.n_parameters == sum(array.size for array in arrays)
    assert 16 < found.bits_per_parameter < 17
    assert found.has_chat_template


def test_describe_knows_when_a_file_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    path.write_bytes(gb.gguf([gb.key_array("general.name", gb.I32, [1])]))
    with read(path) as file:
        found = describe(file)
    assert (found.architecture, found.name, found.n_vocab, found.n_ctx_train) == (None, None, None, None)
    assert (found.n_parameters, found.bits_per_parameter, found.has_chat_template) == (0, 0.0, False)


def test_types_are_the_gguf_packages(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", dtype="q8_0", n_vocab=6)
    with read(path) as file:
        assert file.tensors["token_embd.weight"].type is GGMLQuantizationType.Q8_0
