"""Whether a worker's device can compute an operation: asked of the device itself, and asked by strangers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lucebox.errors import WorkerError
from lucebox.ggml import _api
from lucebox.ggml.devices import find_device, list_devices
from lucebox.ggml.library import load
from lucebox.models.forward import Shape
from lucebox.runtime.runtime import Runtime
from lucebox.worker.address import WorkerAddress
from lucebox.worker.client import WorkerLink, connect
from lucebox.worker.control import ControlConnection
from lucebox.worker.operation import Operation, check, describe, rebuild
from lucebox.worker.protocol import Ping, Pong, Supported, Supports
from tests.support.tiny_models import write_tiny
from tests.support.workers import WorkerProcess


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess() as process:
        yield process


@pytest.fixture
def link(worker: WorkerProcess) -> Iterator[WorkerLink]:
    (link,) = connect([worker.address], lambda reason: None)
    yield link
    link.close()


def test_the_real_device_says_what_it_supports(link: WorkerLink) -> None:
    library, (far,) = load(), [device for device in list_devices() if device.worker is not None]
    context = library.new_context(8)
    try:
        a = library.ggml_new_tensor_2d(context, _api.Type.F32, 256, 4)
        product = library.ggml_mul_mat(
            context, library.ggml_new_tensor_2d(context, _api.Type.Q4_0, 256, 4), a
        )
        converted = library.ggml_cpy(
            context, a, library.ggml_new_tensor_2d(context, _api.Type.IQ2_XXS, 256, 4)
        )
        unknown = library.ggml_arange(context, 0.0, 3.0, 1.0)
        assert library.ggml_backend_dev_supports_op(far.pointer, converted)  # which is why we ask
        for _ in range(2):
            assert far.supports(product)
            assert not far.supports(converted)
        assert not far.supports(unknown)
        assert len(link._answers) == 2
    finally:
        library.ggml_free(context)


@pytest.mark.parametrize(("arch", "n_expert"), [("llama", 0), ("qwen2", 0), ("llama", 4)])
def test_every_operation_of_a_model_can_be_asked_for(
    link: WorkerLink, tmp_path: Path, arch: str, n_expert: int
) -> None:
    library, cpu = load(), find_device("CPU")
    model = write_tiny(tmp_path / "tiny.gguf", arch, dtype="q4_0", n_expert=n_expert)
    with Runtime.load(model, device="CPU", n_threads=1, n_ctx=256, cpu_kernels="ggml") as runtime:
        graph = runtime.graphs.get(Shape(8, 256, 2, gathers=True)).pointer
        nodes = [library.ggml_graph_node(graph, i) for i in range(library.ggml_graph_n_nodes(graph))]
        for node in nodes:
            operation = describe(node)
            assert operation is not None
            with rebuild(library, operation) as again:
                assert describe(again) == operation
            assert link.supports(0, node) == cpu.supports(node) is True
    assert len(link._answers) < len(nodes)  # layers are alike


def test_hostile_operations_are_refused(link: WorkerLink, worker: WorkerProcess) -> None:
    operations = _operations()
    assert len(operations) > 5
    source = random.Random(5)
    connection = ControlConnection(WorkerAddress("127.0.0.1", worker.port))
    n_refused = 0
    for _ in range(400):
        hostile = _mutated(source.choice(operations), source)
        is_bad = _is_refused_by_us(hostile)
        try:
            connection.ask(Supports(source.choice((0, 0, 0, 1, -1)), hostile), Supported)
        except WorkerError as error:
            assert "refused" in error.message  # noqa: PT017
            n_refused += 1
        else:
            assert not is_bad
    assert n_refused > 100
    assert connection.ask(Ping(), Pong) == Pong()
    connection.close()
    for operation in operations:
        check(load(), operation)


def _operations() -> list[Operation]:
    """One of each kind that a model has."""
    library = load()
    context = library.new_context(64)
    try:
        f32, f16 = _api.Type.F32, _api.Type.F16
        x = library.ggml_new_tensor_2d(context, f32, 64, 8)
        q = library.ggml_new_tensor_4d(context, f32, 16, 8, 4, 1)
        k = library.ggml_new_tensor_4d(context, f16, 16, 256, 2, 1)
        mask = library.ggml_new_tensor_4d(context, f16, 256, 64, 1, 1)
        rows = library.ggml_new_tensor_1d(context, _api.Type.I64, 8)
        ids = library.ggml_new_tensor_1d(context, _api.Type.I32, 8)
        weight = library.ggml_new_tensor_2d(context, _api.Type.Q4_0, 64, 32)
        pointers = [
            library.ggml_mul_mat(context, weight, x),
            library.ggml_add(context, x, library.ggml_new_tensor_1d(context, f32, 64)),
            library.ggml_rms_norm(context, x, 1e-5),
            library.ggml_get_rows(context, weight, ids),
            library.ggml_set_rows(context, library.ggml_new_tensor_2d(context, f16, 64, 256), x, rows),
            library.ggml_flash_attn_ext(context, q, k, k, mask, 0.25, 0.0, 0.0),
            library.ggml_swiglu_split(context, x, x),
            library.ggml_soft_max_ext(context, x, None, 1.0, 0.0),
        ]
        described = [describe(pointer) for pointer in pointers]
        return [operation for operation in described if operation is not None]
    finally:
        library.ggml_free(context)


def _mutated(operation: Operation, source: random.Random) -> Operation:
    """With one to three numbers of it replaced."""
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(operation))
    odd = (-1, 0, 1, 2, 3, 7, 31, 43, 64, 99, 101, 2**31, 2**40, 2**62, -(2**63))
    for _ in range(source.randrange(1, 4)):
        place = source.randrange(6)
        tensor = source.choice(raw[2])
        if place == 0:
            raw[0] = source.choice(odd)
        elif place == 1:
            raw[1] = source.randbytes(64)
        elif place == 2:
            tensor[0] = source.choice(odd)
        elif place == 3:
            tensor[source.choice((1, 2))][source.randrange(4)] = source.choice(odd)
        elif place == 4:
            tensor[3], tensor[4] = source.choice((None, 0, 1, 9, -1)), source.choice(odd)
        else:
            raw[3][source.randrange(len(raw[3]))] = source.choice((None, 0, 1, 2, 9, -1))
    return msgspec.convert(raw, Operation)


def _is_refused_by_us(operation: Operation) -> bool:
    try:
        check(load(), operation)
    except ValueError:
        return True
    return False
