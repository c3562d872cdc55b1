"""Plans of real models against what they then take, and refusals that come soon."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lucebox.config import ModelConfig
from lucebox.runtime.plan import plan_model
from tests.support.workers import WorkerProcess

ModelPath = Callable[[str], Path]
TOLERANCE = 0.1
MAX_REFUSAL = 6.0  # in units of what it takes to start the server and print its help: a load takes far more
MIB = 2**20

# A child loads as its first argument says, and prints what was planned and what is used, per device.
MEASURE = """
import json, sys
from pathlib import Path
from msgspec.json import decode
from lucebox.config import EngineConfig
from lucebox.engine.planning import settle
from lucebox.engine.model_loading import load_model
from lucebox.runtime.rows import Rows, Want
from lucebox.worker.client import connect

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

config = decode(sys.argv[1], type=EngineConfig)
links = connect(config.workers, print)
fitted = settle(config, shares_vocabulary=True)
before, found, runtimes = anonymous(), {}, []
for role, plan in fitted.plan.models.items():
    config = getattr(fitted.config, role)
    runtime = load_model(config, role, plan.n_ctx, fitted.config.n_parallel, lambda fraction: None)
    runtimes.append(runtime)
    if "forward" in sys.argv:
        runtime.forward(Rows.chain(0, list(range(512)), 0, want_last=Want.LOGITS))
    found[role] = [
        {"device": part.device.name, "used": used, "layers": part.n_layers,
         "planned": (part.weights_bytes, part.kv_bytes, part.compute_bytes)}
        for part, used in zip(plan.devices, runtime.used_bytes(), strict=True)
    ]
print(json.dumps({"models": found, "anonymous": anonymous() - before}))
for owner in (*runtimes, *links):
    owner.close()
"""

# Fills a Vulkan device of ever more memory, and prints by how much each plan overfills it.
FILL = """
import sys
from lucebox.config import ModelConfig
from lucebox.ggml.devices import list_devices
from lucebox.runtime import split
from lucebox.runtime.plan import Planner

devices = list_devices()
gpu = next(device for device in devices if device.name == "Vulkan0")
split.find_devices = lambda spec, known, **options: (gpu, split.own_cpu(devices))
config = ModelConfig(path=sys.argv[1], device="auto", n_threads=1, kv_type="f16")
with Planner(config, devices) as planner:
    for mib in range(50, 450, 10):
        free = {device.pointer: 2**40 for device in devices} | {gpu.pointer: mib << 20}
        plan = planner.plan(config, 8192, 1, free)
        used = [part for part in plan.devices if part.device is gpu]
        print(*(part.n_layers for part in used), *(part.needed_bytes - (mib << 20) for part in used))
"""


def engine(target: dict[str, Any], draft: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    model = {"device": "CPU", "n_threads": 2, "kv_type": "f16"}
    return {
        "target": model | target,
        "draft": None if draft is None else model | draft,
        "drafters": [],
        "acceptance": "auto",
        "draft_length": "auto",
        "n_ctx": 4096,
        "n_parallel": 1,
        **options,
    }


def measured(config: dict[str, Any], *how: str, **environment: str) -> dict[str, Any]:
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, json.dumps(config), *how],
        env={**os.environ, "GOMP_SPINCOUNT": "0", "LP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any]) -> None:
    """Each device's sum is as planned, and each of its parts but for what is small beside the sum."""
    for parts in found["models"].values():
        for part in parts:
            planned, used = part["planned"], part["used"]
            assert abs(sum(planned) - sum(used)) <= TOLERANCE * sum(used), part
            for a, b in zip(planned, used, strict=True):
                assert abs(a - b) <= TOLERANCE * max(b, sum(used) / 4), part


def test_all_on_the_cpu(model_path: ModelPath) -> None:
    found = measured(engine({"path": str(model_path("qwen2.5-coder-1.5b"))}, n_ctx=1024), "forward")
    check(found)
    (part,) = found["models"]["target"]
    assert sum(part["planned"]) > 1000 * MIB
    # What the process really took: weights are packed anew, none of them mapped but the embeddings.
    assert abs(found["anonymous"] - sum(part["planned"])) <= TOLERANCE * sum(part["planned"])


def test_small_keys_and_values(model_path: ModelPath) -> None:
    path = str(model_path("qwen2.5-coder-0.5b"))
    check(measured(engine({"path": path, "kv_type": "q8_0", "quantise": "auto"}, n_ctx=8192)))


def test_layers_on_cpu_and_vulkan(model_path: ModelPath) -> None:
    config = engine({"path": str(model_path("smollm2-135m")), "device": "Vulkan0,CPU", "split": [2.0, 1.0]})
    if "Vulkan0" not in devices(GGML_VK_VISIBLE_DEVICES="0"):
        pytest.skip("no Vulkan device here")
    found = measured(config, GGML_VK_VISIBLE_DEVICES="0")
    check(found)
    assert [(part["device"], part["layers"]) for part in found["models"]["target"]] == [
        ("Vulkan0", 20),
        ("CPU", 10),
    ]


def test_layers_on_cpu_and_a_worker(model_path: ModelPath) -> None:
    target = {"path": str(model_path("smollm2-135m")), "device": "RPC0,CPU", "split": [1.0, 2.0]}
    with WorkerProcess() as worker:
        found = measured(engine(target, workers=[worker.address]))
    check(found)
    assert [(part["device"], part["layers"]) for part in found["models"]["target"]] == [
        ("RPC0", 10),
        ("CPU", 20),
    ]


def test_auto_fills_a_device_and_no_more(model_path: ModelPath) -> None:
    path = str(model_path("smollm2-135m"))
    if "Vulkan0" not in devices(GGML_VK_VISIBLE_DEVICES="0"):
        pytest.skip("no Vulkan device here")
    result = subprocess.run(
        [sys.executable, "-c", FILL, path],
        env={**os.environ, "GGML_VK_VISIBLE_DEVICES": "0"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    filled = [tuple(map(int, line.split())) for line in result.stdout.splitlines() if line]
    n_layers = [n for n, _ in filled]
    assert n_layers == sorted(n_layers)
    assert {4, 15, 30} <= set(n_layers)
    assert all(-20 * MIB < over <= 0 for n, over in filled if n < 29)
    assert all(over <= 0 for _, over in filled)  # the last layer brings the head along


def devices(**environment: str) -> str:
    script = "from lucebox.ggml.devices import list_devices; print([d.name for d in list_devices()])"
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_target_and_draft_model_together(model_path: ModelPath) -> None:
    draft = {"path": str(model_path("qwen2.5-coder-0.5b")), "quantise": "auto"}
    target = {"path": str(model_path("qwen2.5-coder-1.5b"))}
    check(measured(engine(target, draft, n_ctx=8192, n_parallel=2)))


def test_without_our_own_kernels(model_path: ModelPath) -> None:
    found = measured(engine({"path": str(model_path("qwen2.5-coder-1.5b")), "cpu_kernels": "ggml"}))
    check(found)


def test_a_plan_takes_a_fraction_of_a_second(model_path: ModelPath) -> None:
    config = ModelConfig(path=str(model_path("qwen2.5-coder-1.5b")), device="CPU", n_threads=2, kv_type="f16")
    plan_model(config, 4096)  # what ggml does once is no part of it
    took_s = []
    for n_ctx in (8192, 8448, 8704):
        started_s = time.process_time()
        plan_model(config, n_ctx, 4)
        took_s.append(time.process_time() - started_s)
    assert min(took_s) < 0.5


@pytest.mark.parametrize(
    "command", [["lucebox.server", "--port", "0"], ["lucebox", "generate", "hello"], ["lucebox", "inspect"]]
)
def test_what_does_not_fit_is_refused_at_once(model_path: ModelPath, command: list[str]) -> None:
    path = str(model_path("qwen2.5-coder-1.5b"))
    model = [path] if command[-1] == "inspect" else ["--target-model", path]
    size = ["--ctx-size", "32768", "--parallel", "256"]
    started_s = children_cpu_s()
    subprocess.run(
        [sys.executable, "-m", "lucebox.server", "--help"], capture_output=True, timeout=60, check=True
    )
    most_s = MAX_REFUSAL * (children_cpu_s() - started_s)
    took_s = []
    while not took_s or (took_s[-1] >= most_s and len(took_s) < 3):  # others may compute beside us
        started_s = children_cpu_s()
        result = subprocess.run(
            [sys.executable, "-m", *command, *model, *size], capture_output=True, text=True, timeout=60
        )
        took_s.append(children_cpu_s() - started_s)
        assert result.returncode == 1
        last = result.stderr.splitlines()[-1]
        assert "lucebox: not enough memory: CPU has" in last
        assert "KV 229,376" in last
        assert "--parallel" in last
    assert min(took_s) < most_s


def children_cpu_s() -> float:
    """Seconds that the processes computed that we started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
