"""ggml's log in Python's logging, from whichever thread it comes."""

from __future__ import annotations

import ctypes
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from lucebox.ggml import _api
from lucebox.ggml.library import load
from lucebox.ggml.log import LogBridge

_LOGGER = "lucebox.ggml"


class Recorder:
    """Stands in for the library: keeps what is registered."""

    def __init__(self) -> None:
        self.callback: object = None

    def ggml_log_set(self, callback: object, data: None) -> None:
        self.callback = callback


@pytest.fixture
def bridge(caplog: pytest.LogCaptureFixture) -> LogBridge:
    caplog.set_level(logging.DEBUG, _LOGGER)
    return LogBridge(Recorder())


def emit(bridge: LogBridge, *pieces: tuple[_api.LogLevel, bytes]) -> None:
    for level, text in pieces:
        bridge.callback(level, text, None)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == _LOGGER]


def test_ggmls_own_messages_arrive(caplog: pytest.LogCaptureFixture) -> None:
    assert load().ggml_backend_load(b"/nowhere/libggml-none.so") is None
    [(level, text)] = lines(caplog)
    assert level == logging.ERROR
    assert "/nowhere/libggml-none.so" in text


def test_ggmls_information_is_detail_here(bridge: LogBridge, caplog: pytest.LogCaptureFixture) -> None:
    level = _api.LogLevel
    emit(bridge, *((kind, b"line\n") for kind in (level.DEBUG, level.INFO, level.WARN, level.ERROR)))
    assert [entry for entry, _ in lines(caplog)] == [
        logging.DEBUG,
        logging.DEBUG,
        logging.WARNING,
        logging.ERROR,
    ]


def test_pieces_make_lines_of_the_level_they_began_with(
    bridge: LogBridge, caplog: pytest.LogCaptureFixture
) -> None:
    level = _api.LogLevel
    emit(
        bridge,
        (level.WARN, b"one "),
        (level.CONT, b"two"),
        (level.CONT, b"\n"),
        (level.INFO, b"three\nfour\n\n"),
    )
    assert lines(caplog) == [
        (logging.WARNING, "one two"),
        (logging.DEBUG, "three"),
        (logging.DEBUG, "four"),
    ]


def test_bytes_that_are_no_text_and_percent_signs_do_no_harm(
    bridge: LogBridge, caplog: pytest.LogCaptureFixture
) -> None:
    emit(bridge, (_api.LogLevel.INFO, b"100%s \xff\n"))
    assert lines(caplog) == [(logging.DEBUG, "100%s \ufffd")]


_THREADS = """
#include <pthread.h>
typedef void (*callback)(int level, const char * text, void * data);
static void * speak(void * log) {
    for (int i = 0; i < 50; i++) { ((callback) log)(2, "from ", 0); ((callback) log)(5, "a thread\\n", 0); }
    return 0;
}
void speak_in_threads(callback log) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, speak, (void *) log);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
}
"""


def test_threads_that_are_not_pythons_may_log(
    bridge: LogBridge, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "threads.c").write_text(_THREADS, encoding="utf-8")
    library = tmp_path / "threads.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-pthread", "-o", library, tmp_path / "threads.c"], check=True)
    ctypes.CDLL(str(library)).speak_in_threads(bridge.callback)
    assert lines(caplog) == [(logging.DEBUG, "from a thread")] * 200


def test_the_log_is_given_back_on_close(bridge: LogBridge) -> None:
    bridge.close()
    assert bridge.library.callback is None


def test_the_process_ends_quietly_after_logging() -> None:
    code = (
        "import logging, sys; logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)\n"
        "from lucebox.ggml.library import load\n"
        "load().ggml_backend_load(b'/nowhere.so')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert "ERROR:lucebox.ggml:" in run.stdout
