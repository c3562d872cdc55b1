"""What keys and values in fewer bits change of a real model's next-token distributions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from lucebox.text.tokenizer import Tokenizer

ModelPath = Callable[[str], Path]
N_TOKENS = 400
TEXT = Path(__file__).read_text(encoding="utf-8")
# Mean divergence from f32 in nats a token, and how often the likeliest token is the same. Activations are
# rounded to 8 bits before each product, which makes 0.004 nats of any change, however small.
BOUNDS = {"f16": (0.01, 0.95), "q8_0": (0.015, 0.93), "q4_0": (0.4, 0.7)}


def log_probabilities(path: Path, kv_type: str) -> NDArray[np.float64]:
    with Runtime.load(path, device="CPU", n_threads=2, n_ctx=512, kv_type=kv_type) as runtime:
        tokenizer = Tokenizer.from_metadata(runtime.file.metadata, str(path))
        tokens = list(tokenizer.encode(TEXT, parse_special=False))[:N_TOKENS]
        assert len(tokens) == N_TOKENS
        rows = Rows.chain(0, tokens, 0, want_all=Want.LOGITS)
        logits = runtime.forward(rows).logits.astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def exact(model_path: ModelPath) -> NDArray[np.float64]:
    return log_probabilities(model_path("smollm2-135m"), "f32")


@pytest.mark.parametrize("kv_type", BOUNDS)
def test_smaller_types_stay_close(model_path: ModelPath, exact: NDArray[np.float64], kv_type: str) -> None:
    found = log_probabilities(model_path("smollm2-135m"), kv_type)
    divergence = (np.exp(exact) * (exact - found)).sum(axis=-1).mean()
    agreement = (found.argmax(-1) == exact.argmax(-1)).mean()
    print(f"{kv_type}: {divergence:.2e} nats a token, {agreement:.1%} agree")
    most_divergence, least_agreement = BOUNDS[kv_type]
    assert divergence < most_divergence
    assert agreement >= least_agreement
