"""On a GPU, launch time on the host is not part of a call's time: the device waits for the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from benchmarks.measuring import timing

if TYPE_CHECKING:
    from collections.abc import Callable


class Device:
    """A GPU as a clock: it runs what it was given, in order, beside a host whose clock it knows."""

    def __init__(self) -> None:
        self.host_ms = 0.0
        self.free_ms = 0.0

    def launch(self, milliseconds: float, *, host_ms: float = 0.005) -> float:
        self.host_ms += host_ms
        self.free_ms = max(self.free_ms, self.host_ms) + milliseconds
        return self.free_ms


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = found.launch(0.0)

        def query(self) -> bool:
            return self.at <= found.host_ms

        def synchronize(self) -> None:
            found.host_ms = max(found.host_ms, self.at)

        def elapsed_time(self, other: Event) -> float:
            return other.at - self.at

    class Cache:
        def zero_(self) -> None:
            found.launch(0.07)

    def empty(*_: object, **__: object) -> Cache:
        return Cache()

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    # At 2 GHz.
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: found.launch(cycles / 2e6))
    return found


def kernels(device: Device, count: int, milliseconds: float, host_ms: float) -> Callable[[], None]:
    def call() -> None:
        for _ in range(count):
            device.launch(milliseconds, host_ms=host_ms)

    return call


def test_a_short_kernel_is_timed_without_its_launch(device: Device) -> None:
    call = kernels(device, 1, 0.02, host_ms=0.5)
    assert timing.sample(call, 5, "cuda").wall_ms == pytest.approx(0.02)


def test_the_device_waits_longer_where_the_host_does(device: Device) -> None:
    call = kernels(device, 10, 0.02, host_ms=0.4)
    assert timing.sample(call, 5, "cuda").wall_ms == pytest.approx(0.2)
    assert timing._waits[call] == 4 * timing.LEAST_WAIT


def test_a_call_that_no_wait_hides_is_timed_all_the_same(device: Device) -> None:
    call = kernels(device, 10, 0.02, host_ms=4.0)
    assert timing.sample(call, 2, "cuda").wall_ms > 1.0


def test_a_sample_of_a_gpu_is_few_calls() -> None:
    assert timing.calls_per_sample(1e-5, "cuda") == timing.MAX_GPU_CALLS
    assert timing.calls_per_sample(1e-5) == timing.MAX_CALLS
