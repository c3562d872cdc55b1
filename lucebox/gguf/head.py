"""The LM head cut to the first tokens of a vocabulary (FR-Spec, arXiv:2502.14856).

Byte-pair vocabularies number their tokens as they were merged, so that the first ones are the frequent ones.
A draft that never guesses the others stays lossless: its law is zero there.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.errors import ConfigError
from lucebox.gguf.fusion import Matched
from lucebox.gguf.reader import GgufFile
from lucebox.gguf.tensors import TensorInfo

HEAD = "output.weight"
_TABLE = "token_embd.weight"
_USUAL_ROWS = 32_768
_MIN_SAVED = 1 / 3


def cut_head(matched: Sequence[Matched], n_rows: int) -> list[Matched]:
    """`matched` with the first `n_rows` rows of the head: the same bytes, fewer of them. A tied table stays
    whole."""
    return [(spec, info.first_rows(n_rows)) if spec.name == HEAD else (spec, info) for spec, info in matched]


def check_head_rows(file: GgufFile, n_rows: int) -> None:
    """Raises ConfigError when the vocabulary has fewer tokens."""
    n_vocab = _head(file).shape[-1]
    if n_rows > n_vocab:
        raise ConfigError(
            f"--draft-vocab {n_rows} is more than the {n_vocab} tokens of {file.path}",
            remedy=f"ask for fewer than {n_vocab}, or leave it out",
        )


def usual_head_rows(file: GgufFile) -> int | None:
    """32,768 where that spares a draft a third of its weights, else None: the whole head.

    Cutting Qwen2.5-Coder-0.5B's head takes its agreement with the 1.5B from .99 to .94, which is a tenth of
    a round's tokens with drafts of four. Drafting is rarely more than half of a round, so that a fifth of
    the weights spared, as there, does not earn them back; a third does, and small models with 262,144
    tokens spare more than half.
    """
    n_vocab = _head(file).shape[-1]
    if n_vocab <= _USUAL_ROWS:
        return None
    n_head = _head(file).n_elements
    n_read = n_head + sum(
        info.n_elements
        for name, info in file.tensors.items()
        if len(info.shape) > 1 and name not in (HEAD, _TABLE)
    )
    n_saved = n_head * (n_vocab - _USUAL_ROWS) // n_vocab
    return _USUAL_ROWS if n_saved >= _MIN_SAVED * n_read else None


def _head(file: GgufFile) -> TensorInfo:
    """The matrix of the head: that of the embedding where a file stores no other. Raises ModelFileError."""
    return file.tensor(HEAD if HEAD in file.tensors else _TABLE)
