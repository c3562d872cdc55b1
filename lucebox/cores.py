"""How many cores this process may compute on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def physical_cores() -> int:
    """Physical cores open to this process: hyperthreads count once, limits of affinity and cgroups hold."""
    if sys.platform == "darwin":
        return _performance_cores() or os.cpu_count() or 1
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cpus = os.sched_getaffinity(0)
    n_cores = len({_siblings(cpu) for cpu in cpus})
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, min(n_cores, quota or n_cores))


def _siblings(cpu: int) -> str:
    """The hardware threads of the core of `cpu`, as the kernel writes them; else `cpu` itself."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(cpu)


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
