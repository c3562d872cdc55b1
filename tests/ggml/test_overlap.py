"""A draft model on a device of its own guesses on while the target verifies, and changes no answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mixed_devices import VULKAN, Engine, EngineProcess, need
from tests.support.tiny_models import write_tiny
from tests.support.workers import WorkerProcess

N_TOKENS = 60
PROMPTS = [[10, 20, 30, 40], [7, 14, 21]]


class Pair:
    """A target on the CPU and a draft model elsewhere, in a process of their own."""

    def __init__(self, folder: Path) -> None:
        shape: dict[str, Any] = {"n_layer": 2, "seed": 1}
        self._options = {
            "target_model": str(write_tiny(folder / "target.gguf", **shape)),
            "draft_model": str(write_tiny(folder / "draft.gguf", **shape, perturbation=0.05)),
            "target_device": "CPU",
            "kv_type": "f32",
            "ctx_size": 256,
            "threads": 1,
            "draft_threads": 1,
            "draft_quant": "keep",
            "drafter": "model",
            "draft_length": "fixed:n=3",
        }
        self.process = EngineProcess(folder / "engine.log", {"LUCEBOX_CACHE": str(folder / "cache")})

    def ask(self, overlap: str, **options: Any) -> Engine:
        return self.process.ask(PROMPTS, N_TOKENS, **{**self._options, "overlap": overlap, **options})

    def check(self, n_foreseen: int, **options: Any) -> None:
        """Both ways say the same, one of them ahead of the other's drafts in `n_foreseen` rounds or more."""
        serial, ahead = self.ask("off", **options), self.ask("on", **options)
        assert [a.tokens for a in serial.answers] == [a.tokens for a in ahead.answers]
        assert [a.n_foreseen for a in serial.answers] == [0, 0]
        assert min(a.n_foreseen for a in ahead.answers) >= n_foreseen
        assert all(0 < a.n_accepted < N_TOKENS for a in ahead.answers)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("overlap"))
    yield pair
    pair.process.close()


def test_beside_a_gpu(pair: Pair) -> None:
    need(VULKAN, found=pair.process.devices())
    pair.check(5, target_device=VULKAN, draft_device="CPU")


@pytest.mark.parametrize("devices", [("RPC0", "CPU"), ("CPU", "RPC0")], ids=["target", "draft"])
def test_with_a_worker(pair: Pair, devices: tuple[str, str]) -> None:
    """Asking it takes about as long as such models do, so that little may be begun ahead."""
    target, draft = devices
    with WorkerProcess() as worker:
        pair.check(0, target_device=target, draft_device=draft, workers=worker.address)


def test_on_the_targets_device_there_is_none(pair: Pair) -> None:
    with pytest.raises(pytest.fail.Exception, match="ConfigError: nothing can be guessed while"):
        pair.ask("on", draft_device="CPU")
    ahead = pair.ask("auto", draft_device="CPU")
    assert [a.n_foreseen for a in ahead.answers] == [0, 0]
