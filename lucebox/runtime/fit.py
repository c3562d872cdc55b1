"""What to change about an engine whose models do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from lucebox.config import AUTO, EngineConfig, KvType
from lucebox.errors import ConfigError, OutOfMemoryError
from lucebox.ggml.devices import DeviceKind
from lucebox.runtime.plan import JointPlan

MIN_CTX_SIZE = 2048  # no smaller context is taken unasked
_SMALLER_KV: dict[KvType, tuple[KvType, ...]] = {"f32": ("f16", "q8_0"), "f16": ("q8_0",)}
_MAX_REMEDIES = 3
_MIB = 2**20

Plan = Callable[[EngineConfig], JointPlan]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A configuration that fits, its plan, and the flags that differ from what was asked for."""

    config: EngineConfig
    plan: JointPlan
    changes: tuple[str, ...] = ()


def fit(config: EngineConfig, plan: Plan) -> Fitted:
    """`config` as it is where it fits; else, if it shall `fit`, with a smaller KV type, a smaller context or
    fewer layers on a device, the first of these that suffices.

    Raises OutOfMemoryError with the numbers and the flags that would make it fit.
    """
    planned = plan(config)
    if _fits(planned):
        return Fitted(config, planned)
    fitting = _first_fitting(_ways(config, plan), plan) if config.fit else None
    if fitting is None:
        raise _refusal(config, planned, plan)
    return Fitted(fitting, plan(fitting), _flags(config, fitting))


def _fits(planned: JointPlan) -> bool:
    return all(planned.fits(device) for device in planned.devices())


def _first_fitting(ways: Iterator[EngineConfig], plan: Plan) -> EngineConfig | None:
    return next((way for way in ways if _is_possible(way, plan)), None)


def _is_possible(config: EngineConfig, plan: Plan) -> bool:
    planned = _planned(config, plan)
    return planned is not None and _fits(planned)


def _planned(config: EngineConfig, plan: Plan) -> JointPlan | None:
    """None where a change contradicts the model or what was asked for, as layers may do with shares."""
    try:
        return plan(config)
    except ConfigError:
        return None


def _ways(config: EngineConfig, plan: Plan) -> Iterator[EngineConfig]:
    """What may be tried instead of `config`, what changes least first."""
    smaller_kv = [way for way in _with_smaller_kv(config) if _planned(way, plan) is not None]
    smallest_kv = smaller_kv[-1] if smaller_kv else config
    shorter = list(_with_shorter_context(smallest_kv))
    yield from smaller_kv
    yield from shorter
    for base in (config, smallest_kv, *shorter[-1:]):
        yield from _with_fewer_layers(base, plan)


def _with_smaller_kv(config: EngineConfig) -> Iterator[EngineConfig]:
    for kv_type in _SMALLER_KV.get(config.target.kv_type, ()):
        draft = None if config.draft is None else replace(config.draft, kv_type=kv_type)
        yield replace(config, target=replace(config.target, kv_type=kv_type), draft=draft)


def _with_shorter_context(config: EngineConfig) -> Iterator[EngineConfig]:
    n_ctx = config.n_ctx
    while n_ctx > MIN_CTX_SIZE:
        n_ctx = max(n_ctx // 2, MIN_CTX_SIZE)
        yield replace(config, n_ctx=n_ctx)


def _with_fewer_layers(config: EngineConfig, plan: Plan) -> Iterator[EngineConfig]:
    """With the fewest layers of the target on the CPU that relieve the other devices; then with the draft
    model there, too. Devices that were found by `auto` hold no more than fits anyway."""
    without_draft = (
        [] if config.draft is None else [replace(config, draft=replace(config.draft, device="CPU"))]
    )
    for base in (config, *without_draft):
        if base is not config:
            yield base
        if base.target.device.strip().lower() == AUTO:
            continue
        n_layers = len(plan(base).models["target"].layout.layers)
        given = base.target.n_cpu_layers or 0
        low, high = given + 1, n_layers
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if _relieves(_moved(base, middle), plan) else (middle + 1, high)
        if low <= n_layers:
            yield _moved(base, low)


def _moved(config: EngineConfig, n_cpu_layers: int) -> EngineConfig:
    return replace(config, target=replace(config.target, n_cpu_layers=n_cpu_layers))


def _relieves(config: EngineConfig, plan: Plan) -> bool:
    planned = _planned(config, plan)
    return planned is not None and all(
        planned.fits(device) for device in planned.devices() if device.kind is not DeviceKind.CPU
    )


def _flags(before: EngineConfig, after: EngineConfig) -> tuple[str, ...]:
    """What to write on the command line to get from one to the other."""
    flags = []
    if after.n_ctx != before.n_ctx:
        flags.append(f"--ctx-size {after.n_ctx}")
    if after.target.kv_type != before.target.kv_type:
        flags.append(f"--kv-type {after.target.kv_type}")
    if after.target.n_cpu_layers != before.target.n_cpu_layers:
        flags.append(f"--target-cpu-layers {after.target.n_cpu_layers}")
    if after.n_parallel != before.n_parallel:
        flags.append(f"--parallel {after.n_parallel}")
    if after.draft is None and before.draft is not None:
        flags.append("--draft-model none")
    elif after.draft is not None and before.draft is not None and after.draft.device != before.draft.device:
        flags.append(f"--draft-device {after.draft.device}")
    return tuple(flags)


def _refusal(config: EngineConfig, planned: JointPlan, plan: Plan) -> OutOfMemoryError:
    found = _first_fitting(_ways(config, plan), plan)
    ways = [] if found is None else [found]
    others = (_with_shorter_context(config), _with_fewer_layers(config, plan), _with_less(config))
    for other in others:
        if len(ways) < _MAX_REMEDIES and (way := _first_fitting(other, plan)) is not None:
            ways.append(way)
    written = list(dict.fromkeys(" ".join(_flags(config, way)) for way in ways))
    if found is not None and not config.fit:
        written.append("--fit, which chooses the first of these")
    nothing = (
        "use a smaller model or quantisation, or free memory: no context, KV type or split of layers fits"
    )
    return OutOfMemoryError(
        "not enough memory: " + "; ".join(_lines(planned)),
        remedy=f"use {', or '.join(written)}" if written else nothing,
    )


def _with_less(config: EngineConfig) -> Iterator[EngineConfig]:
    """With fewer sequences, or without a draft model: nothing that `fit` would do by itself."""
    n_parallel = config.n_parallel
    while n_parallel > 1:
        n_parallel //= 2
        yield replace(config, n_parallel=n_parallel)
    if config.draft is not None:
        yield replace(config, draft=None)


def _lines(planned: JointPlan) -> Iterator[str]:
    """For each device, what it has and what would be needed."""
    for device in planned.devices():
        parts = planned.parts(device).items()
        uses = ", ".join(
            f"{role}: weights {part.weights_bytes / _MIB:,.0f} + KV {part.kv_bytes / _MIB:,.0f} + "
            f"compute {part.compute_bytes / _MIB:,.0f}"
            for role, part in parts
        )
        needed, free = planned.needed_bytes(device), planned.free_bytes[device.pointer]
        shared = "".join(f", of the memory that {other} takes from, too" for other in planned.sharing(device))
        figures = f"{free / _MIB:,.0f} MiB free and {needed / _MIB:,.0f} are needed"
        yield f"{device.name} has {figures} ({uses}){shared}"
