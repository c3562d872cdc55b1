"""Which cores the threads of each model get."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from lucebox import pinning as module
from lucebox.config import ModelConfig, Overlap, Pinning
from lucebox.pinning import pin

HERE = ("127.0.0.1:50052",)


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "can_pin", lambda: True)
    monkeypatch.setattr(module, "open_cores", lambda: [(0, 4), (1, 5), (2, 6), (3, 7)])
    monkeypatch.setattr(module, "logical_cores", lambda: 8)


def model(device: str, n_threads: int) -> ModelConfig:
    return ModelConfig(path="m.gguf", device=device, n_threads=n_threads, kv_type="f16")


def cores(
    target: ModelConfig,
    draft: ModelConfig | None,
    pinning: Pinning,
    overlap: Overlap = "auto",
    workers: Sequence[str] = (),
) -> object:
    first, second = pin(target, draft, pinning, overlap=overlap, workers=workers)
    return first.cores, None if second is None else second.cores


CPU, GPU, FAR = model("CPU", 3), model("CUDA0", 1), model("RPC0", 1)


def test_auto_leaves_threads_alone_without_company() -> None:
    assert cores(CPU, None, "auto") == ((), None)
    assert cores(CPU, model("CPU", 2), "auto") == ((), ())
    assert cores(CPU, GPU, "auto") == ((), ())
    assert cores(CPU, FAR, "auto", workers=["192.168.0.7:50052"]) == ((), ())
    assert cores(CPU, FAR, "auto", "off", HERE) == ((), ())


def test_auto_keeps_clear_of_a_worker_on_this_machine() -> None:
    assert cores(CPU, FAR, "auto", workers=HERE) == ((0, 1, 2), (3,))
    assert cores(CPU, FAR, "auto", workers=["localhost:50052"]) == ((0, 1, 2), (3,))


def test_models_on_devices_of_their_own_get_cores_of_their_own() -> None:
    assert cores(CPU, GPU, "on") == ((0, 1, 2), (3,))
    assert cores(GPU, CPU, "on") == ((0,), (1, 2, 3))


def test_models_that_take_turns_share_their_cores() -> None:
    assert cores(CPU, None, "on") == ((0, 1, 2), None)
    assert cores(model("CPU", 1), model("CPU", 2), "on") == ((0, 1), (0, 1))
    assert cores(CPU, GPU, "on", "off") == ((0, 1, 2), (0, 1, 2))


def test_off_is_off() -> None:
    assert cores(CPU, FAR, "off", workers=HERE) == ((), ())


def test_too_few_cores_are_told(caplog: pytest.LogCaptureFixture) -> None:
    busy = model("RPC0", 6)
    assert cores(CPU, busy, "on") == ((), ())
    assert "3 and 6 threads are not kept on cores: there are 4" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert cores(CPU, busy, "auto", workers=HERE) == ((), ())
    assert not caplog.text


def test_systems_that_pin_nothing_say_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "can_pin", lambda: False)
    assert cores(CPU, GPU, "auto") == ((), ())
    assert not caplog.text
    assert cores(CPU, GPU, "on") == ((), ())
    assert "--pin-threads does nothing" in caplog.text


def test_more_threads_than_cores_are_told(caplog: pytest.LogCaptureFixture) -> None:
    pin(model("CPU", 8), None, "auto", overlap="auto", workers=())
    assert not caplog.text
    pin(CPU, model("CPU", 9), "off", overlap="auto", workers=())
    assert "--draft-threads 9 is more than the 8 cores" in caplog.text
