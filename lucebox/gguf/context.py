"""How long the sequences of a model may get."""

from __future__ import annotations

from lucebox.errors import ConfigError
from lucebox.gguf.reader import GgufFile


def check_context(file: GgufFile, n_ctx: int) -> None:
    """Raises ConfigError when the model was not trained for `n_ctx` tokens, ModelFileError when its file does
    not say for how many."""
    n_ctx_train = file.n_ctx_train
    if n_ctx > n_ctx_train:
        raise ConfigError(
            f"a context of {n_ctx} tokens is more than the {n_ctx_train} that {file.path} was trained for",
            remedy=f"use --ctx-size {n_ctx_train} or less",
        )
