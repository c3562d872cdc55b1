"""Which cores this process may compute on, and which of its threads on which of them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

_PERFORMANCE_CPUS = Path("/sys/devices/cpu_core/cpus")
# The hardware threads of a physical core, by number; one without hyperthreading.
Core = tuple[int, ...]


def physical_cores() -> int:
    """Physical cores open to this process: hyperthreads count once, slow cores beside fast ones not at all,
    limits of affinity and cgroups hold."""
    if sys.platform == "darwin":
        return _performance_cores() or os.cpu_count() or 1
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cpus = _fast(os.sched_getaffinity(0))
    n_cores = len({_siblings(cpu) for cpu in cpus})
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, min(n_cores, quota or n_cores))


def logical_cores() -> int:
    """Hardware threads open to this process, as many as a cgroup's quota leaves."""
    n_cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, min(n_cpus, quota or n_cpus))


def can_pin() -> bool:
    """Whether this system keeps single threads on cores: Linux does."""
    return sys.platform == "linux"


def open_cores() -> list[Core]:
    """The physical cores open to this process, in the order of their numbers. Needs `can_pin`."""
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        cores.setdefault(_siblings(cpu), []).append(cpu)
    return [tuple(cpus) for cpus in cores.values()]


def choose_cpus(cores: Sequence[Core], n_threads: int) -> tuple[int, ...]:
    """Hardware threads for `n_threads`: one of each core, then their siblings; all if that is too few."""
    depth = max(len(core) for core in cores)
    spread = [core[i] for i in range(depth) for core in cores if i < len(core)]
    return tuple(sorted(spread[:n_threads]))


def partition(
    cores: Sequence[Core], n_first: int, n_second: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Hardware threads for two parties that compute at the same time; None if there are too few.

    No core is in both. The second has the last cores, so that a process that knows only its own number of
    threads (a worker) and one that takes the first cores (an engine) keep clear of each other.
    """
    need_first, need_second = n_first, n_second
    if n_first + n_second > len(cores):
        width = min(len(core) for core in cores)
        need_first, need_second = -(-n_first // width), -(-n_second // width)
    if need_first + need_second > len(cores):
        return None
    return choose_cpus(cores[:need_first], n_first), choose_cpus(cores[-need_second:], n_second)


@contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Keeps the calling thread on `cpus` (() for any), and with it the threads that it starts meanwhile, as
    OpenMP's are in its first computation. Other threads stay free; this one is free again afterwards."""
    if not cpus or not can_pin():
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:  # as when a container lost cores
        logger.warning("threads cannot be kept on the cores %s: %s", tuple(cpus), error)
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _siblings(cpu: int) -> str:
    """The hardware threads of the core of `cpu`, as the kernel writes them; else `cpu` itself."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(cpu)


def _fast(cpus: Set[int]) -> Set[int]:
    """Without the slow cores of a processor that has two kinds, unless it may use no others: they would hold
    every thread up at each barrier."""
    try:
        ranges = _PERFORMANCE_CPUS.read_text().strip().split(",")
        bounds = [tuple(map(int, text.split("-"))) for text in ranges]
    except (OSError, ValueError):  # only processors of two kinds have this file
        return cpus
    fast = {cpu for bound in bounds for cpu in range(bound[0], bound[-1] + 1)}
    return cpus & fast or cpus


def _cgroup_quota(root: Path) -> int | None:
    """Whole CPUs that the cgroup's quota leaves, rounded up; None without a quota."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else max(1, -(-int(quota) // int(period)))


def _performance_cores() -> int | None:
    """macOS's fast cores; the slow ones would hold every thread up at each barrier."""
    try:
        out = subprocess.run(
            ["sysctl", "-n", "hw.perflevel0.physicalcpu"], capture_output=True, text=True, check=True
        )
        return int(out.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
