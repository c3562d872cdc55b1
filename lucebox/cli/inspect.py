"""`lucebox inspect`: what a model file holds, from its header alone."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lucebox.cli.terminal import download_progress, printable

if TYPE_CHECKING:
    from lucebox.gguf import GgufFile

HELP = "show what a model file holds, without loading it"

# (label, key of the metadata; {} is the architecture)
_NUMBERS = (
    ("context", "{}.context_length"),
    ("layers", "{}.block_count"),
    ("embedding", "{}.embedding_length"),
    ("feed-forward", "{}.feed_forward_length"),
    ("heads", "{}.attention.head_count"),
    ("KV heads", "{}.attention.head_count_kv"),
    ("licence", "general.license"),
    ("tokenizer", "tokenizer.ggml.model"),
    ("pre-tokenizer", "tokenizer.ggml.pre"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a path, or a name as for --target-model")
    parser.add_argument("--tensors", action="store_true", help="list every tensor, too")


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lucebox.gguf import read
    from lucebox.resolve import find_model

    with download_progress() as on_progress:
        path = find_model(arguments.model, on_progress=on_progress)
    with read(path) as file:
        _show(list(_facts(file)))
        if arguments.tensors:
            _show_tensors(file)
    return 0


def _facts(file: GgufFile) -> Iterator[tuple[str, str]]:
    metadata = file.metadata
    tensors = list(file.tensors.values())
    n_bytes = sum(tensor.n_bytes for tensor in tensors)
    n_params = sum(tensor.n_elements for tensor in tensors)
    types = Counter(tensor.type.name for tensor in tensors)
    yield "file", str(file.path)
    yield "name", str(metadata.get("general.name", "-"))
    yield "architecture", file.architecture
    yield "parameters", f"{n_params / 1e6:,.1f} million"
    yield "weights", f"{n_bytes / 2**20:,.0f} MiB, {8 * n_bytes / max(1, n_params):.2f} bits per parameter"
    yield "tensors", f"{len(tensors)}: " + ", ".join(f"{n} {name}" for name, n in types.most_common())
    for label, key in _NUMBERS:
        value = metadata.get(key.format(file.architecture))
        if value is not None:
            yield label, str(value)
    if "tokenizer.ggml.tokens" in metadata:
        yield "vocabulary", f"{metadata.length('tokenizer.ggml.tokens')} tokens"
    yield "chat template", "yes" if "tokenizer.chat_template" in metadata else "no"


def _show(facts: list[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        print(f"{label:<{width}}  {printable(value)}")


def _show_tensors(file: GgufFile) -> None:
    width = max((len(name) for name in file.tensors), default=0)
    print()
    for name, tensor in file.tensors.items():
        shape = " × ".join(str(n) for n in tensor.shape)
        print(f"{printable(name):<{width}}  {tensor.type.name:<8}  {shape:<16}  {tensor.n_bytes:>12,} B")
