"""Threads on cores: those that ggml computes with stay where their owner was put, and no others do."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from lucebox.api import Engine
from lucebox.config import EngineOptions
from lucebox.cores import choose_cpus, open_cores, pinned
from lucebox.engine.process_client import ProcessClient
from lucebox.resolve import resolve_engine
from lucebox.runtime.rows import Rows
from lucebox.runtime.runtime import Runtime
from tests.support.tiny_models import write_tiny

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps single threads on cores")

TASKS = Path("/proc/self/task")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf")


def affinities() -> dict[int, frozenset[int]]:
    """The cores of each thread of this process."""
    found = {}
    for task in TASKS.iterdir():
        with suppress(ProcessLookupError):  # it ended meanwhile
            found[int(task.name)] = frozenset(os.sched_getaffinity(int(task.name)))
    return found


def compute(model: Path, n_threads: int) -> dict[int, frozenset[int]]:
    """The threads that computing added to this process, and this one."""
    before = affinities()
    with Runtime.load(model, device="CPU", n_threads=n_threads, n_ctx=64) as runtime:
        runtime.forward(Rows.chain(0, [1, 2, 3], 0))
        after = affinities()
    own = threading.get_native_id()
    return {thread: cpus for thread, cpus in after.items() if thread not in before or thread == own}


def in_thread(function: Callable[[], dict[int, frozenset[int]]]) -> dict[int, frozenset[int]]:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_ggmls_threads_stay_on_the_cores_of_their_owner(model: Path) -> None:
    everywhere = frozenset(os.sched_getaffinity(0))
    cpu = min(everywhere)

    def pinned_compute() -> dict[int, frozenset[int]]:
        with pinned((cpu,)):
            return compute(model, n_threads=3)

    used = in_thread(pinned_compute)
    assert len(used) == 3
    assert set(used.values()) == {frozenset({cpu})}
    assert all(cpus == everywhere for thread, cpus in affinities().items() if thread not in used)


def test_others_compute_wherever_they_like(model: Path) -> None:
    everywhere = frozenset(os.sched_getaffinity(0))
    with pinned((min(everywhere),)):
        pass
    used = in_thread(lambda: compute(model, n_threads=3))
    assert len(used) == 3
    assert set(used.values()) == {everywhere}


def test_an_engine_keeps_no_threads_but_its_own_on_cores(model: Path) -> None:
    everywhere = frozenset(os.sched_getaffinity(0))
    chosen = frozenset(choose_cpus(open_cores(), 1))
    with Engine(str(model), draft_model="none", threads=1, pin_threads="on") as engine:
        engine.generate("a")
        seen = affinities()
        # Threads of earlier tests may begin or end between the two looks.
        alive = [thread for thread in threading.enumerate() if thread.native_id in seen]
        threads = {thread.name: seen[thread.native_id or 0] for thread in alive}
    assert threads.pop("lucebox-engine") == chosen
    assert {"MainThread", "lucebox-events"} <= set(threads)
    assert set(threads.values()) == {everywhere}


def test_the_engines_process_keeps_one_thread_on_cores(model: Path) -> None:
    everywhere = frozenset(os.sched_getaffinity(0))
    chosen = frozenset(choose_cpus(open_cores(), 1))
    options = EngineOptions(target_model=str(model), draft_model="none", threads=1, pin_threads="on")
    client = ProcessClient(resolve_engine(options))
    client.start()
    try:
        client.wait_ready(30.0)
        [child] = [int(name) for task in TASKS.iterdir() for name in (task / "children").read_text().split()]
        tasks = [int(task.name) for task in Path(f"/proc/{child}/task").iterdir()]
        cores = {task: frozenset(os.sched_getaffinity(task)) for task in tasks}
    finally:
        client.close()
    assert cores.pop(child) == chosen  # its main thread computes
    assert len(cores) >= 2
    assert everywhere in cores.values()
