"""Runtimes over several devices, computed in a process of its own whose environment admits Vulkan.

`python -m tests.support.split_models FOLDER` computes every case and writes what came out to FOLDER.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucebox.ggml import _api
from lucebox.ggml._api import Op
from lucebox.ggml.device import Device
from lucebox.ggml.devices import list_devices
from lucebox.runtime import runtime as runtime_module
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from tests.support.mixed_devices import rss_bytes
from tests.support.tiny_models import write_tiny

N_LAYERS = 4
N_CYCLES = 50
LACKING = {
    "cells": {Op.SET_ROWS},
    "attention": {Op.FLASH_ATTN_EXT},
    "rope": {Op.ROPE, Op.GLU, Op.ADD},
    "matrices": {Op.MUL_MAT},
    "everything": set(Op),
}


def tokens(n: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 250, n)]


def work(runtime: Runtime) -> list[NDArray[np.float32]]:
    """What a prompt in chunks, trees, forks and a context beyond the first cells give."""
    found = []
    prompt = tokens(70)
    output = runtime.forward(Rows.chain(0, prompt, 0, want_all=Want.HIDDEN))
    assert output.hidden is not None
    found += [output.logits.copy(), output.hidden.copy()]
    runtime.cache.commit(0, range(70))
    tree = Rows.tree(0, [1, 2, 3, 4, 5, 6, 7], [-1, 0, 0, 1, 1, 2, -1], 70)
    tree.wants[3] = Want.NOTHING
    found.append(runtime.forward(tree).logits.copy())
    runtime.cache.commit(0, [0, 2])
    runtime.cache.fork(0, 1)
    for token in range(3):
        found.append(runtime.forward(Rows.chain(1, [token], 72 + token)).logits.copy())
        runtime.cache.commit(1, [0])
    runtime.forward(Rows.chain(0, tokens(190), 72, want_last=Want.NOTHING))
    runtime.cache.commit(0, range(190))
    both = Rows.concatenate([Rows.chain(0, [5], 262), Rows.chain(1, [6, 7], 75, want_all=Want.LOGITS)])
    found.append(runtime.forward(both).logits.copy())
    return found


@contextmanager
def lacking(operations: set[Op]) -> Iterator[None]:
    """Devices beside the CPU say that they cannot compute these."""

    def described(device: Device) -> Device:
        if device.is_own_cpu:
            return device

        def supports(node: int) -> bool:
            return _api.Tensor.from_address(node).op not in operations and device.supports(node)

        return replace(device, support=supports)

    before = runtime_module.list_devices
    runtime_module.list_devices = lambda: [described(device) for device in list_devices()]
    try:
        yield
    finally:
        runtime_module.list_devices = before


def load(model: Path, device: str, **options: Any) -> Runtime:
    usual = {"n_threads": 1, "n_ctx": 512, "n_sequences": 2, "kv_type": "f32"}
    return Runtime.load(model, device=device, **{**usual, **options})


class Cases:
    """What each case found, beside the CPU alone."""

    def __init__(self, folder: Path) -> None:
        self.model = write_tiny(folder / "split.gguf", "qwen2", n_layer=N_LAYERS)
        self.small = write_tiny(folder / "one.gguf", n_layer=1)
        self.found: dict[str, dict[str, Any]] = {}
        self._expected: dict[Path, list[NDArray[np.float32]]] = {}

    def expected(self, model: Path) -> list[NDArray[np.float32]]:
        if model not in self._expected:
            with load(model, "CPU") as runtime:
                self._expected[model] = work(runtime)
        return self._expected[model]

    def add(self, name: str, device: str, model: Path | None = None, **options: Any) -> None:
        model = model or self.model
        try:
            with load(model, device, **options) as runtime:
                found = work(runtime)
                n_splits = getattr(runtime.graphs, "n_splits", 1)
                layout = str(runtime.layout)
        except Exception as error:
            self.found[name] = {"error": f"{type(error).__name__}: {error}"}
            return
        pairs = list(zip(found, self.expected(model), strict=True))
        self.found[name] = {
            "layout": layout,
            "n_splits": n_splits,
            "error": "",
            "difference": max(float(np.abs(mine - its).max()) for mine, its in pairs),
            "agrees": all(bool((mine.argmax(-1) == its.argmax(-1)).all()) for mine, its in pairs),
        }

    def split_points(self, gpu: str) -> None:
        for n in range(N_LAYERS + 1):
            self.add(f"first {n}", f"{gpu},CPU", split=(float(n), float(N_LAYERS - n)))
            self.add(f"last {n}", f"CPU,{gpu}", split=(float(N_LAYERS - n), float(n)))
        self.add("layers to the CPU", gpu, n_cpu_layers=1)
        self.add("one layer", f"{gpu},CPU", self.small)
        self.add("one layer split", f"{gpu},CPU", self.small, split=(1.0, 1.0))

    def devices_that_lack(self, gpu: str) -> None:
        for name, operations in LACKING.items():
            with lacking(operations):
                self.add(f"lacks {name}", gpu)
        with lacking({Op.SET_ROWS}):
            self.add("split, lacks cells", f"{gpu},CPU", split=(2.0, 2.0))

    def graphs(self, device: str, **options: Any) -> None:
        """How often graphs are built and split while one and the same step comes again, and how many stay."""
        with load(self.model, device, max_graphs=3, **options) as runtime:
            first = work(runtime)
            n_kept = len(runtime.graphs)
            for sequence in (0, 1):
                runtime.cache.release(sequence)
            again = work(runtime)
            runtime.cache.release(1)
            prompt = tokens(20)
            runtime.forward(Rows.chain(1, prompt, 0))
            runtime.cache.commit(1, range(20))
            runtime.forward(Rows.chain(1, [1], 20))
            counts = runtime.graphs.n_built, runtime.graphs.n_allocated  # type: ignore[union-attr]
            for token in range(20):
                runtime.forward(Rows.chain(1, [token], 20))
                runtime.cache.commit(1, [0])
                runtime.cache.truncate(1, 20)
            self.found["graphs"] = {
                "n_kept": n_kept,
                "same": all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)),
                "n_built": runtime.graphs.n_built - counts[0],
                "n_allocated": runtime.graphs.n_allocated - counts[1],  # type: ignore[union-attr]
            }

    def cycles(self, device: str, **options: Any) -> None:
        used = []
        for _ in range(N_CYCLES):
            with load(self.model, device, **options) as runtime:
                runtime.forward(Rows.chain(0, tokens(20), 0))
            used.append(rss_bytes())
        self.found["cycles"] = {"grown_bytes": min(used[-5:]) - min(used[N_CYCLES // 2 :][:5])}


def main() -> None:
    folder = Path(sys.argv[1])
    cases = Cases(folder)
    names = [device.name for device in list_devices()]
    if "BLAS" in names:
        cases.add("BLAS", "CPU,BLAS")
    gpu = next((device.name for device in list_devices() if device.backend == "Vulkan"), None)
    if gpu is not None:
        cases.add("Vulkan alone", gpu)
        cases.split_points(gpu)
        cases.devices_that_lack(gpu)
        cases.graphs(f"{gpu},CPU", split=(2.0, 2.0))
        cases.cycles(f"{gpu},CPU", split=(2.0, 2.0))
    (folder / "found.json").write_text(json.dumps({"devices": names, "cases": cases.found}))


if __name__ == "__main__":
    main()
