"""From what the user asked for to what the engine needs: names become paths, and open choices are made.

Fetches models that are not there yet and reads the header of the target's file. Loads no library of ggml, so
that a server's process never does: devices stay as they were named, and the engine's process looks them up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from gguf import PoolingType

from lucebox import acceptance, draft_length, drafters, hub
from lucebox.access_rules import parse_origin, read_key_file
from lucebox.config import (
    ALL,
    AUTO,
    DEFAULT_CTX_SIZE_LIMIT,
    DEFAULT_SERVER_PARALLEL,
    DRAFT_MODEL_FIELDS,
    FREE_DRAFTERS,
    KEEP,
    MODEL_DRAFTER,
    NONE,
    OFF,
    SELF_DRAFT,
    SUFFIX_DRAFTER,
    EngineConfig,
    EngineOptions,
    ModelConfig,
    Pooling,
    ServerConfig,
    ServerOptions,
)
from lucebox.cores import physical_cores
from lucebox.errors import ConfigError
from lucebox.gguf import read
from lucebox.gguf.context import check_context
from lucebox.gguf.head import check_head_rows, usual_head_rows
from lucebox.gguf.requantise import parse_requantise, parse_type
from lucebox.pinning import pin
from lucebox.text import tool_formats

# (model as named, bytes here, bytes in all)
Progress = Callable[[str, int, int], None]

_POOLINGS: Mapping[int, Pooling] = {
    PoolingType.MEAN: "mean",
    PoolingType.CLS: "cls",
    PoolingType.LAST: "last",
}


def resolve(options: ServerOptions, *, on_progress: Progress | None = None) -> ServerConfig:
    """All that a server needs. Downloads what is missing, reporting to `on_progress`.

    Raises ConfigError, DownloadError or ModelFileError.
    """
    asked = options.engine
    if asked.parallel is None:
        asked = msgspec.structs.replace(asked, parallel=DEFAULT_SERVER_PARALLEL)
    engine = msgspec.structs.replace(
        resolve_engine(asked, on_progress=on_progress),
        max_queue=options.max_queue,
        timeout_s=options.request_timeout,
        prefix_file=_prefix_file(options.prefix_cache_file, options.engine.prefix_cache),
    )
    return ServerConfig(
        engine=engine,
        host=options.host,
        port=options.port,
        model_alias=options.model_alias or model_name(options.engine.target_model),
        pooling=_pooling(engine.target.path) if options.pooling == "auto" else options.pooling,
        log_level=options.log_level,
        tool_format=_checked_tool_format(options.tool_format),
        reasoning_format=options.reasoning_format,
        log_format=options.log_format,
        api_keys=options.api_key + (read_key_file(options.api_key_file) if options.api_key_file else ()),
        cors_origins=tuple(parse_origin(origin) for origin in options.cors_origin),
        root_path=options.root_path,
        max_body_bytes=options.max_body * 2**20,
        client_timeout_s=options.client_timeout,
        drain_timeout_s=options.drain_timeout,
        ssl_certfile=options.ssl_certfile,
        ssl_keyfile=options.ssl_keyfile,
    )


def resolve_engine(options: EngineOptions, *, on_progress: Progress | None = None) -> EngineConfig:
    """All that an engine needs. Downloads what is missing, reporting to `on_progress`.

    Raises ConfigError, DownloadError or ModelFileError.
    """
    options = _settle_free(options)
    drafter, draft_model = _settle_self(options)
    names = _drafters(drafter, draft_model, nobody=options.draft_model == NONE)
    _check_plugins(options)
    target_device = parse_devices(options.target_device, "--target-device")
    draft_device = parse_devices(options.draft_device, "--draft-device")
    quantise = _draft_quantise(options, draft_model)
    workers = parse_workers(options.workers)
    n_threads = options.threads or physical_cores()

    def model(name: str, device: str, n_threads: int) -> ModelConfig:
        path = find_model(name, on_progress=on_progress)
        return ModelConfig(
            path=str(path),
            device=device,
            n_threads=n_threads,
            kv_type=options.kv_type,
            cpu_kernels=options.cpu_kernels,
        )

    target = msgspec.structs.replace(
        model(options.target_model, target_device, n_threads),
        split=parse_split(options.target_split, target_device),
        n_cpu_layers=options.target_cpu_layers,
        cpu_moe=options.cpu_moe,
    )
    draft: ModelConfig | None = None
    if draft_model is not None:
        is_self = SELF_DRAFT.match(draft_model)
        draft = model(
            options.target_model if is_self else draft_model,
            draft_device,
            options.draft_threads or n_threads,
        )
        n_head_rows = _n_head_rows(options.draft_vocab, draft.path)
        draft = msgspec.structs.replace(draft, quantise=quantise, n_head_rows=n_head_rows)
    target, draft = pin(target, draft, options.pin_threads, overlap=options.overlap, workers=workers)
    return EngineConfig(
        target=target,
        draft=draft,
        drafters=names,
        acceptance=options.acceptance,
        draft_length=options.draft_length,
        n_ctx=_n_ctx(options.ctx_size, target.path),
        n_parallel=options.parallel or 1,
        overlap=options.overlap,
        workers=workers,
        fit=options.fit,
        n_prefix_tokens=_n_prefix_tokens(options.prefix_cache),
    )


def parse_devices(text: str, flag: str) -> str:
    """`auto`, or names and numbers of devices, joined by commas; which of them exist, the engine finds out.
    Raises ConfigError."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ConfigError(f"{flag} {text!r} has no name between its commas", remedy="see `lucebox devices`")
    folded = [name.lower() for name in names]
    if len(names) > 1 and AUTO in folded:
        raise ConfigError(f"{flag} {text} mixes `auto` with others", remedy="name all, or only `auto`")
    if twice := next(
        (name for name, fold in zip(names, folded, strict=True) if folded.count(fold) > 1), None
    ):
        raise ConfigError(f"{flag} {text} names {twice} twice", remedy="name each device once")
    return AUTO if folded == [AUTO] else ",".join(names)


def parse_split(text: str | None, device: str) -> tuple[float, ...]:
    """`3,1` as shares, one for each of the devices. Raises ConfigError."""
    if text is None:
        return ()
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        shares = ()
    usable = shares and all(0.0 <= share < math.inf for share in shares) and sum(shares) > 0.0
    if not usable:
        raise ConfigError(
            f"--target-split must be shares such as 3,1, not {text!r}", remedy="give one number per device"
        )
    n_devices = len(device.split(","))
    if device == AUTO or len(shares) != n_devices:
        raise ConfigError(
            f"--target-split {text} has {len(shares)} shares for --target-device {device}",
            remedy="name as many devices as shares",
        )
    return shares


def parse_workers(text: str | None) -> tuple[str, ...]:
    """Addresses as host:port. Raises ConfigError."""
    addresses = [address.strip() for address in (text or "").split(",") if address.strip()]
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ConfigError(f"--workers must name them as host:port, not {address!r}")
    if len(set(addresses)) < len(addresses):
        raise ConfigError(f"--workers {text} names one twice", remedy="name each one once")
    return tuple(addresses)


def find_model(model: str, *, on_progress: Progress | None = None) -> Path:
    """The absolute path of a model's file, fetched if need be. Raises ConfigError or DownloadError."""
    progress = partial(on_progress, model) if on_progress else None
    path = hub.resolve(model, progress=progress).absolute()
    try:
        str(path).encode()
    except UnicodeEncodeError:  # as in a folder named before UTF-8; no message could carry it
        raise ConfigError(f"the path {path} is not valid UTF-8", remedy="rename the file or folder") from None
    return path


def model_name(model: str) -> str:
    """What a model is called in the API: its name, or its file's without folder and ending."""
    return Path(model.removeprefix("hf:")).name.removesuffix(".gguf")


def _settle_free(options: EngineOptions) -> EngineOptions:
    """`--draft-model suffix` is short for a drafter and no draft model. Raises ConfigError."""
    name = (options.draft_model or "").partition(":")[0]
    if name not in FREE_DRAFTERS:
        return options
    if options.drafter not in (AUTO, options.draft_model):
        raise ConfigError(
            f"the drafter {options.drafter!r} contradicts --draft-model {options.draft_model}",
            remedy="leave one of them out",
        )
    return msgspec.structs.replace(options, drafter=options.draft_model, draft_model=NONE)


def _settle_self(options: EngineOptions) -> tuple[str, str | None]:
    """Drafter and draft model, with `self:TYPE` as the latter, whichever of the two named it. Raises
    ConfigError."""
    draft_model = None if options.draft_model == NONE else options.draft_model
    drafter, wanted = SELF_DRAFT.sub(MODEL_DRAFTER, options.drafter), SELF_DRAFT.search(options.drafter)
    if wanted is None:
        return drafter, draft_model
    if draft_model not in (None, wanted[0]):
        raise ConfigError(
            f"the drafter {options.drafter!r} would leave the draft model {draft_model} unused",
            remedy="leave one of them out",
        )
    return drafter, wanted[0]


def _draft_quantise(options: EngineOptions, draft_model: str | None) -> str:
    """The type that the draft model's matrices get. Raises ConfigError."""
    if draft_model is None:
        _check_nothing_for_a_draft_model(options)
        return KEEP
    is_self = SELF_DRAFT.match(draft_model)
    if is_self is None:
        parse_requantise(options.draft_quant)
        return options.draft_quant
    if options.draft_quant != AUTO:
        raise ConfigError(
            f"--draft-quant {options.draft_quant} contradicts the draft model {draft_model}",
            remedy="leave one of them out",
        )
    parse_type(is_self[1])
    return is_self[1]


def _check_nothing_for_a_draft_model(options: EngineOptions) -> None:
    defaults = EngineOptions()
    for field in DRAFT_MODEL_FIELDS:
        value, unset = getattr(options, field), getattr(defaults, field)
        if unset not in (value, str(value).lower()):
            flag = "--" + field.replace("_", "-")
            raise ConfigError(
                f"{flag} {value} is for a draft model, and there is none",
                remedy="name one with --draft-model, or leave it out",
            )


def _n_head_rows(draft_vocab: int | str, draft: str) -> int | None:
    """Tokens that the draft model may guess, None for all. Raises ConfigError or ModelFileError."""
    if draft_vocab == ALL:
        return None
    with read(draft) as file:
        if draft_vocab == AUTO:
            return usual_head_rows(file)
        check_head_rows(file, int(draft_vocab))
    return int(draft_vocab)


def _drafters(drafter: str, draft_model: str | None, *, nobody: bool) -> tuple[str, ...]:
    """Whom the controller may choose from, preferred first; `nobody` where nothing else was asked for.

    Raises ConfigError for unknown names, and when drafter and draft model contradict.
    """
    if drafter == NONE or (drafter == AUTO and nobody):
        arms: tuple[str, ...] = ()
    elif drafter == AUTO:
        both = f"{SUFFIX_DRAFTER},{MODEL_DRAFTER}"
        arms = (SUFFIX_DRAFTER,) if draft_model is None else (MODEL_DRAFTER, SUFFIX_DRAFTER, both)
    else:
        arms = tuple(arm.strip() for arm in drafter.split("+"))
    if len(set(arms)) < len(arms):
        raise ConfigError(f"--drafter {drafter} names one twice", remedy="name each one once")
    names = [name for arm in arms for name in drafters.check(arm)]
    for name in names:
        drafters.check_model(name, has_model=draft_model is not None)
    if draft_model is not None and not any(drafters.get(name).needs_model for name in names):
        raise ConfigError(
            f"the drafter {drafter!r} would leave the draft model {draft_model} unused",
            remedy="use --drafter model, or --draft-model none",
        )
    return arms


def _check_plugins(options: EngineOptions) -> None:
    """Raises ConfigError for a name or option that no plug-in knows, long before a model is loaded."""
    if options.acceptance != AUTO:
        acceptance.create(options.acceptance)
    draft_length.create(options.draft_length)


def _checked_tool_format(name: str) -> str:
    if name != AUTO:
        tool_formats.get(name)
    return name


def _prefix_file(name: str | None, prefix_cache: int | str) -> str | None:
    """Where the prefix cache is kept. Raises ConfigError for what is no file, or has nothing to keep."""
    if name is None:
        return None
    if prefix_cache == OFF:
        raise ConfigError(
            f"--prefix-cache-file {name} would have nothing to keep with --prefix-cache off",
            remedy="leave one of them out",
        )
    path = Path(name).absolute()
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(
            f"--prefix-cache-file {name} cannot be a file", remedy="name one in a folder that exists"
        )
    return str(path)


def _n_prefix_tokens(prefix_cache: int | str) -> int | None:
    """What the prefix cache may keep; None leaves it to the engine."""
    if prefix_cache == OFF:
        return 0
    return None if prefix_cache == AUTO else int(prefix_cache)


def _pooling(target: str) -> Pooling:
    """What the file says of its model. One that was not made for embeddings says nothing, and the states of
    all its tokens tell more of a text than those of the last, which are about what comes next."""
    with read(target) as file:
        kind = file.metadata.get(f"{file.architecture}.pooling_type")
    return _POOLINGS.get(kind, "mean") if isinstance(kind, int) else "mean"


def _n_ctx(ctx_size: int | None, target: str) -> int:
    """Context of one sequence in tokens. Raises ConfigError when the model was not trained for so much."""
    with read(target) as file:
        n_ctx = min(file.n_ctx_train, DEFAULT_CTX_SIZE_LIMIT) if ctx_size is None else ctx_size
        check_context(file, n_ctx)
    return n_ctx
