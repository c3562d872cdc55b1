"""Models split over devices compute what the CPU alone computes, wherever they are cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.mixed_devices import BLAS, ROOT, SOFTWARE_VULKAN, VULKAN, need
from tests.support.split_models import LACKING, N_LAYERS

MAX_DIFFERENCE = 1e-4
MAX_GROWTH_BYTES = 2 << 20
TIMEOUT_S = 240.0
CUTS = range(N_LAYERS + 1)


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What tests.support.split_models wrote. In single precision: by default Vulkan's products are not."""
    folder = tmp_path_factory.mktemp("split")
    environ = {**os.environ, **SOFTWARE_VULKAN, "GGML_VK_DISABLE_F16": "1", "PYTHONPATH": str(ROOT)}
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.split_models", str(folder)],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-4000:]
    result: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return result


def case(computed: dict[str, Any], name: str, *devices: str) -> dict[str, Any]:
    need(*(devices or (VULKAN,)), found=computed["devices"])
    found: dict[str, Any] = computed["cases"][name]
    return found


def check(found: dict[str, Any]) -> None:
    assert found["error"] == ""
    assert found["difference"] < MAX_DIFFERENCE


def layers_on(layout: str) -> Sequence[int]:
    """Of `Vulkan0 (1 layers), CPU (3 layers)`: 1 and 3."""
    words = layout.replace("(", "").split()
    return [int(word) for word in words if word.isdecimal()]


@pytest.mark.parametrize("n", CUTS)
def test_a_model_is_the_same_wherever_it_is_cut(computed: dict[str, Any], n: int) -> None:
    """The first layers on Vulkan and the others on the CPU, and the other way round."""
    for name in (f"first {n}", f"last {n}"):
        found = case(computed, name)
        check(found)
        shares = [share for share in (n, N_LAYERS - n) if share]
        assert found["layout"] == "CPU" if n == 0 else layers_on(found["layout"]) == shares


def test_activations_change_devices_once_for_each_cut(computed: dict[str, Any]) -> None:
    assert case(computed, "first 2")["n_splits"] == 3  # embeddings, layers, layers and head
    assert case(computed, "last 2")["n_splits"] == 2


def test_layers_can_be_left_to_the_cpu(computed: dict[str, Any]) -> None:
    found = case(computed, "layers to the CPU")
    check(found)
    assert layers_on(found["layout"]) == [N_LAYERS - 1, 1]


def test_a_single_device_is_close(computed: dict[str, Any]) -> None:
    found = case(computed, "Vulkan alone")
    check(found)
    assert found["layout"] == VULKAN


def test_blas_takes_products_of_the_cpu(computed: dict[str, Any]) -> None:
    found = case(computed, "BLAS", BLAS)
    check(found)
    assert found["difference"] > 0, "nothing but the CPU has computed"


@pytest.mark.parametrize("name", LACKING)
def test_what_a_device_lacks_is_computed_by_the_cpu(computed: dict[str, Any], name: str) -> None:
    check(case(computed, f"lacks {name}"))


def test_cells_lie_where_they_can_be_written(computed: dict[str, Any]) -> None:
    check(case(computed, "split, lacks cells"))


def test_fewer_layers_than_devices_are_no_trouble(computed: dict[str, Any]) -> None:
    check(case(computed, "one layer"))
    assert "ConfigError: a share of 1" in case(computed, "one layer split")["error"]


def test_the_same_step_again_builds_and_splits_nothing(computed: dict[str, Any]) -> None:
    found = case(computed, "graphs")
    assert found["n_kept"] <= 3, "graphs are bounded"
    assert found["same"], "graphs built anew compute the same"
    assert (found["n_built"], found["n_allocated"]) == (0, 0)


def test_loading_and_unloading_leaks_nothing(computed: dict[str, Any]) -> None:
    assert case(computed, "cycles")["grown_bytes"] < MAX_GROWTH_BYTES
