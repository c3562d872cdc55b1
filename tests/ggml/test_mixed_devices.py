"""Every mix of devices says what the CPU alone says: backends, splits and workers, through whole engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mixed_devices import BLAS, VULKAN, Engine, EngineProcess, need, rss_bytes
from tests.support.tiny_models import write_tiny
from tests.support.workers import WorkerProcess

N_TOKENS = 40
MAX_LOGPROB_ERROR = 0.02  # in nats: Vulkan's attention computes in half precision
# A short prompt, and one of so many rows that BLAS takes its products.
PROMPTS = [[10, 20, 30, 40], [(7 * i) % 250 for i in range(70)]]
COMMON = {"kv_type": "f32", "ctx_size": 256, "threads": 1}
N_CYCLES = 50
MAX_GROWTH_BYTES = 2 << 20  # in the second half: one tiny model left behind each time would be 12 MiB

CPU_AND_VULKAN = {
    "draft on Vulkan": ({"target_device": "CPU", "draft_device": VULKAN}, "CPU", VULKAN),
    "target on Vulkan": ({"target_device": VULKAN, "draft_device": "CPU"}, VULKAN, "CPU"),
    "draft on Vulkan, guessing on while the target verifies": (
        {"target_device": "CPU", "draft_device": VULKAN, "overlap": "on"},
        "CPU",
        VULKAN,
    ),
    "both on Vulkan": ({"target_device": VULKAN, "draft_device": VULKAN}, VULKAN, VULKAN),
    "target on CPU and Vulkan": (
        {"target_device": f"CPU,{VULKAN}", "target_split": "3,1", "draft_device": "CPU"},
        f"{VULKAN} (1 layers), CPU (3 layers)",
        "CPU",
    ),
    "target on Vulkan and CPU": (
        {"target_device": f"{VULKAN},CPU", "target_split": "1,1", "draft_device": VULKAN},
        f"{VULKAN} (2 layers), CPU (2 layers)",
        VULKAN,
    ),
    "last layer of the target on the CPU": (
        {"target_device": VULKAN, "target_cpu_layers": 1, "draft_device": "CPU"},
        f"{VULKAN} (3 layers), CPU (1 layers)",
        "CPU",
    ),
}
BLAS_TOO = {
    "target on CPU and BLAS": (
        {"target_device": f"CPU,{BLAS}", "draft_device": "CPU"},
        "CPU (4 layers)",
        "CPU",
    ),
    "target on Vulkan, CPU and BLAS": (
        {"target_device": f"{VULKAN},CPU,{BLAS}", "target_cpu_layers": 3, "draft_device": "CPU"},
        f"{VULKAN} (1 layers), CPU (3 layers)",
        "CPU",
    ),
}
WORKERS = {
    "draft on a worker": ({"target_device": "CPU", "draft_device": "RPC0"}, "CPU", "RPC0"),
    "draft on a worker, guessing on while the target verifies": (
        {"target_device": "CPU", "draft_device": "RPC0", "overlap": "on"},
        "CPU",
        "RPC0",
    ),
    "target on CPU and a worker": (
        {"target_device": "CPU,RPC0", "target_split": "1,1", "draft_device": "CPU"},
        "RPC0 (2 layers), CPU (2 layers)",
        "CPU",
    ),
    "both on one worker": ({"target_device": "RPC0", "draft_device": "RPC0"}, "RPC0", "RPC0"),
    "target on Vulkan and a worker, draft on the worker": (
        {"target_device": f"{VULKAN},RPC0", "target_split": "1,1", "draft_device": "RPC0"},
        f"{VULKAN} (2 layers), RPC0 (2 layers)",
        "RPC0",
    ),
}


class Mixed:
    """Tiny models, and the process that runs them; a new one where the one before has died."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A layer for each device and more; a draft that is right often, not always.
        shape = {"n_layer": 4, "seed": 1}
        self.models = {
            "target_model": str(write_tiny(folder / "target.gguf", **shape)),
            "draft_model": str(write_tiny(folder / "draft.gguf", **shape, perturbation=0.1)),
        }
        self._process: EngineProcess | None = None

    @property
    def process(self) -> EngineProcess:
        if self._process is None or not self._process.is_alive:
            # Costs and bandwidths measured here are of no use to anybody else. With one arena for all threads
            # it is no matter of luck how much freed memory malloc keeps.
            environ = {"LUCEBOX_CACHE": str(self._folder / "cache"), "MALLOC_ARENA_MAX": "1"}
            self._process = EngineProcess(self._folder / "engine.log", environ)
        return self._process

    def options(self, **options: Any) -> dict[str, Any]:
        draft = {"draft_threads": 1, "draft_quant": "keep", "drafter": "model", "draft_length": "fixed:n=4"}
        return {**COMMON, **self.models, **draft, **options}

    def ask(self, **options: Any) -> Engine:
        return self.process.ask(PROMPTS, N_TOKENS, **self.options(**options))

    def ask_cpu(self) -> Engine:
        """What the CPU says alone, without a draft."""
        alone = {"target_model": self.models["target_model"], "target_device": "CPU", "drafter": "none"}
        return self.process.ask(PROMPTS, N_TOKENS, **COMMON, **alone)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    engines = Mixed(tmp_path_factory.mktemp("mixed"))
    yield engines
    engines.close()


@pytest.fixture(scope="module")
def expected(mixed: Mixed) -> Engine:
    return mixed.ask_cpu()


@pytest.fixture(scope="module")
def worker(mixed: Mixed) -> Iterator[WorkerProcess]:
    with WorkerProcess() as worker:
        yield worker


def check(found: Engine, expected: Engine, target: str, draft: str) -> None:
    assert (found.target, found.draft) == (target, draft)
    for answer, plain in zip(found.answers, expected.answers, strict=True):
        assert answer.tokens == plain.tokens
        assert 0 < answer.n_accepted < N_TOKENS
        for mine, its in zip(answer.top, plain.top, strict=True):
            assert mine[0][1] == pytest.approx(its[0][1], abs=MAX_LOGPROB_ERROR)


def test_all_backends_are_in_one_process(mixed: Mixed) -> None:
    found = mixed.process.devices()
    need(VULKAN, BLAS, found=found)
    assert {"CPU", VULKAN, BLAS} <= set(found)


@pytest.mark.parametrize("case", CPU_AND_VULKAN)
def test_cpu_and_vulkan_say_what_the_cpu_says(mixed: Mixed, expected: Engine, case: str) -> None:
    need(VULKAN, found=mixed.process.devices())
    options, target, draft = CPU_AND_VULKAN[case]
    check(mixed.ask(**options), expected, target, draft)


@pytest.mark.parametrize("case", BLAS_TOO)
def test_blas_beside_them_says_what_the_cpu_says(mixed: Mixed, expected: Engine, case: str) -> None:
    options, target, draft = BLAS_TOO[case]
    need(BLAS, *({VULKAN} & set(options["target_device"].split(","))), found=mixed.process.devices())
    check(mixed.ask(**options), expected, target, draft)


@pytest.mark.parametrize("case", WORKERS)
def test_workers_say_what_the_cpu_says(
    mixed: Mixed, expected: Engine, worker: WorkerProcess, case: str
) -> None:
    options, target, draft = WORKERS[case]
    if VULKAN in target:
        need(VULKAN, found=mixed.process.devices())
    check(mixed.ask(workers=worker.address, **options), expected, target, draft)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["target on Vulkan and CPU", "both on one worker"])
def test_loading_and_unloading_leaks_nothing(tmp_path: Path, case: str) -> None:
    engines = Mixed(tmp_path)
    options, _, _ = {**CPU_AND_VULKAN, **WORKERS}[case]
    with WorkerProcess() as worker, engines.process as process:
        need(VULKAN, found=process.devices())
        if "RPC0" in options.values():
            options = {**options, "workers": worker.address}
        options = engines.options(**options, draft_length="fixed:n=2")
        process.cycle(N_CYCLES // 2, PROMPTS[0], **options)  # fills pools and caches of all sorts
        worker_bytes = rss_bytes(worker.process.pid)
        used = process.cycle(N_CYCLES // 2, PROMPTS[0], **options)
        for name in used[0]:
            before = min(each[name] for each in used[:5])
            assert min(each[name] for each in used[-5:]) - before < MAX_GROWTH_BYTES, name
        assert rss_bytes(worker.process.pid) - worker_bytes < MAX_GROWTH_BYTES
