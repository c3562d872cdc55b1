"""Which device gets which layers of a model."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from lucebox.config import AUTO
from lucebox.errors import ConfigError
from lucebox.ggml._api import Type
from lucebox.ggml.devices import Device, DeviceKind, find_devices, list_devices
from lucebox.gguf.reader import GgufFile
from lucebox.models.hparams import Hparams
from lucebox.runtime.graphs import ROW_BUCKETS
from lucebox.runtime.key_values import kv_bytes
from lucebox.runtime.layout import Layout
from lucebox.runtime.memory import free_memory

_LAYER = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"blk\.\d+\.\w+_exps\.weight")
_TABLE = "token_embd.weight"
_HEAD = "output.weight"
_F32_BYTES, _F16_BYTES = 4, 2


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Bytes of a model's parts: each layer with its keys and values, the experts among it, the token
    embeddings, the final norm and head, and what computing takes on any device."""

    layers: tuple[int, ...]
    experts: tuple[int, ...]
    input: int
    output: int
    compute: int = 0

    def __post_init__(self) -> None:
        assert self.layers, "a model has layers"
        assert len(self.experts) == len(self.layers)


def read_sizes(file: GgufFile, n_layers: int, *, layer_kv_bytes: int, compute_bytes: int = 0) -> LayerSizes:
    """The sizes of a file's tensors as they are stored, with `layer_kv_bytes` for each layer."""
    layers, experts, rest = [layer_kv_bytes] * n_layers, [0] * n_layers, 0
    for name, info in file.tensors.items():
        match = _LAYER.match(name)
        if match is None:
            rest += info.n_bytes
        elif (layer := int(match[1])) < n_layers:
            layers[layer] += info.n_bytes
            experts[layer] += info.n_bytes if _EXPERTS.fullmatch(name) else 0
    table = file.tensors[_TABLE].n_bytes if _TABLE in file.tensors else 0
    output = rest - table if _HEAD in file.tensors else rest  # a tied head is a second copy of the table
    return LayerSizes(tuple(layers), tuple(experts), table, output, compute_bytes)


def find_layout(
    file: GgufFile,
    hparams: Hparams,
    spec: str,
    *,
    n_cells: int,
    element: Type,
    split: Sequence[float] = (),
    n_cpu_layers: int | None = None,
    cpu_moe: bool = False,
    devices: Sequence[Device] | None = None,
    free_bytes: Mapping[int, int] | None = None,
    n_threads: int | None = None,
    beside: Sequence[Device] = (),
) -> Layout:
    """The layout of a model over the devices that `spec` means: names or numbers joined by commas, or `auto`.

    `n_cells` cells of `element` go along with the layers. `devices` are all that there are, and `free_bytes`,
    by a device's pointer, what each has to give: by default as they are now. `n_threads`, and for a draft
    model the devices of its target, `beside`, are what `auto` asks for. Raises ConfigError and DeviceError.
    """
    if cpu_moe and hparams.experts is None:
        raise ConfigError(
            f"{file.path.name} has no experts that --cpu-moe could keep with the CPU",
            remedy="leave --cpu-moe away, or use --target-cpu-layers",
        )
    known = list_devices() if devices is None else devices
    chosen = find_devices(spec, known, n_threads=n_threads, beside=beside)
    free = free_memory(chosen) if free_bytes is None else free_bytes
    sizes = read_sizes(
        file,
        hparams.n_layers,
        layer_kv_bytes=kv_bytes(hparams, n_cells, element) // hparams.n_layers,
        compute_bytes=_compute_estimate(hparams, n_cells),
    )
    return choose_layout(
        sizes,
        chosen,
        [max(0, free[device.pointer]) for device in chosen],
        cpu=own_cpu(known),
        split=split,
        n_cpu_layers=n_cpu_layers,
        cpu_moe=cpu_moe,
        fills=spec.strip().lower() == AUTO,
    )


def own_cpu(devices: Sequence[Device]) -> Device:
    """This machine's CPU, which ggml always has."""
    return next(d for d in devices if d.is_own_cpu)


def _compute_estimate(hparams: Hparams, n_cells: int) -> int:
    """About what the largest forward takes: its widest activations, and the mask."""
    h, n_rows = hparams, ROW_BUCKETS[-1]
    n_ffn = 3 * h.n_ff
    if h.experts is not None:
        n_ffn = h.experts.n_used * (3 * h.experts.n_ff + 2 * h.n_embd) + 3 * h.experts.n_ff_shared
    n_widest = max(n_ffn, h.n_embd_q + h.n_embd_k + h.n_embd_v) + 4 * h.n_embd
    return n_rows * (n_widest * _F32_BYTES + n_cells * _F16_BYTES)


def choose_layout(
    sizes: LayerSizes,
    devices: Sequence[Device],
    free_bytes: Sequence[int],
    *,
    cpu: Device,
    split: Sequence[float] = (),
    n_cpu_layers: int | None = None,
    cpu_moe: bool = False,
    fills: bool = False,
) -> Layout:
    """The layers of a model on `devices`, in their order, which may hold accelerators and `cpu`.

    `split` has a share of the layers for each device. Without it, `free_bytes` of each decide: in
    proportion, with a layer at least for each that has room, or, where it `fills`, as many on the first as
    fit, then the next. The last `n_cpu_layers`
    layers go to the CPU and `cpu_moe` sends all experts there. The embeddings lie with the CPU where it is
    among the devices, unless all of the model fills the first; the head lies with the last layer. Pure
    arithmetic. Raises ConfigError.
    """
    assert len(free_bytes) == len(devices)
    assert not split or len(split) == len(devices)
    n_layers = len(sizes.layers)
    _check(devices, split, n_cpu_layers, n_layers, cpu)
    accelerators = [device for device in devices if device.kind is DeviceKind.ACCELERATOR]
    parts = [
        _Part(device, free, split[i] if split else 0.0)
        for i, (device, free) in enumerate(zip(devices, free_bytes, strict=True))
        if device.kind is not DeviceKind.ACCELERATOR and (n_cpu_layers is None or not _same(device, cpu))
    ]
    n_shared = n_layers - (n_cpu_layers or 0) if parts else 0
    costs = _costs(sizes, n_shared, cpu_moe=cpu_moe)
    takes_table = not any(_same(part.device, cpu) for part in parts)
    if split:
        owners = _in_proportion([1] * n_shared, [part.share for part in parts])
        _check_all_used(owners, parts, n_layers)
    elif fills and parts:
        room = [part.free_bytes - sizes.compute for part in parts]
        takes_table = sum(costs) + sizes.input <= room[0]
        owners = _filling(costs, room)
    else:
        owners = _in_proportion(costs, [part.free_bytes for part in parts])
        has_room = [part.free_bytes >= max(sizes.layers) + sizes.compute for part in parts]
        owners = _with_each(owners, has_room)
    by_layer = [parts[owner].device for owner in owners] + [cpu] * (n_layers - n_shared)
    return _layout(by_layer, accelerators, cpu, cpu_moe=cpu_moe, takes_table=takes_table)


@dataclass(frozen=True, slots=True)
class _Part:
    """A device that may hold layers."""

    device: Device
    free_bytes: int
    share: float


def _same(a: Device, b: Device) -> bool:
    return a.pointer == b.pointer  # the rest of a Device is of the time of its listing


def _check(
    devices: Sequence[Device], split: Sequence[float], n_cpu_layers: int | None, n_layers: int, cpu: Device
) -> None:
    names = [device.name for device in devices]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{', '.join(names)} names {twice} twice", remedy="name each device once")
    if n_cpu_layers is None:
        return
    if n_cpu_layers > n_layers:
        raise ConfigError(
            f"{n_cpu_layers} layers cannot go to the CPU: the model has {n_layers}",
            remedy=f"use --target-cpu-layers {n_layers} or less",
        )
    shares = zip(devices, split, strict=False)
    if any(share for device, share in shares if _same(device, cpu)):
        raise ConfigError(
            f"both --target-split and --target-cpu-layers {n_cpu_layers} say what {cpu.name} gets",
            remedy="leave one of them out",
        )


def _check_all_used(owners: Sequence[int], parts: Sequence[_Part], n_layers: int) -> None:
    for i, part in enumerate(parts):
        if part.share and i not in owners:
            raise ConfigError(
                f"a share of {part.share:g} gives {part.device.name} none of {n_layers} layers",
                remedy="give it a larger share, or 0",
            )


def _costs(sizes: LayerSizes, n_shared: int, *, cpu_moe: bool) -> list[int]:
    """What each of the first layers takes where it lies; the last of all has the head with it."""
    costs = list(sizes.layers[:n_shared])
    if cpu_moe:
        costs = [cost - experts for cost, experts in zip(costs, sizes.experts, strict=False)]
    if costs and n_shared == len(sizes.layers):
        costs[-1] += sizes.output
    return costs


def _in_proportion(costs: Sequence[int], shares: Sequence[float]) -> list[int]:
    """The owner of each cost: whoever's share of the whole its middle falls into."""
    if not costs:
        return []
    if not any(shares):
        shares = [1.0] * len(shares)
    total, whole = sum(costs), sum(shares)
    ends = [end / whole for end in accumulate(shares)]
    last = max(i for i, share in enumerate(shares) if share)
    middles = [(end - cost / 2) / max(total, 1) for end, cost in zip(accumulate(costs), costs, strict=True)]
    return [min(bisect_right(ends, middle), last) for middle in middles]


def _with_each(owners: Sequence[int], wanted: Sequence[bool]) -> list[int]:
    """`owners` changed so that each wanted one owns something, as long as another has more than one."""
    counts = [owners.count(owner) for owner in range(len(wanted))]
    for owner, is_wanted in enumerate(wanted):
        if is_wanted and not counts[owner] and max(counts) > 1:
            counts[counts.index(max(counts))] -= 1
            counts[owner] = 1
    return [owner for owner, n in enumerate(counts) for _ in range(n)]


def _filling(costs: Sequence[int], room: Sequence[int]) -> list[int]:
    """The owner of each cost: the first that has room, in order. The last takes whatever is left."""
    owners, owner, used = [], 0, 0
    for cost in costs:
        while owner < len(room) - 1 and used + cost > room[owner]:
            owner, used = owner + 1, 0
        owners.append(owner)
        used += cost
    return owners


def _layout(
    by_layer: Sequence[Device],
    accelerators: Sequence[Device],
    cpu: Device,
    *,
    cpu_moe: bool,
    takes_table: bool,
) -> Layout:
    """`takes_table`: where one device has all layers, it has the embeddings, too."""
    holders = list({device.pointer: device for device in by_layer if not _same(device, cpu)}.values())
    has_cpu = any(_same(device, cpu) for device in by_layer)
    if len(holders) + has_cpu == 1 and not accelerators and (has_cpu or (takes_table and not cpu_moe)):
        return Layout.single(by_layer[0], len(by_layer))
    devices = (*holders, *accelerators, cpu)
    index = {device.pointer: i for i, device in enumerate(devices)}
    layers = tuple(index[device.pointer] for device in by_layer)
    last = len(devices) - 1
    experts = (last,) * len(layers) if cpu_moe else layers
    return Layout(devices, layers, input=last, output=layers[-1], experts=experts)
