"""CRC-32C against its published values and against a loop over bytes."""

import event_records
import numpy as np
import pytest

from runner.host import event_files as module
from runner.host.event_files import crc32c, masked_crc32c

# RFC 3720, B.4.
PUBLISHED = {
    bytes(32): 0x8A9136AA,
    bytes([0xFF] * 32): 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"": 0,
}


def test_published_values():
    assert {data: crc32c(data) for data in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 4200, 10_000, 65_537])
def test_a_loop_over_bytes(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    assert masked_crc32c(data) == event_records.masked(data)


def test_every_size_in_rows(monkeypatch):
    monkeypatch.setattr(module, "SMALL", 0)
    data = np.random.default_rng(1).integers(0, 256, 300, np.uint8).tobytes()
    for size in range(300):
        assert masked_crc32c(data[:size]) == event_records.masked(data[:size])
