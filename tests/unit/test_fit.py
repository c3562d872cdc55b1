"""What is changed, or advised, when models do not fit; with arithmetic in place of ggml."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace as replace_device
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lucebox.config import EngineConfig, ModelConfig
from lucebox.errors import ConfigError, OutOfMemoryError
from lucebox.ggml.devices import Device, DeviceKind
from lucebox.runtime.fit import fit
from lucebox.runtime.layout import Layout
from lucebox.runtime.memory import share_memory
from lucebox.runtime.plan import DevicePlan, JointPlan, ModelPlan
from lucebox.runtime.split import LayerSizes, choose_layout

MIB = 2**20
CPU = Device(0, "CPU", "a CPU", DeviceKind.CPU, 0, 0, pointer=1)
GPU = Device(1, "GPU", "a GPU", DeviceKind.GPU, 0, 0, pointer=2)
KV_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 1.0625, "q4_0": 0.5625}
N_LAYERS = {"target": 20, "draft": 10}
LAYER_BYTES = 50 * MIB
CELL_BYTES = 512  # per layer and byte of an element


def model(device: str = "CPU", **options: Any) -> ModelConfig:
    return ModelConfig(path="m.gguf", device=device, n_threads=2, **{"kv_type": "f16", **options})


def engine(target: ModelConfig, draft: ModelConfig | None = None, **options: Any) -> EngineConfig:
    usual: dict[str, Any] = {"drafters": (), "acceptance": "auto", "draft_length": "auto", "n_ctx": 8192}
    return EngineConfig(target=target, draft=draft, **{**usual, "n_parallel": 1, **options})


def planner(cpu_mib: int, gpu_mib: int = 0) -> Callable[[EngineConfig], JointPlan]:
    """Plans for a machine with so much memory: 50 MiB a layer, 10 to compute, and the cells."""
    free = {CPU.pointer: cpu_mib * MIB, GPU.pointer: gpu_mib * MIB}

    def plan(config: EngineConfig) -> JointPlan:
        models = {"target": planned(config, config.target, "target")}
        if config.draft is not None:
            models["draft"] = planned(config, config.draft, "draft")
        return JointPlan(models, free)

    def planned(config: EngineConfig, of: ModelConfig, role: str) -> ModelPlan:
        n_cells = config.n_ctx * config.n_parallel
        kv = int(n_cells * CELL_BYTES * KV_BYTES[of.kv_type])
        n = N_LAYERS[role]
        devices = [{"CPU": CPU, "GPU": GPU}[name] for name in of.device.split(",")]
        layout = choose_layout(
            LayerSizes((LAYER_BYTES + kv,) * n, (0,) * n, 0, 0),
            devices,
            [free[device.pointer] for device in devices],
            cpu=CPU,
            split=of.split,
            n_cpu_layers=of.n_cpu_layers,
        )
        parts = [
            DevicePlan(device, m, m * LAYER_BYTES, 0, m * kv, 10 * MIB)
            for i, device in enumerate(layout.devices)
            for m in [layout.layers.count(i)]
        ]
        return ModelPlan(of.path, layout, config.n_ctx, n_cells, of.kv_type, tuple(parts))

    return plan


# The target takes 1000 MiB of weights, 160 of cells and 10 to compute; with q8_0 the cells take 85.
def test_what_fits_stays_as_it_is() -> None:
    config = engine(model(), fit=True)
    fitted = fit(config, planner(1170))
    assert fitted.config == config
    assert fitted.changes == ()
    assert fitted.plan.needed_bytes(CPU) == 1170 * MIB


def test_a_smaller_kv_type_comes_first() -> None:
    fitted = fit(engine(model(), fit=True), planner(1100))
    assert fitted.changes == ("--kv-type q8_0",)
    assert fitted.config.target.kv_type == "q8_0"


def test_the_draft_model_takes_the_same_kv_type() -> None:
    fitted = fit(engine(model(), model(), fit=True), planner(1700))
    assert fitted.config.draft is not None
    assert fitted.config.draft.kv_type == "q8_0"


def test_f32_may_become_f16() -> None:
    assert fit(engine(model(kv_type="f32"), fit=True), planner(1200)).changes == ("--kv-type f16",)


def test_then_a_smaller_context() -> None:
    fitted = fit(engine(model(), fit=True), planner(1053))
    assert fitted.changes == ("--ctx-size 4096", "--kv-type q8_0")
    assert fitted.config.n_ctx == 4096


def test_q4_0_stays_and_the_context_is_halved_at_once() -> None:
    assert fit(engine(model(kv_type="q4_0"), fit=True), planner(1034)).changes == ("--ctx-size 4096",)


def test_a_kv_type_that_the_model_cannot_have_is_passed_over() -> None:
    def plan(config: EngineConfig) -> JointPlan:
        if config.target.kv_type == "q8_0":
            raise ConfigError("no whole blocks")
        return planner(1053)(config)

    assert fit(engine(model(), fit=True), plan).changes == ("--ctx-size 2048",)


def test_then_fewer_layers_on_the_device_and_nothing_else() -> None:
    fitted = fit(engine(model("GPU"), fit=True), planner(4000, 600))
    assert fitted.changes == ("--target-cpu-layers 10",)  # 10 of 58 MiB and 10 to compute
    assert fit(engine(model("GPU", n_cpu_layers=4), fit=True), planner(4000, 600)).changes == fitted.changes


def test_the_cpu_must_have_room_for_its_layers() -> None:
    fitted = fit(engine(model("GPU"), fit=True), planner(555, 600))
    assert fitted.changes == ("--kv-type q8_0", "--target-cpu-layers 10")


def test_the_draft_model_may_have_to_leave() -> None:
    config = engine(model("GPU", n_cpu_layers=20), model("GPU"), fit=True)
    fitted = fit(config, planner(4000, 100))
    assert fitted.changes == ("--draft-device CPU",)


def test_the_smallest_context_is_not_undercut() -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        fit(engine(model(), fit=True, n_ctx=2048), planner(1000))
    assert "no context, KV type or split of layers fits" in caught.value.remedy


@given(
    st.integers(100, 3000),
    st.integers(100, 3000),
    st.sampled_from(["CPU", "GPU", "GPU,CPU", "CPU,GPU"]),
    st.sampled_from(["CPU", "GPU", None]),
    st.sampled_from(["f32", "f16", "q8_0", "q4_0"]),
    st.sampled_from([512, 2048, 3000, 8192, 65536]),
    st.integers(1, 8),
    st.none() | st.integers(0, 20),
)
def test_what_was_fitted_fits_and_what_is_advised_would(
    cpu_mib: int,
    gpu_mib: int,
    device: str,
    draft_device: str | None,
    kv_type: Any,
    n_ctx: int,
    n_parallel: int,
    n_cpu_layers: int | None,
) -> None:
    plan = planner(cpu_mib, gpu_mib)
    draft = None if draft_device is None else model(draft_device, kv_type=kv_type)
    target = model(device, kv_type=kv_type, n_cpu_layers=n_cpu_layers)
    config = engine(target, draft, n_ctx=n_ctx, n_parallel=n_parallel)
    try:
        fitted = fit(replace(config, fit=True), plan)
    except OutOfMemoryError:
        pass  # what it advises is of another test
    else:
        assert all(fitted.plan.fits(used) for used in fitted.plan.devices())
        assert fitted.config.n_ctx >= min(n_ctx, 2048)
        assert (fitted.changes == ()) == (fitted.config == replace(config, fit=True))
    for way in advised(config, plan):
        planned = plan(way)
        assert all(planned.fits(used) for used in planned.devices())


def advised(config: EngineConfig, plan: Callable[[EngineConfig], JointPlan]) -> Iterator[EngineConfig]:
    """`config` changed by each set of flags that a refusal of it names."""
    try:
        fit(config, plan)
    except OutOfMemoryError as error:
        for flags in error.remedy.removeprefix("use ").split(", or "):
            if flags.startswith("--") and not flags.startswith("--fit"):
                yield changed(config, flags.split())


def changed(config: EngineConfig, words: list[str]) -> EngineConfig:
    for flag, value in zip(words[::2], words[1::2], strict=True):
        draft = config.draft
        match flag:
            case "--ctx-size":
                config = replace(config, n_ctx=int(value))
            case "--parallel":
                config = replace(config, n_parallel=int(value))
            case "--target-cpu-layers":
                config = replace(config, target=replace(config.target, n_cpu_layers=int(value)))
            case "--kv-type":
                draft = draft and replace(draft, kv_type=value)
                config = replace(config, target=replace(config.target, kv_type=value), draft=draft)
            case "--draft-device":
                config = replace(config, draft=draft and replace(draft, device=value))
            case "--draft-model":
                config = replace(config, draft=None)
            case _:
                raise AssertionError(flag)
    return config


def test_a_refusal_has_the_numbers_and_flags_that_fit() -> None:
    config = engine(model(), model(), n_parallel=4)
    plan = planner(2100)
    with pytest.raises(OutOfMemoryError) as caught:
        fit(config, plan)
    assert caught.value.message == (
        "not enough memory: CPU has 2,100 MiB free and 2,480 are needed (target: weights 1,000 + KV 640 + "
        "compute 10, draft: weights 500 + KV 320 + compute 10)"
    )
    assert caught.value.remedy == (
        "use --kv-type q8_0, or --ctx-size 4096, or --parallel 2, or --fit, which chooses the first of these"
    )
    for changed in (
        replace(config, target=model(kv_type="q8_0"), draft=model(kv_type="q8_0")),
        replace(config, n_ctx=4096),
        replace(config, n_parallel=2),
    ):
        assert plan(changed).fits(CPU)


def test_every_device_that_is_used_is_named() -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        fit(engine(model("GPU"), model("CPU")), planner(100, 100))
    assert "GPU has 100 MiB free and 1,170 are needed (target:" in caught.value.message
    assert "CPU has 100 MiB free and 590 are needed (draft:" in caught.value.message


def test_devices_of_one_memory_are_added_up() -> None:
    chip = replace_device(GPU, hardware="0000:01:00.0"), replace_device(CPU, hardware="0000:01:00.0")
    plans = [ModelPlan("m", Layout.single(d, 1), 1, 1, "f16", (DevicePlan(d, 1, 60, 0, 0, 0),)) for d in chip]
    plan = JointPlan(dict(zip(("target", "draft"), plans, strict=True)), {1: 100, 2: 100})
    assert not plan.fits(chip[0])
    assert plan.sharing(chip[0]) == [chip[1]]
    integrated = replace_device(GPU, kind=DeviceKind.INTEGRATED_GPU)
    assert share_memory(integrated, CPU)
    assert not share_memory(GPU, CPU)
    assert not share_memory(replace_device(CPU, worker="host:1", pointer=3), integrated)


def test_what_contradicts_the_shares_is_not_advised() -> None:
    config = engine(model("GPU,CPU", split=(1.0, 1.0)))
    with pytest.raises(OutOfMemoryError) as caught:
        fit(config, planner(2000, 300))
    assert "--target-cpu-layers" not in caught.value.remedy
