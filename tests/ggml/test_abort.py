"""What ggml says before it ends the process, and what was running then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from lucebox.ggml import abort

_PRELUDE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from lucebox.ggml import _api
from lucebox.ggml.backend import Backend
from lucebox.ggml.devices import find_device
from lucebox.ggml.library import load
library = load()
"""


def run_to_abort(code: str) -> tuple[str, str]:
    """Runs Python code that ends in an abort: what it wrote to descriptor sys.argv[1], and to stderr."""
    read_fd, write_fd = os.pipe()
    try:
        run = subprocess.run(
            [sys.executable, "-c", _PRELUDE + textwrap.dedent(code), str(write_fd)],
            pass_fds=[write_fd],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(write_fd)
    with os.fdopen(read_fd, encoding="utf-8") as pipe:
        report = pipe.read()
    assert run.returncode == -signal.SIGABRT, run.stderr
    return report, run.stderr


def test_the_message_and_the_activity_reach_the_descriptor() -> None:
    report, stderr = run_to_abort(
        """
        library.abort_report.write_to(int(sys.argv[1]))
        library.abort_report.set_activity(b"loading something long")
        library.abort_report.set_activity(b"target forward, 8 rows")
        library.ggml_backend_dev_get(99)
        """
    )
    assert report.startswith("ggml aborted: ")
    assert report.endswith(
        "GGML_ASSERT(index < ggml_backend_dev_count()) failed\nwhile: target forward, 8 rows\n"
    )
    assert "GGML_ASSERT" not in stderr


def test_it_goes_to_stderr_unless_told_otherwise() -> None:
    report, stderr = run_to_abort("library.ggml_backend_dev_get(99)")
    assert report == ""
    assert "ggml aborted: " in stderr
    assert "while" not in stderr


def test_an_assertion_on_ggmls_own_threads_is_reported() -> None:
    report, _ = run_to_abort(
        """
        library.abort_report.write_to(int(sys.argv[1]))
        library.abort_report.set_activity(b"x" * 1000)
        context = library.new_context(8, library.ggml_graph_overhead())
        table = library.ggml_new_tensor_2d(context, _api.Type.F32, 8, 4)
        ids = library.ggml_new_tensor_1d(context, _api.Type.I32, 64)
        graph = library.ggml_new_graph(context)
        library.ggml_build_forward_expand(graph, library.ggml_get_rows(context, table, ids))
        backend = Backend(find_device("CPU"), 2)
        buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(context, backend.buffer_type)
        library.ggml_backend_buffer_clear(buffer, 0x7f)
        backend.compute(graph)
        """
    )
    assert report.count("ggml aborted: ") >= 1
    assert "GGML_ASSERT(i01 >= 0 && i01 < ne01) failed" in report
    assert "\nwhile: " + "x" * 255 + "\n" in report


def test_without_compiled_modules_ggml_keeps_its_own_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(abort, "_MODULE", "lucebox._kernels.not_built")
    report = abort.AbortReport(SimpleNamespace())
    report.write_to(2)
    report.set_activity(b"anything")
    assert "only stderr will say why" in caplog.text


def test_a_broken_compiled_module_is_no_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abort, "_MODULE", "lucebox.nowhere.abort")
    with pytest.raises(ModuleNotFoundError, match=r"lucebox\.nowhere"):
        abort.AbortReport(SimpleNamespace())
