"""Keys and values in fewer bits: how close they stay, how much they take, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox.errors import ConfigError
from lucebox.ggml._api import Type
from lucebox.ggml.library import load
from lucebox.gguf import packing
from lucebox.runtime.key_values import KV_TYPES, parse_kv_type, row_bytes
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support.tiny_models import write_tiny

WIDE = {"n_embd": 256, "n_ff": 512, "n_layer": 3}  # heads of 64 elements, two blocks
N_TOKENS = 300
MAX_DIVERGENCE = {"f16": 1e-6, "q8_0": 1e-3, "q4_0": 0.2}  # nats a token, in the mean
MIN_AGREEMENT = {"f16": 1.0, "q8_0": 0.98, "q4_0": 0.8}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("kv") / "wide.gguf", **WIDE)


def tokens(n: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(3).integers(0, 250, n)]


def log_probabilities(path: Path, kv_type: str) -> NDArray[np.float64]:
    """Of each next token, a prompt's and then those of single steps."""
    text, n_prompt = tokens(N_TOKENS), N_TOKENS - 20
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=512, kv_type=kv_type) as runtime:
        prompt = Rows.chain(0, text[:n_prompt], 0, want_all=Want.LOGITS)
        logits = [runtime.forward(prompt).logits.copy()]
        runtime.cache.commit(0, range(n_prompt))
        for i in range(n_prompt, N_TOKENS):
            logits.append(runtime.forward(Rows.chain(0, [text[i]], i)).logits.copy())
            runtime.cache.commit(0, [0])
    shifted = np.concatenate(logits).astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def exact(path: Path) -> NDArray[np.float64]:
    return log_probabilities(path, "f32")


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_smaller_types_stay_close(path: Path, exact: NDArray[np.float64], kv_type: str) -> None:
    found = log_probabilities(path, kv_type)
    divergence = (np.exp(exact) * (exact - found)).sum(axis=-1)
    assert 0 < divergence.mean() < MAX_DIVERGENCE[kv_type]
    assert (found.argmax(-1) == exact.argmax(-1)).mean() >= MIN_AGREEMENT[kv_type]


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_memory_is_what_the_type_takes(path: Path, kv_type: str) -> None:
    element_bytes = {"f32": 4, "f16": 2, "q8_0": 34 / 32, "q4_0": 18 / 32}[kv_type]
    with Runtime.load(path, device="CPU", n_threads=1, n_ctx=512, kv_type=kv_type) as runtime:
        h = runtime.hparams
        n_elements = 513 * h.n_layers * (h.n_embd_k + h.n_embd_v)
        ((_, kv_bytes, _),) = runtime.used_bytes()
    assert kv_bytes == pytest.approx(n_elements * element_bytes, rel=0.01)


@pytest.mark.parametrize("element", KV_TYPES.values())
def test_rows_are_as_ggml_lays_them(element: Type) -> None:
    assert row_bytes(element, 128) == load().ggml_row_size(element, 128)


def test_heads_that_are_no_whole_blocks_are_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "narrow.gguf")  # heads of 16
    for kv_type in ("q8_0", "q4_0"):
        with pytest.raises(ConfigError, match=r"heads of 16 elements.*--kv-type f16"):
            Runtime.load(path, device="CPU", n_threads=1, n_ctx=64, kv_type=kv_type)


def test_an_unknown_type_is_refused(path: Path) -> None:
    with Runtime.load(path, device="CPU", n_threads=1, n_ctx=64) as runtime:
        hparams = runtime.hparams
    with pytest.raises(ConfigError, match="q3_0"):
        parse_kv_type("q3_0", hparams)


@pytest.mark.skipif(not packing.is_available(), reason="our own kernels do not run here")
@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
def test_a_row_is_the_same_alone_behind_a_long_context(tmp_path: Path, kv_type: str) -> None:
    """Attention of single rows is regrouped there, for our own kernels' promise."""
    path = write_tiny(tmp_path / "packed.gguf", **WIDE, n_vocab=64, n_ctx=2048, dtype="q4_k")
    text = [token % 63 for token in tokens(708)]
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=1024, kv_type=kv_type) as runtime:
        for first in range(0, 700, 350):
            runtime.forward(Rows.chain(0, text[first : first + 350], first, want_last=Want.NOTHING))
            runtime.cache.commit(0, range(350))
        together = runtime.forward(Rows.chain(0, text[700:], 700, want_all=Want.LOGITS)).logits.copy()
        for i, token in enumerate(text[700:]):
            alone = runtime.forward(Rows.chain(0, [token], 700 + i)).logits[0]
            np.testing.assert_array_equal(alone, together[i])
            runtime.cache.commit(0, [0])
