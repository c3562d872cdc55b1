"""What the user asks for (options) and what the engine is given (configs). Frozen, composed, no inheritance.

Options hold names, and None where the choice is ours; `lucebox.resolve` turns them into configs, which hold
paths and numbers only. Both are msgspec structs: a config goes to the engine's process as it is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from lucebox import flags
from lucebox.errors import ConfigError
from lucebox.flags import Choice, Flag, Integer, IntegerOr, Switch, Text

KV_TYPES = ("f32", "f16", "q8_0", "q4_0")
KvType = Literal["f32", "f16", "q8_0", "q4_0"]
CpuKernels = Literal["auto", "ggml"]
Overlap = Literal["auto", "on", "off"]
Pinning = Literal["auto", "on", "off"]

DEFAULT_DRAFT_MODEL = "qwen2.5-coder-0.5b"
DEFAULT_CTX_SIZE_LIMIT = 8192
NONE = "none"
AUTO = "auto"
KEEP = "keep"
ALL = "all"
MODEL_DRAFTER = "model"
SUFFIX_DRAFTER = "suffix"
PREDICTION_DRAFTER = "prediction"
FREE_DRAFTERS = ("ngram", "recycle", "suffix")  # `--draft-model` takes them, too
SELF_DRAFT = re.compile(r"(?:(?<=[,+])|^)self:([^,+]*)")  # in a drafter's spec, or all of a draft model


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose about the engine. Raises ConfigError for a value that is not allowed."""

    target_model: Annotated[
        str,
        Flag(
            "the model that decides every token: a path, a name or `hf:owner/repo/file.gguf`", Text(), "MODEL"
        ),
    ] = "qwen2.5-coder-1.5b"
    draft_model: Annotated[
        str | None,
        Flag(
            "the smaller model that guesses ahead; `self:q4_0`: the target itself, re-quantised; `suffix`, "
            "`ngram` or `recycle`: that drafter without a model; `none`: nobody guesses",
            Text(),
            "MODEL",
            unset=f"`{DEFAULT_DRAFT_MODEL}` with the default target, else no model",
        ),
    ] = None
    target_device: Annotated[
        str,
        Flag(
            "where the target runs: a name or number of `lucebox devices`; several as `CUDA0,CPU` share its "
            "layers in that order; `auto`: the fastest, as measured, that have room",
            Text(),
            "DEVICE[,DEVICE…]",
        ),
    ] = AUTO
    target_split: Annotated[
        str | None,
        Flag(
            "shares of the target's layers, one for each of several devices, as `3,1`",
            Text(),
            "N,N…",
            unset="by free memory",
        ),
    ] = None
    target_cpu_layers: Annotated[
        int | None,
        Flag(
            "the last N layers of the target are computed by the CPU",
            Integer(0, 4096),
            "N",
            unset="none unless the CPU is among its devices",
        ),
    ] = None
    cpu_moe: Annotated[
        bool, Flag("the experts of a mixture-of-experts target stay with the CPU", Switch())
    ] = False
    draft_device: Annotated[
        str,
        Flag(
            "where the draft model runs, likewise; `auto`: a device of its own that is at least half as fast "
            "as the target's, else the same",
            Text(),
            "DEVICE[,DEVICE…]",
        ),
    ] = AUTO
    workers: Annotated[
        str | None,
        Flag(
            "other machines whose devices are to be used: addresses of `lucebox worker`",
            Text(),
            "HOST:PORT[,…]",
            unset="none",
        ),
    ] = None
    draft_quant: Annotated[
        str,
        Flag(
            "type that the draft model's matrices get while loading: `q4_0`, `q8_0` or another of ggml's; "
            "`keep`: the file's; `auto`: `q4_0` on a CPU that is faster with it",
            Text(),
            "TYPE",
        ),
    ] = AUTO
    draft_vocab: Annotated[
        int | str,
        Flag(
            "the draft model guesses only the first N tokens of its vocabulary, or `all`; "
            "`auto`: 32768 where that spares it a third of its weights, else all",
            IntegerOr(1, 2**24, (AUTO, ALL)),
            "N",
        ),
    ] = AUTO
    threads: Annotated[
        int | None,
        Flag("CPU threads that compute the target", Integer(1, 1024), "N", unset="physical cores"),
    ] = None
    draft_threads: Annotated[
        int | None,
        Flag("CPU threads that compute the draft model", Integer(1, 1024), "N", unset="as `--threads`"),
    ] = None
    pin_threads: Annotated[
        Pinning,
        Flag(
            "keep the threads of each model on cores of their own: `auto` where a worker on this machine "
            "computes at the same time, and there are enough",
            Choice(("auto", "on", "off")),
        ),
    ] = "auto"
    overlap: Annotated[
        Overlap,
        Flag(
            "guess on while the target verifies, where the draft model has a device of its own; `auto`: "
            "only while that is measured to be faster",
            Choice(("auto", "on", "off")),
        ),
    ] = "auto"
    fit: Annotated[
        bool,
        Flag(
            "where the models do not fit into memory, take what does: a smaller context, KV type, or fewer "
            "layers on a device",
            Switch(),
        ),
    ] = False
    ctx_size: Annotated[
        int | None,
        Flag(
            "context of one sequence, in tokens",
            Integer(16, 2**24),
            "N",
            unset=f"the model's own, at most {DEFAULT_CTX_SIZE_LIMIT}",
        ),
    ] = None
    parallel: Annotated[int, Flag("sequences decoded at the same time; more wait", Integer(1, 256), "N")] = 1
    kv_type: Annotated[KvType, Flag("number type of the KV cache", Choice(KV_TYPES))] = "f16"
    cpu_kernels: Annotated[
        CpuKernels,
        Flag(
            "kernels for quantised matrices on a CPU: `auto`: our own where they can serve (Q4_K and Q6_K on "
            "AVX-512 VNNI), which check several tokens for little more than one; `ggml`: only ggml's",
            Choice(("auto", "ggml")),
        ),
    ] = "auto"
    drafter: Annotated[
        str,
        Flag(
            "who guesses: `model` (the draft model), `suffix` (what the text repeats), `ngram`, `recycle`, "
            "`tli` or `slem` (a draft model of another vocabulary), a plug-in or `none`; `suffix,model`: "
            "each goes on behind the one before it; `model+suffix,model`: the controller chooses; `auto`: "
            "`model+suffix+suffix,model`, or `suffix` without a draft model",
            Text(),
            "NAME[,NAME…][+…]",
        ),
    ] = AUTO
    acceptance: Annotated[
        str,
        Flag(
            "how guesses are judged: `auto` (`greedy` at temperature 0, `match` with a seed, else `block`), "
            "`token`, `gumbel`, trees by `specinfer`, `rrs`, `kseq`, `traversal`; not lossless: `typical`, "
            "`lenient`, `mentored`, `fuzzy`",
            Text(),
            "NAME[:OPTION=VALUE,…]",
        ),
    ] = AUTO
    draft_length: Annotated[
        str,
        Flag(
            "how far to guess: `fixed:n=4`, `threshold:n=8,p_min=0.6`, `svip`, `adaedl`, `goodput` or a "
            "plug-in; `auto`: only while that is measured to be faster",
            Text(),
            "NAME[:OPTION=VALUE,…]",
        ),
    ] = AUTO

    def __post_init__(self) -> None:
        flags.check(self)


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose about the server. Raises ConfigError for a value that is not allowed."""

    engine: EngineOptions = EngineOptions(draft_model=DEFAULT_DRAFT_MODEL)
    host: Annotated[str, Flag("address to listen at", Text(), "ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Flag("port to listen at; 0 takes a free one", Integer(0, 65535), "N")] = 8080
    model_alias: Annotated[
        str | None,
        Flag("the model's name in the API", Text(), "NAME", unset="the target's name"),
    ] = None
    api_key: Annotated[
        str | None,
        Flag(
            "key that requests must carry; better given by the environment",
            Text(),
            "KEY",
            unset="none asked for",
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Flag("how much is logged", Choice(("debug", "info", "warning", "error"))),
    ] = "info"

    def __post_init__(self) -> None:
        flags.check(self)


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model file and where it runs.

    `device` is `auto`, or names or numbers of the machine's devices, joined by commas; `split` has a share of
    the layers for each of them, () where free memory decides. `n_cpu_layers` is None where `device` says it
    all. `cores` are those that its CPU threads are kept on, () for any.
    """

    path: str
    device: str
    n_threads: int
    kv_type: KvType
    split: tuple[float, ...] = ()
    n_cpu_layers: int | None = None
    cpu_moe: bool = False
    cores: tuple[int, ...] = ()
    quantise: str = KEEP  # the type that matrices are re-quantised to while loading
    n_head_rows: int | None = None  # the LM head is cut to so many first tokens
    cpu_kernels: CpuKernels = "auto"


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that an engine needs to start. `n_ctx` is the context of one sequence in tokens.

    `drafters` are for requests that name none, preferred first; with none of them, these decode plainly.
    `acceptance` is `auto` when each request decides. Unless it `remembers`, drafters forget a request when it
    ends, so that the next one is drafted as the first. `workers` are host:port addresses. What does not fit
    into memory is refused unless it shall `fit`, when n_ctx and the models' kv_type and device give way.
    """

    target: ModelConfig
    draft: ModelConfig | None
    drafters: tuple[str, ...]
    acceptance: str
    draft_length: str
    n_ctx: int
    n_parallel: int
    remembers: bool = True
    overlap: Overlap = "auto"
    workers: tuple[str, ...] = ()
    fit: bool = False


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a server needs to start. `model_alias` is the model's name in the API."""

    engine: EngineConfig
    host: str
    port: int
    model_alias: str
    api_key: str | None
    log_level: str


def engine_options(arguments: argparse.Namespace, environ: Mapping[str, str]) -> EngineOptions:
    """Options from parsed flags and the environment; a flag beats its variable. Raises ConfigError."""
    values = flags.given(EngineOptions, arguments, environ)
    flags.warn_of_unknown_variables(ServerOptions, environ)
    return flags.build(EngineOptions, _settle_draft(values))


def server_options(arguments: argparse.Namespace, environ: Mapping[str, str]) -> ServerOptions:
    """Options from parsed flags and the environment; a flag beats its variable. Raises ConfigError."""
    values = flags.given(ServerOptions, arguments, environ)
    flags.warn_of_unknown_variables(ServerOptions, environ)
    return flags.build(ServerOptions, _settle_draft(values))


def parse_server_args(argv: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """Options of `python -m lucebox.server ARGV…`. Raises ConfigError; `--help` prints and exits."""
    parser = flags.ArgumentParser(
        prog="python -m lucebox.server", description="Serve a model at an OpenAI-compatible HTTP API."
    )
    flags.add_arguments(parser, ServerOptions)
    return server_options(parser.parse_args(argv), environ)


def _settle_draft(values: dict[str, object]) -> dict[str, object]:
    """The draft model when none was named: the default target's partner, and none for any other target."""
    draft = values.get("draft_model")
    if draft not in (None, NONE) and values.get("drafter") == NONE:
        raise ConfigError(
            f"a draft model ({draft}) was given, and drafting switched off with the drafter `none`",
            remedy="leave one of them out",
        )
    drafter = str(values.get("drafter", AUTO))
    has_own = drafter == NONE or SELF_DRAFT.search(drafter) or _is_free(drafter)
    if draft is None and "target_model" not in values and not has_own:
        return values | {"draft_model": DEFAULT_DRAFT_MODEL}
    return values


def _is_free(drafter: str) -> bool:
    """Whether drafters of ours do all of it without a draft model."""
    pieces = re.split("[,+]", drafter)
    names = {piece.partition(":")[0].strip() for piece in pieces if "=" not in piece.partition(":")[0]}
    return names <= {*FREE_DRAFTERS, PREDICTION_DRAFTER}


if __name__ == "__main__":
    sys.stdout.write(flags.markdown_table(ServerOptions))
