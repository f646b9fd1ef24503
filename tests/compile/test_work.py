"""The number of parts that a batch gets, from the operations of its graph, and where its values are kept."""

import numpy as np
import pytest

from runner import dtype, ops
from runner.compile import Program, parts, program as work
from runner.compile.program import ARENA_BYTES, estimated_seconds, with_memory
from runner.core.parts import Parts
from runner.core.trace import trace
from runner.device import Device
from runner.types import TensorType


def product(rows):
    """A product of 2 * rows * 1000 * 1000 operations."""
    kinds = [TensorType(dtype.float32, shape) for shape in ((rows, 1000), (1000, 1000))]
    return trace(lambda x, y: ops.MatMul()(x, y), kinds, "product")


def classifier(batch, width=64):
    """Products of 2 * batch * width * width operations, and a sum over the batch."""
    kinds = [TensorType(dtype.float32, shape) for shape in ((batch, width), (width, width))]
    return trace(lambda x, w: ops.ReduceSum()(ops.MatMul()(x, w)), kinds, "classifier")


@pytest.mark.parametrize(
    ("batch", "count"), [(31, None), (32, 2), (33, None), (64, 4), (96, 4), (128, 8), (4096, 8), (16, None)]
)
def test_samples_say_how_many_parts_there_are(monkeypatch, batch, count):
    monkeypatch.setattr(parts, "PART_FLOPS", 1)
    found = parts.parts_of(classifier(batch), Device())
    assert found == (None if count is None else Parts(count, batch))


@pytest.mark.parametrize(("width", "count"), [(100, None), (483, None), (485, 2), (685, 4), (1000, 8)])
def test_a_part_has_work_enough(width, count):
    """256 * width * width operations, of which each part has 30 million."""
    found = parts.parts_of(classifier(128, width), Device())
    assert (found and found.count) == count


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_find_the_parts_of_one_process(ranks):
    whole = parts.parts_of(classifier(256, 2000), Device())
    assert whole == Parts(8, 256)
    for width in (2000, 2):  # however small the work is: a single process of a data-parallel run has them too
        found = parts.parts_of(classifier(256 // ranks, width), Device(), ranks)
        assert found == Parts(8 // ranks, 256 // ranks, ranks)


def test_neither_threads_nor_cores_change_the_parts(monkeypatch):
    found = set()
    for threads in (1, 2, 7, 64):
        monkeypatch.setattr(work, "keep_freed_memory", lambda: False)
        found.add(parts.parts_of(classifier(128, 2000), Device(threads=threads)))
    assert found == {Parts(8, 128)}


def test_cards_compute_whole_batches():
    assert parts.parts_of(classifier(128, 2000), Device("GPU")) is None


def test_a_session_has_one_thread():
    kind = TensorType(dtype.float32, (4,))
    program = Program(lambda x: x + x, [kind], Device(threads=5), "sum")
    assert program.session.device.workers == 1
    assert np.array_equal(program([np.ones(4, np.float32)])[0], np.full(4, 2.0))


def test_the_estimate_of_a_step_counts_operators_elements_and_operations():
    kind = TensorType(dtype.float32, (1000,))
    graphs = [trace(function, [kind], "f") for function in (lambda x: x + x, lambda x: x + x + x)]
    small, larger = map(estimated_seconds, graphs)
    assert 20e-6 < small < larger < 2 * small * 1.01
    assert estimated_seconds(product(1000)) > 2e9 / 50e9


def sums(rows):
    """Three sums of vectors with so many elements."""
    return trace(lambda x: x + x + x + x, [TensorType(dtype.float32, (rows,))], "sums")


@pytest.mark.parametrize(
    ("device", "rows", "kept", "arena"),
    [
        (Device(), ARENA_BYTES // 12 - 1, True, True),
        (Device(), ARENA_BYTES // 12 + 1, True, False),
        (Device(), ARENA_BYTES // 12 + 1, False, True),
        (Device("GPU"), ARENA_BYTES // 12 + 1, True, True),
    ],
    ids=["few values", "many values", "another C library", "gpu"],
)
def test_large_graphs_have_no_arena(monkeypatch, device, rows, kept, arena):
    monkeypatch.setattr(work, "keep_freed_memory", lambda: kept)
    assert with_memory(device, sums(rows)).arena is arena


def test_a_program_without_arena_computes_the_same_bits(monkeypatch):
    kind, results = TensorType(dtype.float32, (64, 64)), []
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    for limit in (1 << 40, 0):
        monkeypatch.setattr(work, "ARENA_BYTES", limit)
        program = Program(lambda x: ops.MatMul()(x, x) + x, [kind], Device(), "f")
        assert program.session.device.arena is (limit > 0)
        results.append(program([x])[0].tobytes())
    assert results[0] == results[1]
