"""Standard streams as shells, service managers and full disks leave them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT
from tests.support.tiny_models import write_tiny

SHOW_STREAMS = """
import os, sys
from lucebox.terminal import prepare_streams, say
prepare_streams()
say("a word")
print("é\\udcff\\N{FOX FACE}")
sys.stdout.flush()
opened = open(os.devnull)
assert opened.fileno() > 2, opened.fileno()
assert all(os.get_inheritable(number) for number in range(3))
assert sys.stdin.read() in ("", "in"), "stdin"
"""


def shell(command: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", command, "bash", sys.executable, *arguments],
        capture_output=True,
        input=b"in",
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        timeout=60,
    )


@pytest.mark.parametrize("closed", ["", "<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">&- 2>/dev/null"])
def test_closed_streams_are_stood_in_for(closed: str) -> None:
    run = shell(f'"$@" {closed}', "-c", SHOW_STREAMS)
    assert run.returncode == 0, run.stderr
    assert b"Traceback" not in run.stderr


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", b"???\n"), ("utf-8", "é?🦊\n".encode())])
def test_what_stdout_cannot_encode_is_replaced(encoding: str, shown: bytes) -> None:
    run = shell('"$@"', "-c", SHOW_STREAMS, PYTHONIOENCODING=encoding)
    assert (run.returncode, run.stdout) == (0, shown)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's always full device")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf")
    for verb in ("inspect", "pull"):
        run = shell('"$@" >/dev/full', "-m", "lucebox", verb, str(path))
        assert run.returncode == 1
        assert run.stderr == b"lucebox: [Errno 28] No space left on device\n"
    run = shell('"$@" 2>/dev/full', "-m", "lucebox", "pull", "nothing.gguf")
    assert run.returncode == 2
