"""ggml's shared libraries in this process: found, checked, and their functions by name."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lucebox.errors import GgmlError, OutOfMemoryError
from lucebox.ggml import _api
from lucebox.ggml.abort import AbortReport
from lucebox.ggml.log import LogBridge

if TYPE_CHECKING:
    from lucebox.ggml.devices import WorkerDevice

_REMEDY = "install lucebox again, or set LUCEBOX_GGML_LIB to a folder of ggml libraries of the right version"
_OBJECT_BYTES = 32  # sizeof(struct ggml_object), which ggml_tensor_overhead() adds to a tensor
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_REGISTRIES = {"cpu": b"CPU", "rpc": b"RPC"}
# These take long, wait, or call back: they must not hold the GIL. Others end before releasing it would pay.
_BLOCKING = re.compile(
    r"""ggml_(
        backend_(
            (.*_)?(async|compute|synchronize)
          | tensor_(set|get|copy|memset).*
          | (buft_)?alloc.* | tensor_alloc | view_init
          | buffer_(clear|free|init_tensor|reset|get_base|get_alloc_size)
          | load.* | unload | init.* | free | event_wait | get_default_buffer_type
          | dev_(init|memory|get_props|buffer_from_host_ptr|buffer_type)
          | sched_(?!set_|get_|reset).* | graph_copy | compare_graph_backend | rpc_.* | buft_get_alloc_size
        )
      | gallocr_(new|new_n|free|reserve.*|alloc_graph) | tallocr_alloc | graph_compute.*
      | threadpool_.* | quantize_.*
    )""",
    re.VERBOSE,
)


@functools.cache
def load() -> Library:
    """The process's ggml, loaded on the first call with all backends that its folder has.

    Raises GgmlError when the libraries are missing, of another version, or have no backend for this CPU.
    """
    return Library(library_folder())


def library_folder() -> Path:
    """Where the libraries are: LUCEBOX_GGML_LIB, else the folder inside the package."""
    own = os.environ.get("LUCEBOX_GGML_LIB")
    return Path(own).expanduser().absolute() if own else Path(__file__).parent / "lib"


def library_identity() -> str:
    """Another one for any other build of the libraries. Loads nothing."""
    files = sorted(path for path in library_folder().glob("*ggml*") if path.is_file())
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(states).encode()).hexdigest()[:16]


def is_blocking(name: str) -> bool:
    """Whether a call of this ggml function releases the GIL."""
    return _BLOCKING.fullmatch(name) is not None


class Library:
    """ggml's functions as attributes, `library.ggml_add(...)`, and what takes more than one of them to learn.

    Pointers are integers or None. Short calls keep the GIL; blocking ones release it. A function that the
    loaded libraries lack raises GgmlError when first used. One per process: ggml's registry is global.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths = {"ggml": _find(folder, "ggml")}
        # Loaded first, by path: the other libraries ask for it by a name that the system does not know.
        _open(ctypes.CDLL, _find(folder, "ggml-base"), ctypes.RTLD_GLOBAL)
        self._handles: dict[tuple[str, bool], ctypes.CDLL] = {}
        self._check_abi()
        os.environ["GGML_NO_BACKTRACE"] = "1"  # ggml would fork a debugger and wait for it
        self.abort_report = AbortReport(self)
        self.worker_devices: dict[int, Callable[[], WorkerDevice]] = {}  # see lucebox.ggml.devices
        self._log = LogBridge(self)
        self.ggml_backend_load_all_from_path(str(folder).encode())
        if not self.ggml_backend_reg_by_name(_REGISTRIES["cpu"]):
            raise GgmlError(f"{folder} has no CPU backend that runs on this machine", remedy=_REMEDY)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("ggml_"):
            raise AttributeError(f"Library has no attribute {name}")
        function = self._function(name)
        setattr(self, name, function)
        return function

    def _function(self, name: str) -> Any:
        if name not in _api.FUNCTIONS:
            raise GgmlError(f"ggml {_api.VERSION} has no function {name}")
        result, arguments, library = _api.FUNCTIONS[name]
        handle = self._handle(library, is_blocking(name))
        try:
            function = getattr(handle, name)
        except AttributeError:
            raise GgmlError(f"{name} is missing in {self._paths[library]}", remedy=_REMEDY) from None
        function.restype = result
        function.argtypes = arguments
        return function

    def _handle(self, library: str, is_blocking: bool) -> ctypes.CDLL:
        key = library, is_blocking
        if key not in self._handles:
            if library not in self._paths:
                self._paths[library] = self._backend_path(library)
            kind = ctypes.CDLL if is_blocking else ctypes.PyDLL
            self._handles[key] = _open(kind, self._paths[library])
        return self._handles[key]

    def _backend_path(self, library: str) -> Path:
        """The file of a backend that ggml loaded by itself, from the address of its registry."""
        registry = self.ggml_backend_reg_by_name(_REGISTRIES[library])
        if not registry:
            raise GgmlError(f"{self.folder} has no {_REGISTRIES[library].decode()} backend", remedy=_REMEDY)
        info = _DlInfo()
        found = ctypes.CDLL(None).dladdr(ctypes.c_void_p(registry), ctypes.byref(info))
        assert found, "a registry lies in its library"
        return Path(os.fsdecode(info.file_name))

    def _check_abi(self) -> None:
        version = self.ggml_version().decode()
        if version != _api.VERSION:
            raise GgmlError(
                f"{self._paths['ggml']} is ggml {version}, but these bindings are for {_api.VERSION}",
                remedy=_REMEDY,
            )
        overhead = self.ggml_tensor_overhead()
        expected = ctypes.sizeof(_api.Tensor) + _OBJECT_BYTES
        if overhead != expected:
            raise GgmlError(
                f"{self._paths['ggml']} has tensors of {overhead} bytes, these bindings expect {expected}",
                remedy=_REMEDY,
            )
        for names, enum in ((self.ggml_op_name, _api.Op), (self.ggml_type_name, _api.Type)):
            for member in enum:
                name = names(member).decode() if member.name != "COUNT" else "COUNT"
                if name.upper() != member.name:
                    raise GgmlError(
                        f"{self._paths['ggml']} numbers its operations or types differently: "
                        f"{member.value} is {name}, not {member.name}",
                        remedy=_REMEDY,
                    )

    def procedure(self, registry: int, name: str, prototype: Any) -> Any:
        """The optional function `name` of a backend as a callable of the ctypes `prototype`, or None."""
        address = self.ggml_backend_reg_get_proc_address(registry, name.encode())
        return prototype(address) if address else None

    def new_context(self, n_tensors: int, extra_bytes: int = 0) -> int:
        """A context with room for the descriptions (never the data) of `n_tensors` tensors and `extra_bytes`.

        The caller frees it with ggml_free. Raises OutOfMemoryError.
        """
        n_bytes = n_tensors * self.ggml_tensor_overhead() + extra_bytes
        context = self.ggml_init(_api.InitParams(mem_size=n_bytes, mem_buffer=None, no_alloc=True))
        if not context:
            raise OutOfMemoryError(f"No {n_bytes} bytes for a ggml context")
        return int(context)

    def can_map_host_memory(self, device: int) -> bool:
        """Whether tensors of the device may lie in memory that it did not allocate, as a mapped file's."""
        properties = _api.BackendDevProps()
        self.ggml_backend_dev_get_props(device, ctypes.byref(properties))
        return bool(properties.caps.buffer_from_host_ptr)

    def extra_buffer_types(self, device: int) -> list[int]:
        """Buffer types in which weights are laid out for faster products (as CPU_REPACK), best first."""
        registry = self.ggml_backend_dev_backend_reg(device)
        extra = self.procedure(registry, "ggml_backend_dev_get_extra_bufts", _api.BackendDevGetExtraBufts)
        address = extra(device) if extra else None
        types: list[int] = []
        while address:
            buffer_type = ctypes.c_void_p.from_address(address + len(types) * _POINTER_BYTES).value
            if not buffer_type:
                break
            types.append(buffer_type)
        return types

    def set_threads(self, backend: int, n_threads: int) -> None:
        """How many threads a backend computes with; those that have no such choice ignore it."""
        registry = self.ggml_backend_dev_backend_reg(self.ggml_backend_get_device(backend))
        set_n_threads = self.procedure(registry, "ggml_backend_set_n_threads", _api.BackendSetNThreads)
        if set_n_threads:
            set_n_threads(backend, n_threads)


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file_name", ctypes.c_char_p),
        ("file_base", ctypes.c_void_p),
        ("symbol_name", ctypes.c_char_p),
        ("symbol_address", ctypes.c_void_p),
    )


def _find(folder: Path, name: str) -> Path:
    suffix = "dylib" if sys.platform == "darwin" else "so"
    path = folder / f"lib{name}.{suffix}"
    if not path.exists():
        raise GgmlError(f"ggml's library {path} is missing", remedy=_REMEDY)
    return path


def _open(kind: type[ctypes.CDLL], path: Path, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    try:
        return kind(str(path), mode=mode)
    except OSError as error:
        raise GgmlError(f"ggml's library cannot be loaded: {error}", remedy=_REMEDY) from error
