"""What a GGUF file holds, as `lucebox inspect` shows it: for any sound file, also of unknown architecture."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lucebox.gguf.reader import GgufFile

_Value = TypeVar("_Value", str, int)


@dataclass(frozen=True, slots=True)
class TypeShare:
    """The tensors stored in one ggml type."""

    type: str
    n_tensors: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Description:
    """A model file in figures; None where the file does not say."""

    path: Path
    n_bytes: int
    n_parts: int
    architecture: str | None
    name: str | None
    licence: str | None
    n_tensors: int
    n_parameters: int
    types: tuple[TypeShare, ...]  # largest first
    n_ctx_train: int | None
    n_vocab: int | None
    n_layer: int | None
    n_embd: int | None
    n_head: int | None
    n_head_kv: int | None
    n_expert: int | None
    n_expert_used: int | None  # of them, by each token
    tokenizer: str | None
    has_chat_template: bool

    @property
    def bits_per_parameter(self) -> float:
        stored = sum(share.n_bytes for share in self.types)
        return 8 * stored / self.n_parameters if self.n_parameters else 0.0


def describe(file: GgufFile) -> Description:
    """Reads the figures from metadata and tensor table; touches no weights and decodes no vocabulary."""
    architecture = _text(file, "general.architecture")
    tensors = file.tensors.values()
    return Description(
        path=file.path,
        n_bytes=file.n_bytes,
        n_parts=len(file.mappings),
        architecture=architecture,
        name=_text(file, "general.name"),
        licence=_text(file, "general.license"),
        n_tensors=len(tensors),
        n_parameters=sum(info.n_elements for info in tensors),
        types=_type_shares(file),
        n_ctx_train=_number(file, f"{architecture}.context_length"),
        n_vocab=_n_vocab(file),
        n_layer=_number(file, f"{architecture}.block_count"),
        n_embd=_number(file, f"{architecture}.embedding_length"),
        n_head=_number(file, f"{architecture}.attention.head_count"),
        n_head_kv=_number(file, f"{architecture}.attention.head_count_kv"),
        n_expert=_number(file, f"{architecture}.expert_count") or None,
        n_expert_used=_number(file, f"{architecture}.expert_used_count"),
        tokenizer=_text(file, "tokenizer.ggml.model"),
        has_chat_template=_text(file, "tokenizer.chat_template") is not None,
    )


def _type_shares(file: GgufFile) -> tuple[TypeShare, ...]:
    n_tensors: Counter[str] = Counter()
    n_bytes: Counter[str] = Counter()
    for info in file.tensors.values():
        n_tensors[info.type.name] += 1
        n_bytes[info.type.name] += info.n_bytes
    return tuple(TypeShare(name, n_tensors[name], size) for name, size in n_bytes.most_common())


def _n_vocab(file: GgufFile) -> int | None:
    if file.metadata.is_array("tokenizer.ggml.tokens"):
        return file.metadata.length("tokenizer.ggml.tokens")
    return None


def _text(file: GgufFile, key: str) -> str | None:
    return _of_type(file, key, str)


def _number(file: GgufFile, key: str) -> int | None:
    return _of_type(file, key, int)


def _of_type(file: GgufFile, key: str, kind: type[_Value]) -> _Value | None:
    if key not in file.metadata or file.metadata.is_array(key):
        return None
    value = file.metadata[key]
    return value if isinstance(value, kind) and not isinstance(value, bool) else None
