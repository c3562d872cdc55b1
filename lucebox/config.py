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
from lucebox.engine_options import (
    ALL,
    AUTO,
    DEFAULT_CTX_SIZE_LIMIT,
    DEFAULT_DRAFT_MODEL,
    DEFAULT_SERVER_PARALLEL,
    DRAFT_MODEL_FIELDS,
    FREE_DRAFTERS,
    KEEP,
    KV_TYPES,
    MODEL_DRAFTER,
    MODEL_DRAFTERS,
    NONE,
    OFF,
    PREDICTION_DRAFTER,
    SELF_DRAFT,
    SUFFIX_DRAFTER,
    CpuKernels,
    EngineOptions,
    KvType,
    Overlap,
    Pinning,
    Pooling,
)
from lucebox.errors import ConfigError
from lucebox.flags import Choice, Flag, Integer, PathPrefix, Text, TextList
from lucebox.logs import LogFormat

__all__ = [
    "ALL",
    "AUTO",
    "DEFAULT_CTX_SIZE_LIMIT",
    "DEFAULT_DRAFT_MODEL",
    "DEFAULT_MAX_QUEUE",
    "DEFAULT_SERVER_PARALLEL",
    "DRAFT_MODEL_FIELDS",
    "FREE_DRAFTERS",
    "KEEP",
    "KV_TYPES",
    "MODEL_DRAFTER",
    "MODEL_DRAFTERS",
    "NONE",
    "OFF",
    "PREDICTION_DRAFTER",
    "SELF_DRAFT",
    "SUFFIX_DRAFTER",
    "CpuKernels",
    "EngineConfig",
    "EngineOptions",
    "KvType",
    "LogFormat",
    "ModelConfig",
    "Overlap",
    "Pinning",
    "Pooling",
    "ReasoningFormat",
    "ServerConfig",
    "ServerOptions",
    "add_model_argument",
    "engine_options",
    "parse_server_args",
    "server_options",
    "take_model",
]

ReasoningFormat = Literal["auto", "none"]

DEFAULT_MAX_QUEUE = 256


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may choose about the server. Raises ConfigError for a value that is not allowed."""

    engine: EngineOptions = EngineOptions(draft_model=DEFAULT_DRAFT_MODEL)
    host: Annotated[str, Flag("address to listen at", Text(), "ADDRESS")] = "127.0.0.1"
    port: Annotated[int, Flag("port to listen at; 0 takes a free one", Integer(0, 65535), "N")] = 8080
    model_alias: Annotated[
        str | None,
        Flag("the model's name in the API", Text(), "NAME", unset="the target's name"),
    ] = None
    root_path: Annotated[
        str,
        Flag("where a reverse proxy shows the server, as `/llm`", PathPrefix(), "PATH", unset="at the top"),
    ] = ""
    api_key: Annotated[
        tuple[str, ...],
        Flag(
            "key that requests must carry, or several; better given by a file or the environment",
            TextList(),
            "KEY[,KEY…]",
            unset="none asked for",
            is_secret=True,
        ),
    ] = ()
    api_key_file: Annotated[
        str | None,
        Flag(
            "file of further keys, one a line; `#` begins a comment", Text(), "FILE", unset="none asked for"
        ),
    ] = None
    cors_origin: Annotated[
        tuple[str, ...],
        Flag(
            "web pages of other origins that may use the API, as `https://chat.example`, or `*`",
            TextList(),
            "ORIGIN[,ORIGIN…]",
            unset="none",
        ),
    ] = ()
    ssl_certfile: Annotated[
        str | None,
        Flag("certificate chain (PEM) to serve HTTPS with", Text(), "FILE", unset="plain HTTP"),
    ] = None
    ssl_keyfile: Annotated[
        str | None,
        Flag("its private key (PEM), without a password", Text(), "FILE", unset="in `--ssl-certfile`"),
    ] = None
    max_queue: Annotated[
        int, Flag("requests that may wait for others to end; further ones get a 429", Integer(0, 65536), "N")
    ] = DEFAULT_MAX_QUEUE
    request_timeout: Annotated[
        int | None,
        Flag(
            "seconds after which a request that waits or runs is ended",
            Integer(1, 86400),
            "N",
            unset="no limit",
        ),
    ] = None
    prefix_cache_file: Annotated[
        str | None,
        Flag(
            "file that has the prefix cache while the server is down: read at the start, written at the end",
            Text(),
            "FILE",
            unset="none",
        ),
    ] = None
    max_body: Annotated[int, Flag("MiB that the body of a request may have", Integer(1, 1024), "N")] = 16
    client_timeout: Annotated[
        int,
        Flag("seconds that a client may take to send a request, or to read a bit", Integer(1, 3600), "N"),
    ] = 30
    drain_timeout: Annotated[
        int,
        Flag("seconds that running requests get to end after a signal to stop", Integer(0, 3600), "N"),
    ] = 8
    pooling: Annotated[
        Pooling | Literal["auto"],
        Flag(
            "what /v1/embeddings makes of a text's hidden states: their `mean`, the `last` token's or the "
            "first one's (`cls`); `auto`: as the model file says, else `mean`",
            Choice((AUTO, "mean", "last", "cls")),
        ),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Flag("how much is logged", Choice(("debug", "info", "warning", "error"))),
    ] = "info"
    tool_format: Annotated[
        str,
        Flag(
            "how the model writes calls of tools: `gemma`, `generic`, `harmony`, `hermes`, `llama3`, "
            "`mistral`, `pythonic` or `qwen3_coder`; `auto`: as its chat template tells",
            Text(),
            "FORMAT",
        ),
    ] = AUTO
    reasoning_format: Annotated[
        ReasoningFormat,
        Flag(
            "`auto`: reasoning apart from the answer, as `reasoning_content`; `none`: in it, as it comes",
            Choice(("auto", "none")),
        ),
    ] = "auto"
    log_format: Annotated[
        LogFormat, Flag("`json`: one object a line, for machines", Choice(("text", "json")))
    ] = "text"

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
    ends, so that the next one is drafted as the first, and no prefix is kept. `workers` are host:port
    addresses. What does not fit into memory is refused unless it shall `fit`, when n_ctx and the models'
    kv_type and device give way.

    The prefix cache keeps `n_prefix_tokens`, None for n_ctx or a quarter of all cells, and `prefix_file` has
    them between two engines. `max_queue` requests may wait while others run, none longer than `timeout_s`
    from its arrival to its end.
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
    n_prefix_tokens: int | None = None
    prefix_file: str | None = None
    max_queue: int = DEFAULT_MAX_QUEUE
    timeout_s: float | None = None


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a server needs to start. `model_alias` is the model's name in the API.

    Without `api_keys` none is asked for. `root_path` is "", or begins with a slash and ends without one.
    `client_timeout_s` limits how long a client sends a request, and how long it reads nothing of its answer.
    """

    engine: EngineConfig
    host: str
    port: int
    model_alias: str
    log_level: str
    pooling: Pooling = "mean"
    tool_format: str = AUTO
    reasoning_format: ReasoningFormat = "auto"
    log_format: LogFormat = "text"
    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    root_path: str = ""
    max_body_bytes: int = 16 * 2**20
    client_timeout_s: float = 30.0
    drain_timeout_s: float = 8.0
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """Lets the target model be given without its flag, to be taken by `take_model`."""
    parser.add_argument("model", metavar="MODEL", nargs="?", help="the target model, as --target-model")


def take_model(arguments: argparse.Namespace, model: str | None) -> None:
    """Makes `model`, if there is one, what --target-model says. Raises ConfigError where both were given."""
    if model is None:
        return
    if hasattr(arguments, "target_model"):
        raise ConfigError(
            f"two target models were given, {model} and {arguments.target_model}",
            remedy="leave one of them out",
        )
    arguments.target_model = model


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
    add_model_argument(parser)
    flags.add_arguments(parser, ServerOptions)
    arguments = parser.parse_args(argv)
    take_model(arguments, arguments.model)
    return server_options(arguments, environ)


def _settle_draft(values: dict[str, object]) -> dict[str, object]:
    """The draft model when none was named: the default target's partner, and none for any other target."""
    draft = values.get("draft_model")
    if draft not in (None, NONE) and values.get("drafter") == NONE:
        raise ConfigError(
            f"a draft model ({draft}) was given, and drafting switched off with the drafter `none`",
            remedy="leave one of them out",
        )
    drafter = str(values.get("drafter", AUTO))
    if draft is None and "target_model" not in values and _wants_draft_model(drafter):
        return values | {"draft_model": DEFAULT_DRAFT_MODEL}
    return values


def _wants_draft_model(drafter: str) -> bool:
    """Whether the default one serves: not where the target is its own, nor for plug-ins that need none."""
    if SELF_DRAFT.search(drafter):
        return False
    names = {piece.partition(":")[0].strip() for piece in re.split("[,+]", drafter)}
    return not names.isdisjoint({AUTO, *MODEL_DRAFTERS})


if __name__ == "__main__":
    sys.stdout.write(flags.markdown_table(ServerOptions))
