"""What is asked of the machine beside facts."""

import platform

import numpy as np
import pytest

from runner.errors import ConfigError
from runner.host import machine
from runner.host.machine import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep what is freed")
def test_memory_that_was_freed_serves_the_next_array():
    import resource

    def faults(count: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(count):
            np.ones(1 << 24, np.float32)  # 64 MiB: glibc maps arrays of this size anew, each of the pages faults once
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    keep_freed_memory()
    faults(1)
    assert faults(4) < 4 * 16  # a mapping has 16384 pages, or at least 32 where they are of 2 MiB


def test_memory_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: 1 << 30)
    machine.require_memory(1 << 30, parameter="a")
    with pytest.raises(ConfigError) as caught:
        machine.require_memory((1 << 30) + 1, parameter="a")
    assert caught.value.rows == {"parameter": "a", "needed": "1 GiB", "available": "1 GiB"}


def test_available_memory():
    assert 0 < machine.available_bytes() <= machine.memory_bytes()
