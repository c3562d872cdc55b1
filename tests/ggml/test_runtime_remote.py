"""A device whose memory the host cannot reach: inputs are sent, outputs fetched, weights uploaded."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_models import write_tiny

# Both sides run outside the test process: a registered device would stay in ggml's registry for other tests.
SERVER = """
import ctypes, sys
from lucebox.ggml.library import load
library = load()
devices = (ctypes.c_void_p * 1)(library.ggml_backend_dev_by_name(b"CPU"))
library.ggml_backend_rpc_start_server(sys.argv[1].encode(), None, 1, 1, devices)
"""
CLIENT = """
import ctypes, sys
import numpy as np
from lucebox.ggml.library import load
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime

library = load()
registry = library.ggml_backend_reg_by_name(b"RPC")
prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
add_server = library.procedure(registry, "ggml_backend_rpc_add_server", prototype)
library.ggml_backend_register(add_server(sys.argv[1].encode()))
results = []
for device in ("CPU", "RPC0"):
    with Runtime.load(sys.argv[2], device=device, n_threads=1, n_ctx=256, kv_type="f32") as runtime:
        assert runtime.backend.is_host == (device == "CPU")
        prompt = Rows.chain(0, list(range(70)), 0, want_all=Want.HIDDEN)
        output = runtime.forward(prompt)
        results.append([output.logits.copy(), output.hidden.copy()])
        runtime.cache.commit(0, range(70))
        tree = Rows.tree(0, [1, 2, 3, 4, 5, 6, 7], [-1, 0, 0, 1, 1, 2, -1], 70)
        tree.wants[3] = Want.NOTHING
        results[-1].append(runtime.forward(tree).logits.copy())
for here, there in zip(*results, strict=True):
    np.testing.assert_allclose(here, there, atol=2e-5)
"""


@pytest.mark.parametrize("dtype", ["f32", "q4_0"])
def test_a_remote_device_computes_the_same(tmp_path: Path, dtype: str) -> None:
    model = write_tiny(tmp_path / "tiny.gguf", "qwen2", dtype=dtype)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, endpoint],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if endpoint in line:
                break
        client = subprocess.run(
            [sys.executable, "-c", CLIENT, endpoint, str(model)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    assert client.returncode == 0, client.stderr
