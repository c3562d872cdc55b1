"""The C side of lucebox.ggml.abort: a callback for ggml_set_abort_callback that uses no Python at all."""

from libc.errno cimport EINTR, errno
from libc.stdint cimport uintptr_t
from libc.string cimport memcpy, memset, strlen
from posix.unistd cimport write

cdef enum:
    ACTIVITY_BYTES = 256

# Global, because ggml's callback is: it gets no pointer of ours.
cdef char activity[ACTIVITY_BYTES]
cdef int report_fd = 2


def callback_address() -> int:
    """The address of the callback, a void (*)(const char *)."""
    return <uintptr_t> &on_abort


def install(int fd) -> None:
    """Sends the report to `fd`, which must stay open; before this it goes to stderr."""
    global report_fd
    report_fd = fd


def set_activity(bytes text) -> None:
    """What is running; at most 255 bytes are kept. The last byte stays 0, so a reader always finds an end."""
    cdef size_t n_bytes = min(len(text), ACTIVITY_BYTES - 1)
    memset(activity, 0, ACTIVITY_BYTES)
    memcpy(activity, <const char *> text, n_bytes)


cdef void on_abort(const char *message) noexcept nogil:
    put(b"ggml aborted: ")
    put(message)
    if activity[0]:
        put(b"\nwhile: ")
        put(activity)
    put(b"\n")


cdef void put(const char *text) noexcept nogil:
    cdef size_t n_left = strlen(text)
    cdef ssize_t n_written
    while n_left:
        n_written = write(report_fd, text, n_left)
        if n_written < 0:
            if errno == EINTR:
                continue
            return
        text += n_written
        n_left -= n_written
