"""Our own kernels: packed matrices multiply as the file's, and a row's result depends on that row alone."""

from __future__ import annotations

import ctypes
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lucebox import models
from lucebox._kernels import packed as kernels
from lucebox.ggml.devices import find_device
from lucebox.ggml.library import load
from lucebox.gguf import packing
from lucebox.gguf.packing import Packer, packed_info
from lucebox.gguf.placement import choose_placements
from lucebox.gguf.reader import read
from lucebox.gguf.specs import TensorSpec, Use, match_specs
from lucebox.gguf.tensors import TensorInfo
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support.fake_tensors import fake_tensor
from tests.support.tiny_models import write_tiny

KINDS = {Type.Q4_K: 4.5, Type.Q6_K: 6.5625}  # bits per weight
Float32Array = NDArray[np.float32]


def random_blocks(kind: Type, k: int, n_out: int, seed: int) -> NDArray[np.uint8]:
    """uint8[n_out, row bytes]: every bit pattern of the quantised values, and scales of a sane size."""
    rng = np.random.default_rng(seed)
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (n_out, k // 256, block_bytes), dtype=np.uint8)
    halves = rng.uniform(-0.01, 0.01, (n_out, k // 256, 2)).astype(np.float16)
    if kind is Type.Q4_K:
        blocks[..., :4] = halves.view(np.uint8)
    else:
        blocks[..., -2:] = halves[..., :1].copy().view(np.uint8)
    return blocks.reshape(n_out, -1)


def info_of(kind: Type, k: int, n_out: int) -> TensorInfo:
    return TensorInfo("w", (k, n_out), kind, int(k * n_out * KINDS[kind] / 8), 0, 0)


class Product:
    """A packed matrix, and what its kernels make of activations. ggml's part is played by three structs."""

    def __init__(self, kind: Type, blocks: NDArray[np.uint8], k: int) -> None:
        info = info_of(kind, k, len(blocks))
        stored = packed_info(TensorSpec("w", info.shape, Use.MATRIX), info)
        assert stored is not None
        self._weights = np.zeros(stored.n_bytes + 64, np.uint8)
        packer, self._k, self._n_out = Packer(info), k, len(blocks)
        source = np.ascontiguousarray(blocks)
        for first, last in packer.blocks():
            packer.pack(source.ctypes.data, self._weights.ctypes.data, first, last)
        self._matrix = packer.matrix(0)

    def __call__(self, x: Float32Array, n_threads: int = 1) -> Float32Array:
        """float32[n_rows, n_out] of float32[n_rows, k]."""
        n_rows = len(x)
        y = np.full((n_rows, self._n_out), np.nan, np.float32)
        rows = np.zeros((n_rows, self._matrix.row_bytes), np.uint8)
        x_tensor, w_tensor = fake_tensor(x), fake_tensor(self._weights)
        q_tensor = fake_tensor(rows, x_tensor)
        y_tensor = fake_tensor(y, w_tensor, q_tensor)
        operation = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
        for address, tensor in (
            (self._matrix.quantise_address, q_tensor),
            (self._matrix.multiply_address, y_tensor),
        ):
            for thread in range(n_threads):
                operation(address)(ctypes.addressof(tensor), thread, n_threads, self._matrix.address)
        return y


def rounded(x: Float32Array) -> Float32Array:
    """Activations as the kernels see them: 127 steps of the largest magnitude of each 256."""
    blocks = x.reshape(len(x), -1, 256)
    scale = np.abs(blocks).max(axis=2, keepdims=True) / np.float32(127)
    steps = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
    return (steps * scale).reshape(x.shape)


needs_kernels = pytest.mark.skipif(not packing.is_available(), reason="needs AVX-512 VNNI")


@needs_kernels
@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(KINDS)),
    k=st.integers(1, 6).map(lambda n: 256 * n),
    n_out=st.integers(1, 9).map(lambda n: 16 * n),
    n_rows=st.integers(1, 20),
    n_threads=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_packed_matrix_multiplies_as_the_file_s(
    kind: Type, k: int, n_out: int, n_rows: int, n_threads: int, seed: int
) -> None:
    blocks = random_blocks(kind, k, n_out, seed)
    x = np.random.default_rng(seed).standard_normal((n_rows, k)).astype(np.float32)
    x[:, :256] *= np.float32(100)  # scales differ between blocks
    product = Product(kind, blocks, k)
    y = product(x, n_threads)
    weights = gguf.dequantize(blocks, kind).astype(np.float64)
    expected = rounded(x).astype(np.float64) @ weights.T
    bound = np.abs(rounded(x)).astype(np.float64) @ np.abs(weights).T
    # A product that falls on the edge between two steps may be rounded to either.
    assert np.abs(y - expected).max() <= 1e-5 * bound.max() + np.abs(weights).max() * np.abs(x).max() / 127
    assert np.median(np.abs(y - expected) / bound) < 1e-5
    alone = np.concatenate([product(row[None]) for row in x])
    np.testing.assert_array_equal(y, alone)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_zeros_and_of_one_spike(kind: Type) -> None:
    x = np.zeros((2, 512), np.float32)
    x[1, 300] = 3.0
    blocks = random_blocks(kind, 512, 16, 1)
    y = Product(kind, blocks, 512)(x)
    assert not y[0].any()
    np.testing.assert_allclose(y[1], 3.0 * gguf.dequantize(blocks, kind)[:, 300], rtol=1e-4, atol=1e-4)


@needs_kernels
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_spoils_all_of_its_row_and_no_other(kind: Type, value: float) -> None:
    x = np.random.default_rng(0).standard_normal((3, 512)).astype(np.float32)
    product = Product(kind, random_blocks(kind, 512, 16, 1), 512)
    clean = product(x)
    for place in (0, 17, 255, 256, 300, 511):
        spoilt = x.copy()
        spoilt[1, place] = value
        y = product(spoilt)
        assert not np.isfinite(y[1]).any()
        np.testing.assert_array_equal(y[[0, 2]], clean[[0, 2]])


def test_what_is_packed() -> None:
    def stored(kind: Type, shape: tuple[int, ...], use: Use = Use.MATRIX) -> TensorInfo | None:
        return packed_info(TensorSpec("w", shape, use), TensorInfo("w", shape, kind, 1, 0, 0))

    found = stored(Type.Q6_K, (512, 32))
    assert found is not None
    assert (found.type, found.shape) == (Type.I8, (found.n_bytes,))
    assert found.n_bytes == 512 * 32 * KINDS[Type.Q6_K] / 8
    assert stored(Type.Q4_K, (512, 32), Use.TABLE) is None
    assert stored(Type.Q4_K, (512, 40)) is None
    assert stored(Type.Q4_K, (512, 32, 2)) is None
    assert stored(Type.Q8_0, (512, 32)) is None


@needs_kernels
@pytest.mark.parametrize("dtype", ["q4_k", "q6_k"])
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_a_model_says_the_same_with_our_kernels(tmp_path: Path, arch: str, dtype: str) -> None:
    """And to the bit the same whatever else is in its batch."""
    path = write_tiny(tmp_path / "tiny.gguf", arch, n_embd=256, n_ff=512, n_vocab=64, dtype=dtype)
    tokens = [int(token) for token in np.random.default_rng(0).integers(0, 63, 40)]
    logits = {}
    for cpu_kernels in ("auto", "ggml"):
        with Runtime.load(path, device="CPU", n_threads=2, n_ctx=64, cpu_kernels=cpu_kernels) as runtime:
            logits[cpu_kernels] = runtime.forward(
                Rows.chain(0, tokens, 0, want_all=Want.LOGITS)
            ).logits.copy()
            runtime.cache.commit(0, range(20))
            together = runtime.forward(Rows.chain(0, tokens[20:28], 20, want_all=Want.LOGITS)).logits.copy()
            if cpu_kernels == "auto":
                alone = []
                for i, token in enumerate(tokens[20:28]):
                    alone.append(runtime.forward(Rows.chain(0, [token], 20 + i)).logits[0].copy())
                    runtime.cache.commit(0, [0])
                np.testing.assert_array_equal(together, np.array(alone))
    spread = logits["ggml"].std()
    assert np.abs(logits["auto"] - logits["ggml"]).max() < 0.2 * spread


@needs_kernels
@pytest.mark.parametrize("dtype", ["q4_k", "q6_k"])
def test_a_row_is_the_same_among_up_to_48(tmp_path: Path, dtype: str) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", n_embd=256, n_ff=512, n_vocab=64, n_layer=1, dtype=dtype)
    tokens = [int(token) for token in np.random.default_rng(0).integers(0, 63, 64)]
    alone = []
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=64) as runtime:
        for i, token in enumerate(tokens):
            alone.append(runtime.forward(Rows.chain(0, [token], i)).logits[0].copy())
            runtime.cache.commit(0, [0])
        runtime.cache.truncate(0, 16)
        for n in (2, 7, 9, 31, 33, 48):
            together = runtime.forward(Rows.chain(0, tokens[16 : 16 + n], 16, want_all=Want.LOGITS)).logits
            np.testing.assert_array_equal(together, np.array(alone[16 : 16 + n]))


@needs_kernels
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_a_row_is_the_same_alone_behind_a_long_context(tmp_path: Path, arch: str) -> None:
    """Where ggml would split the keys of a single row among threads, and not those of several rows."""
    path = write_tiny(
        tmp_path / "tiny.gguf", arch, n_embd=256, n_ff=512, n_vocab=64, n_ctx=2048, dtype="q4_k"
    )
    tokens = [int(token) for token in np.random.default_rng(0).integers(0, 63, 1008)]
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=2048) as runtime:
        for first in range(0, 1000, 250):
            runtime.forward(Rows.chain(0, tokens[first : first + 250], first, want_last=Want.NOTHING))
            runtime.cache.commit(0, range(250))
        together = runtime.forward(Rows.chain(0, tokens[1000:], 1000, want_all=Want.LOGITS)).logits.copy()
        for i, token in enumerate(tokens[1000:]):
            alone = runtime.forward(Rows.chain(0, [token], 1000 + i)).logits[0]
            np.testing.assert_array_equal(alone, together[i])
            runtime.cache.commit(0, [0])


@needs_kernels
def test_every_matrix_that_can_be_is_packed(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", n_embd=256, n_ff=512, n_vocab=60, dtype="q4_k")
    devices = [find_device("CPU")]
    with read(path) as file:
        architecture = models.for_file(file)
        matched = match_specs(file, architecture.tensors(architecture.hparams(file)))
        placements = choose_placements(load(), devices, file, matched, packs=True)
        packed = {p.spec.name for p in placements if p.is_packed}
        assert not any(p.is_packed for p in choose_placements(load(), devices, file, matched))
    matrices = {spec.name for spec, _ in matched if spec.use is Use.MATRIX}
    assert packed == matrices - {"output.weight"}  # 60 rows are not whole groups of 16


def test_a_processor_without_the_instructions_uses_ggml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "is_available", lambda: False)
    path = write_tiny(tmp_path / "tiny.gguf", n_embd=256, n_ff=512, n_vocab=64, dtype="q4_k")
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=64) as runtime:
        assert np.isfinite(runtime.forward(Rows.chain(0, [1, 2, 3], 0)).logits).all()


def test_the_processor_is_asked() -> None:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    assert kernels.is_supported() == ("avx512_vnni" in flags and "avx512dq" in flags)
