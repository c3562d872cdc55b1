"""Layers over devices: every one has a device, in order, by share or by memory."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucebox.errors import ConfigError
from lucebox.ggml.devices import Device, DeviceKind
from lucebox.runtime.layout import Layout
from lucebox.runtime.split import LayerSizes, choose_layout


def device(name: str, kind: DeviceKind = DeviceKind.GPU, free: int = 0) -> Device:
    return Device(0, name, name, kind, free, free, pointer=hash(name))


CPU = device("CPU", DeviceKind.CPU)
GPU0, GPU1, GPU2 = device("GPU0"), device("GPU1"), device("GPU2")
BLAS = device("BLAS", DeviceKind.ACCELERATOR)
TEN = LayerSizes((100,) * 10, (60,) * 10, input=50, output=50)


def choose(
    devices: list[Device], free: list[int] | None = None, sizes: LayerSizes = TEN, **how: Any
) -> Layout:
    return choose_layout(sizes, devices, free or [10**6] * len(devices), cpu=CPU, **how)


def names(layout: Layout) -> list[str]:
    return [layout.devices[i].name for i in layout.layers]


@st.composite
def requests(draw: st.DrawFn) -> tuple[LayerSizes, list[Device], list[int], dict[str, Any]]:
    layers = draw(st.lists(st.integers(1, 10**9), min_size=1, max_size=40))
    sizes = LayerSizes(
        tuple(layers),
        tuple(layer // 2 for layer in layers),
        draw(st.integers(0, 10**9)),
        draw(st.integers(0, 10**9)),
        draw(st.integers(0, 10**8)),
    )
    devices = draw(st.lists(st.sampled_from([CPU, GPU0, GPU1, GPU2, BLAS]), min_size=1, unique=True))
    free = draw(st.lists(st.integers(0, 10**11), min_size=len(devices), max_size=len(devices)))
    n_cpu_layers = draw(st.none() | st.integers(0, len(layers)))
    how = {"n_cpu_layers": n_cpu_layers, "cpu_moe": draw(st.booleans()), "fills": draw(st.booleans())}
    return sizes, devices, free, how


@given(requests())
def test_every_layer_has_a_device_in_the_order_of_the_list(request: Any) -> None:
    sizes, devices, free, how = request
    layout = choose_layout(sizes, devices, free, cpu=CPU, **how)
    assert len(layout.layers) == len(sizes.layers)
    on_cpu = how["n_cpu_layers"]
    order = [d.name for d in devices if on_cpu is None or d is not CPU] + ["CPU"]
    places = [order.index(name) for name in names(layout)]
    assert places == sorted(places)
    if on_cpu is not None and set(names(layout)) != {"CPU"}:
        assert names(layout).count("CPU") == on_cpu
    assert all(layout.devices[i].kind is not DeviceKind.ACCELERATOR for i in (*layout.layers, layout.input))
    assert layout.output == layout.layers[-1]
    assert len(layout.devices) == 1 or layout.devices[-1] is CPU
    if how["cpu_moe"]:
        assert {layout.devices[i] for i in layout.experts} == {CPU}
    else:
        assert layout.experts == layout.layers
    idle = set(layout.devices) - {layout.devices[i] for i in layout.layers}
    assert all(d is CPU or d is BLAS for d in idle)
    assert choose_layout(sizes, devices, free, cpu=CPU, **how) == layout


@given(st.integers(1, 80), st.lists(st.floats(0.0, 100.0), min_size=1, max_size=4).filter(any))
def test_shares_are_kept_within_one_layer(n_layers: int, shares: list[float]) -> None:
    sizes = LayerSizes((7,) * n_layers, (0,) * n_layers, 3, 900)
    devices = [GPU0, CPU, GPU1, GPU2][: len(shares)]
    if any(0 < share * n_layers < sum(shares) for share in shares):  # some share is less than a layer
        with contextlib.suppress(ConfigError):
            choose(devices, sizes=sizes, split=shares)
        return
    found = names(choose(devices, sizes=sizes, split=shares))
    for d, share in zip(devices, shares, strict=True):
        assert abs(found.count(d.name) - n_layers * share / sum(shares)) <= 1 + 1e-6
        assert share or d.name not in found


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_counts_of_layers_are_shares_that_give_just_these_counts(counts: list[int]) -> None:
    sizes = LayerSizes((7,) * sum(counts), (0,) * sum(counts), 3, 900)
    devices = [GPU0, CPU, GPU1, GPU2][: len(counts)]
    found = names(choose(devices, sizes=sizes, split=counts))
    assert [found.count(d.name) for d in devices] == counts


@given(requests())
def test_filling_never_overfills_a_device_that_is_not_the_last(request: Any) -> None:
    sizes, devices, free, how = request
    layout = choose_layout(sizes, devices, free, cpu=CPU, **how | {"fills": True, "cpu_moe": False})
    holders = [
        i for i, d in enumerate(devices) if d is not BLAS and (how["n_cpu_layers"] is None or d is not CPU)
    ]
    for i in holders[:-1]:
        mine = [layer for layer, name in enumerate(names(layout)) if name == devices[i].name]
        taken = sum(sizes.layers[layer] for layer in mine)
        if mine and layout.devices[layout.output] == devices[i]:
            taken += sizes.output
        if mine and layout.is_single and devices[i] is not CPU:
            taken += sizes.input
        assert not mine or taken + sizes.compute <= free[i]


def test_memory_decides_where_no_shares_are_given() -> None:
    assert names(choose([GPU0, GPU1], [300, 100])) == ["GPU0"] * 8 + ["GPU1"] * 2  # the head weighs, too
    assert names(choose([CPU, GPU0], [100, 100])) == ["CPU"] * 5 + ["GPU0"] * 5
    assert names(choose([GPU0, GPU1], [0, 0])) == ["GPU0"] * 5 + ["GPU1"] * 5


def test_every_device_that_was_named_gets_a_layer_if_it_has_room() -> None:
    assert names(choose([CPU, GPU0], [10**6, 200])) == ["CPU"] * 9 + ["GPU0"]
    assert names(choose([CPU, GPU0], [10**6, 99])) == ["CPU"] * 10


def test_pairs_of_neighbours_are_on_one_device_but_for_the_borders() -> None:
    found = names(choose([GPU0, GPU1, GPU2], [100, 100, 100]))
    assert sum(a != b for a, b in pairwise(found)) == 2


def test_one_device_has_all() -> None:
    assert choose([GPU0]) == Layout.single(GPU0, 10)
    assert choose([CPU], n_cpu_layers=3) == Layout.single(CPU, 10)
    assert choose([GPU0, CPU], n_cpu_layers=0) == Layout.single(GPU0, 10)
    assert choose([GPU0], n_cpu_layers=0) == Layout.single(GPU0, 10)


def test_the_cpu_has_the_embeddings_where_it_is_named() -> None:
    layout = choose([GPU0, CPU], split=(1, 0))
    assert names(layout) == ["GPU0"] * 10
    assert layout.devices[layout.input] is CPU


def test_filling_takes_the_first_where_everything_fits() -> None:
    assert choose([GPU0, CPU], [1100, 10**6], fills=True) == Layout.single(GPU0, 10)
    assert choose([CPU, GPU0], [1050, 10**6], fills=True) == Layout.single(CPU, 10)


def test_filling_leaves_the_embeddings_to_the_cpu_before_any_layer() -> None:
    layout = choose([GPU0, CPU], [1060, 10**6], fills=True)
    assert names(layout) == ["GPU0"] * 10
    assert layout.devices[layout.input] is CPU


def test_filling_spills_to_the_next() -> None:
    layout = choose([GPU0, GPU1, CPU], [520, 310, 10**6], fills=True)
    assert names(layout) == ["GPU0"] * 5 + ["GPU1"] * 3 + ["CPU"] * 2
    assert str(layout) == "GPU0 (5 layers), GPU1 (3 layers), CPU (2 layers)"


def test_what_computing_takes_is_kept_free() -> None:
    sizes = LayerSizes((100,) * 10, (0,) * 10, 50, 50, compute=200)
    layout = choose([GPU0, CPU], [520, 10**6], sizes, fills=True)
    assert names(layout).count("GPU0") == 3


def test_experts_on_the_cpu_leave_room_for_layers() -> None:
    layout = choose([GPU0, CPU], [500, 10**6], fills=True, cpu_moe=True)
    assert names(layout) == ["GPU0"] * 10
    assert {layout.devices[i] for i in layout.experts} == {CPU}


def test_accelerators_hold_nothing_and_stand_before_the_cpu() -> None:
    layout = choose([BLAS, GPU0, CPU], n_cpu_layers=4)
    assert [d.name for d in layout.devices] == ["GPU0", "BLAS", "CPU"]
    assert names(layout) == ["GPU0"] * 6 + ["CPU"] * 4
    assert names(choose([BLAS])) == ["CPU"] * 10


def test_a_fallback_stands_behind_the_only_device() -> None:
    layout = Layout.single(GPU0, 2).with_cpu(CPU)
    assert layout.devices == (GPU0, CPU)
    assert (layout.layers, layout.input, layout.output) == ((0, 0), 1, 0)


@pytest.mark.parametrize(
    ("devices", "how", "problem"),
    [
        ([GPU0], {"n_cpu_layers": 11}, "the model has 10"),
        ([GPU0, GPU1], {"split": (100, 1)}, "a share of 1 gives GPU1 none of 10 layers"),
        ([GPU0, CPU], {"split": (1, 1), "n_cpu_layers": 2}, "both --target-split and --target-cpu-layers"),
        ([GPU0, GPU0], {}, "names GPU0 twice"),
    ],
)
def test_what_cannot_be_is_refused(devices: list[Device], how: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        choose(devices, **how)
    assert caught.value.remedy
