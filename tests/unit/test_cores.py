"""Cores: hyperthreads count once, limits of affinity and cgroups hold, and parties are kept apart."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from lucebox import cores
from lucebox.cores import choose_cpus, logical_cores, open_cores, partition, physical_cores, pinned

T = TypeVar("T")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's description of cores")


def test_there_is_at_least_one_and_no_more_than_cpus() -> None:
    assert 1 <= physical_cores() <= len(os.sched_getaffinity(0))


def test_hyperthreads_are_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 6, 7})
    monkeypatch.setattr(cores, "_siblings", lambda cpu: f"{cpu % 4},{cpu % 4 + 4}")
    monkeypatch.setattr(cores, "_cgroup_quota", lambda _: None)
    assert physical_cores() == 4


@pytest.mark.parametrize(
    ("content", "expected"),
    [("0-3\n", 2), ("0-1,3\n", 2), ("0\n", 1), ("8-11\n", 6), ("", 6), ("nonsense", 6), (None, 6)],
)
def test_slow_cores_beside_fast_ones_do_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores, "_siblings", lambda cpu: f"{cpu // 2}" if cpu < 4 else f"{cpu}")
    monkeypatch.setattr(cores, "_cgroup_quota", lambda _: None)
    monkeypatch.setattr(cores, "_PERFORMANCE_CPUS", tmp_path / "cpus")
    if content is not None:
        (tmp_path / "cpus").write_text(content)
    assert physical_cores() == expected


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


FOUR = [(0,), (1,), (2,), (3,)]
FOUR_DOUBLE = [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_threads_take_a_core_each_before_they_share_one() -> None:
    assert choose_cpus(FOUR_DOUBLE, 1) == (0,)
    assert choose_cpus(FOUR_DOUBLE, 4) == (0, 1, 2, 3)
    assert choose_cpus(FOUR_DOUBLE, 6) == (0, 1, 2, 3, 4, 5)
    assert choose_cpus(FOUR_DOUBLE, 99) == tuple(range(8))
    assert choose_cpus([(0,), (1, 5)], 3) == (0, 1, 5)


@pytest.mark.parametrize(
    ("cores", "n_first", "n_second", "expected"),
    [
        (FOUR, 1, 1, ((0,), (3,))),
        (FOUR, 3, 1, ((0, 1, 2), (3,))),
        (FOUR, 2, 2, ((0, 1), (2, 3))),
        (FOUR, 3, 2, None),
        (FOUR[:1], 1, 1, None),
        (FOUR_DOUBLE, 2, 2, ((0, 1), (2, 3))),
        (FOUR_DOUBLE, 4, 2, ((0, 1, 4, 5), (3, 7))),
        (FOUR_DOUBLE, 6, 2, ((0, 1, 2, 4, 5, 6), (3, 7))),
        (FOUR_DOUBLE, 5, 2, ((0, 1, 2, 4, 5), (3, 7))),
        (FOUR_DOUBLE, 6, 3, None),
    ],
)
def test_two_parties_share_no_core(
    cores: list[tuple[int, ...]], n_first: int, n_second: int, expected: object
) -> None:
    assert partition(cores, n_first, n_second) == expected


def test_open_cores_are_those_of_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {6, 1, 2, 5})
    monkeypatch.setattr(cores, "_siblings", lambda cpu: f"{cpu % 4},{cpu % 4 + 4}")
    assert open_cores() == [(1, 5), (2, 6)]


@pytest.mark.parametrize(("quota", "expected"), [(None, 4), (3, 3), (8, 4)])
def test_hyperthreads_count_as_logical_cores(
    monkeypatch: pytest.MonkeyPatch, quota: int | None, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {6, 1, 2, 5})
    monkeypatch.setattr(cores, "_cgroup_quota", lambda _: quota)
    assert logical_cores() == expected


def in_thread(function: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_pinning_is_of_one_thread_and_what_it_starts_and_ends() -> None:
    everywhere = os.sched_getaffinity(0)
    first = min(everywhere)

    def pin() -> None:
        with pinned((first,)):
            assert os.sched_getaffinity(0) == {first}
            assert in_thread(lambda: os.sched_getaffinity(0)) == {first}
            assert os.sched_getaffinity(threading.main_thread().native_id or 0) == everywhere
        assert os.sched_getaffinity(0) == everywhere

    in_thread(pin)
    assert os.sched_getaffinity(0) == everywhere


def test_pinning_ends_with_an_error() -> None:
    everywhere = os.sched_getaffinity(0)

    def pin() -> set[int]:
        with pytest.raises(KeyError), pinned((min(everywhere),)):
            raise KeyError
        return os.sched_getaffinity(0)

    assert in_thread(pin) == everywhere


def test_no_cores_are_any() -> None:
    everywhere = os.sched_getaffinity(0)
    with pinned(()):
        assert os.sched_getaffinity(0) == everywhere


def test_cores_that_are_gone_are_told_and_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    everywhere = os.sched_getaffinity(0)
    with pinned((1023,)):
        assert os.sched_getaffinity(0) == everywhere
    assert "cannot be kept on the cores (1023,)" in caplog.text
