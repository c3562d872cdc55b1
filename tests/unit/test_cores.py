"""Cores: hyperthreads count once, and the limits of affinity and cgroups hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lucebox import cores
from lucebox.cores import physical_cores

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's description of cores")


def test_there_is_at_least_one_and_no_more_than_cpus() -> None:
    assert 1 <= physical_cores() <= len(os.sched_getaffinity(0))


def test_hyperthreads_are_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 6, 7})
    monkeypatch.setattr(cores, "_siblings", lambda cpu: f"{cpu % 4},{cpu % 4 + 4}")
    monkeypatch.setattr(cores, "_cgroup_quota", lambda _: None)
    assert physical_cores() == 4


def test_affinity_narrows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert physical_cores() == 1


@pytest.mark.parametrize(
    ("content", "quota"),
    [("max 100000\n", None), ("150000 100000\n", 2), ("50000 100000\n", 1), ("nonsense", None), (None, None)],
)
def test_a_quota_of_the_cgroup_is_rounded_up(tmp_path: Path, content: str | None, quota: int | None) -> None:
    if content is not None:
        (tmp_path / "cpu.max").write_text(content)
    assert cores._cgroup_quota(tmp_path) == quota
