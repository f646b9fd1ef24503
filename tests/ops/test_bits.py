"""The same bits of every operator, in numpy and in each lowering: on other processors, and at other addresses."""

import json
from pathlib import Path

import bits
import numpy as np
import pytest
from bits import ROWS, digest
from contract import Arrays, run_lowering
from onnx import TensorProto, helper, numpy_helper
from other_processors import needs_emulator, python
from soak import SOAK, thinned
from tables import check_rows

from runner import ops
from runner.compile.session import ALIGNMENT, Session
from runner.device import Device
from runner.types import TensorType

# In CI each 61st row, of all kinds of operators in turn; in `make soak` all.
STEP = 1 if SOAK else 61


def digests(operands: Path, processor: str | None = None) -> dict[str, str]:
    """The results of the rows on this processor, or on an emulated one."""
    found: dict[str, str] = json.loads(python(bits.__file__, str(operands), str(STEP), processor=processor))
    return found


@pytest.fixture(scope="module")
def operands(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("bits") / "operands.npz"
    bits.write_operands(str(path))
    return path


@pytest.fixture(scope="module")
def here(operands) -> dict[str, str]:
    return digests(operands)


@needs_emulator
@pytest.mark.parametrize("processor", [*thinned(("Haswell", "EPYC-v2"), every=2)])
def test_on_another_processor(processor, operands, here):
    """With AVX2 and without AVX-512, whatever this machine has."""
    there = digests(operands, processor)
    assert len(there) > len(ROWS) // STEP
    assert {name: there[name] for name in here if there[name] != here[name]} == {}


# At other addresses


def at(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy that begins so many bytes behind a multiple of 64."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def test_at_other_addresses():
    """A view of some rows, or the array of another library, begins anywhere; onnxruntime depends on that."""

    def check(number: int) -> None:
        sample = ROWS[number]
        types = tuple(map(TensorType.of, sample.arrays))
        for form in (None, *sample.op.lowerings(*types)):
            run = run_lowering(sample.op, types, form)
            expected = digest(run(tuple(at(array, 0) for array in sample.arrays)))
            for offset in (16, 32, 48, 8, 4):
                assert digest(run(moved(sample.arrays, offset))) == expected, (form, offset)

    check_rows([*thinned(range(len(ROWS)), 23)], check, name=lambda number: ROWS[number].name)


def moved(arrays: Arrays, offset: int) -> Arrays:
    return tuple(at(array, offset) if offset % max(1, array.itemsize) == 0 else at(array, 0) for array in arrays)


def test_without_alignment_the_address_would_count(monkeypatch):
    """What `ALIGNMENT` is for: with 4, the sum of a long row depends on where it begins."""
    x = np.random.default_rng(3).normal(size=(7, 1003)).astype(np.float32)
    run = run_lowering(ops.ReduceSum(False, 1), (TensorType.of(x),), None)
    found = {}
    for alignment in (4, ALIGNMENT):
        monkeypatch.setattr("runner.compile.session.ALIGNMENT", alignment)
        found[alignment] = {digest(run((at(x, offset),))) for offset in range(0, 64, 4)}
    assert len(found[ALIGNMENT]) == 1 < len(found[4])


def test_a_constant_filter_is_computed_as_an_input():
    """With the blocked layout of onnxruntime, one that is a constant would be summed in the blocks of the processor."""
    rng = np.random.default_rng(5)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 64, 9, 9), (64, 64, 3, 3)))
    results = []
    for constant in (False, True):
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in (("x", x), ("w", w))]
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        node = helper.make_node("Conv", ["x", "w"], ["y"])
        constants = [numpy_helper.from_array(w, "w")] if constant else []
        graph = helper.make_graph([node], "g", inputs[: 2 - constant], [y], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        session = Session(model.SerializeToString(), Device(threads=1))
        results.append(session.run({"x": x} if constant else {"x": x, "w": w})["y"])
    np.testing.assert_array_equal(*results)
