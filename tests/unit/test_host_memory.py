"""Memory of this machine: what Linux calls available, within the limits of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from lucebox import host_memory as module
from lucebox.host_memory import host_memory

MEMINFO = (
    "MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:     600 kB\nHugePages_Total:       0\n"
)


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the root cgroup; this process is in /outer/inner."""
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "cgroup").write_text("1:name=systemd:/x\n0::/outer/inner\n")
    root = tmp_path / "sys"
    (root / "outer" / "inner").mkdir(parents=True)
    monkeypatch.setattr(module, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(module, "_OWN_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(module, "_CGROUPS", root)
    return root


def limit(folder: Path, max_bytes: object, current_bytes: int, stat: str = "") -> None:
    (folder / "memory.max").write_text(f"{max_bytes}\n")
    (folder / "memory.current").write_text(f"{current_bytes}\n")
    if stat:
        (folder / "memory.stat").write_text(stat)


def test_available_is_more_than_free(cgroups: Path) -> None:
    assert host_memory() == (600 * 1024, 1000 * 1024)


def test_a_cgroup_without_a_limit_changes_nothing(cgroups: Path) -> None:
    limit(cgroups / "outer", "max", 10**9)
    assert host_memory() == (600 * 1024, 1000 * 1024)


@pytest.mark.parametrize("where", ["", "outer", "outer/inner"])
def test_the_limit_of_any_cgroup_around_holds(cgroups: Path, where: str) -> None:
    limit(cgroups / where, 500_000, 200_000)
    assert host_memory() == (300_000, 500_000)


def test_pages_of_files_can_be_taken(cgroups: Path) -> None:
    stat = "anon 50000\nfile 150000\nactive_file 90000\ninactive_file 60000\n"
    limit(cgroups / "outer", 500_000, 200_000, stat)
    assert host_memory() == (450_000, 500_000)


def test_a_full_cgroup_has_nothing(cgroups: Path) -> None:
    limit(cgroups / "outer", 500_000, 600_000)
    assert host_memory() == (0, 500_000)


def test_without_meminfo_others_have_to_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_MEMINFO", tmp_path / "nothing")
    assert host_memory() is None
