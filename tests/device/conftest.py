"""Tests of one accelerator: TEST_ACCELERATOR names it, else the first that ggml lists. Without any, none is
collected."""

from __future__ import annotations

import os

import pytest

from lucebox.errors import LuceboxError
from lucebox.ggml.devices import Device, DeviceKind, find_device, list_devices

ENVIRONMENT = "TEST_ACCELERATOR"


def find_accelerator() -> Device | None:
    try:
        if name := os.environ.get(ENVIRONMENT):
            return find_device(name)
        accelerators = (DeviceKind.GPU, DeviceKind.INTEGRATED_GPU)
        return next((device for device in list_devices() if device.kind in accelerators), None)
    except LuceboxError as error:
        if ENVIRONMENT in os.environ:
            raise pytest.UsageError(str(error)) from error
        return None


collect_ignore_glob = [] if find_accelerator() else ["test_*.py"]


@pytest.fixture(scope="session")
def accelerator() -> str:
    """Its name."""
    device = find_accelerator()
    assert device is not None
    return device.name
