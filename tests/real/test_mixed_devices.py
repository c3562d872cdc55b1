"""SmolLM2 on mixed devices: the text of the CPU alone, up to ties in the kernels of different backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.mixed_devices import VULKAN, Answer, EngineProcess, need
from tests.support.workers import WorkerProcess

# Kernels of two backends round differently, and move logits by up to 0.4, so that closer pairs may swap.
MAX_TIED_GAP = 0.5
N_TOKENS = 8  # a software Vulkan takes half a second for each row
PROMPT = "The first three planets of the solar system are"

# The draft model is the target once more, re-quantised.
CASES = {
    "draft on Vulkan": {"target_device": "CPU", "draft_device": VULKAN},
    "target on Vulkan": {"target_device": VULKAN, "draft_device": "CPU"},
    "target on CPU and Vulkan": {
        "target_device": f"CPU,{VULKAN}",
        "target_split": "9,1",
        "draft_device": "CPU",
    },
    "target on Vulkan and CPU": {
        "target_device": f"{VULKAN},CPU",
        "target_split": "1,9",
        "draft_device": "CPU",
    },
    "draft on a worker": {"target_device": "CPU", "draft_device": "RPC0"},
    "target on CPU and a worker": {"target_device": "CPU,RPC0", "target_split": "1,1", "draft_device": "CPU"},
    "both on one worker": {"target_device": "RPC0", "draft_device": "RPC0"},
}


@pytest.fixture(scope="module")
def model(model_path: Callable[[str], Path]) -> str:
    return str(model_path("smollm2-135m"))


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    with EngineProcess(tmp_path_factory.mktemp("mixed") / "engine.log") as process:
        yield process


@pytest.fixture(scope="module")
def expected(process: EngineProcess, model: str) -> Answer:
    """What the CPU says alone, without a draft."""
    found = process.ask(
        [PROMPT], N_TOKENS, target_model=model, target_device="CPU", drafter="none", threads=1
    )
    return found.answers[0]


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess() as worker:
        yield worker


def ask(process: EngineProcess, model: str, **options: str) -> Answer:
    found = process.ask(
        [PROMPT],
        N_TOKENS,
        target_model=model,
        draft_model="self:q4_0",
        drafter="model",
        draft_length="fixed:n=2",
        ctx_size=256,
        threads=1,
        **options,
    )
    return found.answers[0]


def check(answer: Answer, expected: Answer) -> None:
    assert answer.n_accepted > 0
    assert len(answer.tokens) == len(expected.tokens) == N_TOKENS
    pairs = zip(answer.tokens, expected.tokens, strict=True)
    n_same = next((i for i, (a, b) in enumerate(pairs) if a != b), N_TOKENS)
    if n_same < N_TOKENS:
        gap = min(answer.gap(n_same), expected.gap(n_same))
        print(f"first difference at token {n_same}, where the two likeliest are {gap:.3f} apart")
        assert gap < MAX_TIED_GAP
    for mine, its in zip(answer.top[:n_same], expected.top[:n_same], strict=True):
        assert mine[0][1] == pytest.approx(its[0][1], abs=MAX_TIED_GAP)


@pytest.mark.parametrize("case", [name for name in CASES if "worker" not in name])
def test_smollm2_on_cpu_and_vulkan_says_what_it_says_on_the_cpu(
    process: EngineProcess, model: str, expected: Answer, case: str
) -> None:
    need(VULKAN, found=process.devices())
    check(ask(process, model, **CASES[case]), expected)


@pytest.mark.parametrize("case", [name for name in CASES if "worker" in name])
def test_smollm2_on_a_worker_says_what_it_says_on_the_cpu(
    process: EngineProcess, model: str, expected: Answer, worker: WorkerProcess, case: str
) -> None:
    check(ask(process, model, workers=worker.address, **CASES[case]), expected)
