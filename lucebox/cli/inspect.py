"""`lucebox inspect`: what a model file holds and what memory it would take, from its header alone."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from lucebox import flags
from lucebox.config import EngineOptions, engine_options
from lucebox.errors import LuceboxError
from lucebox.terminal import printable

if TYPE_CHECKING:
    from lucebox.gguf import GgufFile
    from lucebox.gguf.describe import Description

HELP = "show what a model file holds and what memory it would take, without loading it"

# Settings of the engine that change what its models take.
PLANNED = frozenset(
    {
        "draft_model",
        "target_device",
        "target_split",
        "target_cpu_layers",
        "cpu_moe",
        "draft_device",
        "workers",
        "draft_quant",
        "draft_vocab",
        "fit",
        "ctx_size",
        "parallel",
        "kv_type",
        "cpu_kernels",
    }
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a path, or a name as for --target-model")
    parser.add_argument("--tensors", action="store_true", help="list every tensor, too")
    flags.add_arguments(parser, EngineOptions, PLANNED)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from lucebox.gguf import read
    from lucebox.gguf.describe import describe
    from lucebox.progress import Bars
    from lucebox.resolve import find_model

    with Bars() as bars:
        path = find_model(arguments.model, on_progress=bars.on_download)
    with read(path) as file:
        _show(list(_facts(describe(file))))
        if arguments.tensors:
            _show_tensors(file)
    try:
        _plan(path, arguments, environ)
    except LuceboxError as error:
        if any(field in arguments for field in PLANNED):
            raise
        print(f"\nno plan: {printable(str(error))}")
    return 0


def _plan(path: Path, arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Shows the plan of the engine that the flags describe. Raises OutOfMemoryError behind the plan where it
    does not fit."""
    from lucebox.cli.plan_table import show_plan
    from lucebox.engine.planning import EnginePlanner
    from lucebox.engine.vocabulary_check import check_models
    from lucebox.progress import Bars
    from lucebox.resolve import resolve_engine
    from lucebox.runtime.fit import fit
    from lucebox.worker.client import connect

    arguments.target_model = str(path)
    options = engine_options(arguments, environ)
    with Bars() as bars:
        config = resolve_engine(options, on_progress=bars.on_download)
    with ExitStack() as opened:
        for worker in connect(config.workers, on_lost=lambda reason: None):
            opened.callback(worker.close)
        planner = opened.enter_context(EnginePlanner(config, shares_vocabulary=check_models(config)))
        if not config.fit:
            show_plan(planner.plan(config))
        fitted = fit(config, planner.plan)
        if config.fit:
            show_plan(fitted.plan)
        if fitted.changes:
            print(f"so that it fits: {' '.join(fitted.changes)}")


def _facts(it: Description) -> Iterator[tuple[str, object]]:
    """Label and value, None for what the file does not say."""
    yield "file", it.path
    if it.n_parts > 1:
        yield "parts", it.n_parts
    yield "size", f"{it.n_bytes / 2**20:,.0f} MiB"
    yield "name", it.name
    yield "licence", it.licence
    yield "architecture", it.architecture
    yield "parameters", f"{it.n_parameters / 1e6:,.1f} million at {it.bits_per_parameter:.2f} bits"
    yield "tensors", it.n_tensors
    for share in it.types:
        yield f"  {share.type}", f"{share.n_tensors} tensors, {share.n_bytes / 2**20:,.1f} MiB"
    yield "layers", it.n_layer
    yield "embedding", it.n_embd
    yield "heads", it.n_head
    yield "KV heads", it.n_head_kv
    if it.n_expert is not None:
        yield "experts", f"{it.n_expert}, of which a token uses {it.n_expert_used or '?'}"
    yield "context", None if it.n_ctx_train is None else f"{it.n_ctx_train} tokens"
    yield "vocabulary", None if it.n_vocab is None else f"{it.n_vocab} tokens"
    yield "tokenizer", it.tokenizer
    yield "chat template", "yes" if it.has_chat_template else "no"


def _show(facts: list[tuple[str, object]]) -> None:
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        print(f"{label:<{width}}  {printable('-' if value is None else str(value))}")


def _show_tensors(file: GgufFile) -> None:
    width = max((len(name) for name in file.tensors), default=0)
    print()
    for name, tensor in file.tensors.items():
        shape = " × ".join(str(n) for n in tensor.shape)
        print(f"{printable(name):<{width}}  {tensor.type.name:<8}  {shape:<16}  {tensor.n_bytes:>12,} B")
