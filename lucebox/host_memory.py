"""How much of this machine's memory this process may take."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_OWN_CGROUP = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_KIB = 1024


def host_memory() -> tuple[int, int] | None:
    """(bytes that can be taken without swapping, bytes in all), within the cgroup's limit; None where only
    others can tell, as on macOS."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    values = {name: int(rest.split()[0]) * _KIB for name, _, rest in (line.partition(":") for line in lines)}
    free = values.get("MemAvailable", values.get("MemFree", 0))
    total = values.get("MemTotal", free)
    for folder in _own_cgroups(_CGROUPS, _OWN_CGROUP):
        limit = _number(folder / "memory.max")  # "max" where there is none
        if limit is not None and limit < total:
            total = limit
        if limit is not None:
            free = min(free, max(0, limit - _unreclaimable_bytes(folder)))
    return free, total


def _own_cgroups(root: Path, own: Path) -> list[Path]:
    """This process's cgroup (version 2) and those around it, all of whose limits hold."""
    try:
        paths = [line.removeprefix("0::") for line in own.read_text().splitlines() if line.startswith("0::")]
    except OSError:
        return []
    folders = [root]
    for name in Path(paths[0] if paths else "/").parts[1:]:
        folders.append(folders[-1] / name)
    return folders


def _unreclaimable_bytes(cgroup: Path) -> int:
    """What the cgroup uses, without the pages of files, which the kernel drops when memory gets short."""
    used = _number(cgroup / "memory.current") or 0
    try:
        lines = (cgroup / "memory.stat").read_text().splitlines()
    except OSError:
        return used
    cached = sum(
        int(line.split()[1]) for line in lines if line.split()[0] in ("active_file", "inactive_file")
    )
    return max(0, used - cached)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
