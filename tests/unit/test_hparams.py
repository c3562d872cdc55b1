from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lucebox.errors import ModelFileError
from lucebox.gguf import read
from lucebox.models.hparams import Hparams, read_hparams
from tests.support.tiny_models import write_tiny

PER_LAYER = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")


def hparams(folder: Path, **changed: Any) -> Hparams:
    metadata = {f"llama.{key.replace('__', '.')}": value for key, value in changed.items()}
    with read(write_tiny(folder / "model.gguf", metadata=metadata)) as file:
        return read_hparams(file)


def test_numbers_given_per_layer_count_when_they_are_equal(tmp_path: Path) -> None:
    read_back = hparams(tmp_path, attention__head_count=[4, 4], feed_forward_length=[128, 128])
    assert (read_back.n_heads, read_back.n_ff) == (4, 128)


@pytest.mark.parametrize("key", PER_LAYER)
@pytest.mark.parametrize(
    "value",
    [0, 2**32 - 1, [4, 2], [0, 0], [4.5, 4.5], [float("nan")] * 2, [float("inf")] * 2, [True, True], ["4"]],
    ids=str,
)
def test_impossible_numbers_name_their_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelFileError) as caught:
        hparams(tmp_path, **{key.replace(".", "__"): value})
    assert caught.value.field == f"llama.{key}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 2**32 - 1),
        ("embedding_length", 0),
        ("context_length", 0),
        ("context_length", 2**32 - 1),
        ("vocab_size", 1),
        ("attention.key_length", 0),
        ("attention.key_length", 2**32 - 1),
        ("attention.layer_norm_rms_epsilon", -1.0),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("attention.causal", False),
        ("attention.head_count_kv", 3),
        ("rope.dimension_count", 0),
        ("rope.dimension_count", 3),
        ("rope.dimension_count", 18),
        ("rope.freq_base", 0.0),
        ("rope.freq_base", float("inf")),
        ("rope.scaling.factor", -1.0),
        ("rope.scaling.type", "longrope"),
        ("expert_count", 8),
    ],
)
def test_values_that_make_no_network_name_their_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelFileError) as caught:
        hparams(tmp_path, **{key.replace(".", "__"): value})
    assert caught.value.field == f"llama.{key}"
