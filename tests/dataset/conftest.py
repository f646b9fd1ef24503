"""Files made by hand, from the formats' descriptions and not from the readers, and the real ones where they are."""

import gzip
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from runner.host import seed

REAL_DATA = Path(__file__).parents[2].parent / "shared" / "data"
Writer = Callable[..., Path]


@pytest.fixture(autouse=True)
def _seed_1() -> Iterator[None]:
    before = seed.get_seed()
    seed.set_seed(1)
    yield
    seed.set_seed(before)


@pytest.fixture
def idx_bytes() -> Callable[[np.ndarray], bytes]:
    """The IDX form of a uint8 array."""
    return lambda a: bytes([0, 0, 8, a.ndim]) + struct.pack(f">{a.ndim}I", *a.shape) + a.astype(np.uint8).tobytes()


@pytest.fixture
def write_mnist(tmp_path: Path, idx_bytes: Callable[[np.ndarray], bytes]) -> Writer:
    """Writes one small split; image k is full of the number k, its label is k % 10."""

    def write(prefix: str = "train", count: int = 12, side: int = 4, zipped: bool = False, place: str = "") -> Path:
        folder = tmp_path / place
        folder.mkdir(exist_ok=True)
        images = np.repeat(np.arange(count, dtype=np.uint8), side * side).reshape(count, side, side)
        for name, values in (
            (f"{prefix}-images-idx3-ubyte", images),
            (f"{prefix}-labels-idx1-ubyte", np.arange(count) % 10),
        ):
            data = idx_bytes(values)
            (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(data) if zipped else data)
        return tmp_path

    return write


@pytest.fixture
def write_cifar(tmp_path: Path) -> Writer:
    """Writes records whose pixel at plane p, row y, column x is (record + 64p + 2y + x) % 256, label record % 10."""

    def write(name: str = "data_batch_1.bin", count: int = 5) -> Path:
        record, plane, row, column = np.ogrid[:count, :3, :32, :32]
        pixels = ((record + 64 * plane + 2 * row + column) % 256).astype(np.uint8)
        lines = [bytes([k % 10]) + pixels[k].tobytes() for k in range(count)]
        data = b"".join(lines)
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path

    return write


def _real(name: str) -> Path:
    folder = REAL_DATA / name
    if not folder.is_dir():
        pytest.skip(f"needs the real data in {folder}")
    return folder


@pytest.fixture
def real_mnist() -> Path:
    """The folder of the real MNIST, or a skip."""
    return _real("mnist")


@pytest.fixture
def real_cifar10() -> Path:
    """The folder of the real CIFAR-10, or a skip."""
    return _real("cifar10")
