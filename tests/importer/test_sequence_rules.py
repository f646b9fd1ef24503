"""Sequences of tensors whose length is known when the network is imported."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from both_modes import MODES, step_of
from onnx import TensorProto, helper
from onnx_files import model, saved

from runner.core.gradients import gradients
from runner.errors import ConfigError
from runner.importer.network import OnnxNetwork


def network(path: Path, *nodes: tuple, **constants: object) -> OnnxNetwork:
    """x (4, 6) through nodes given as operator, inputs, outputs and attributes; the last one writes y."""
    made = [helper.make_node(operator, a, b, f"n{k}", **more) for k, (operator, a, b, more) in enumerate(nodes)]
    arrays = {name: np.asarray(value, np.int64) for name, value in constants.items()}
    return OnnxNetwork(str(saved(path / "sequence.onnx", model(made, {"x": (4, 6)}, ["y"], arrays, 18))), logits=False)


X = np.arange(24, dtype=np.float32).reshape(4, 6) - 7
FIRST, LAST = (("SequenceAt", ["s", name], [result], {}) for name, result in (("first", "a"), ("last", "b")))
SEQUENCES = {
    "parts of one length, the last shorter": [
        ("SplitToSequence", ["x", "four"], ["s"], {"axis": 1}), LAST, ("Abs", ["b"], ["y"], {})
    ],
    "parts of given lengths": [
        ("SplitToSequence", ["x", "lengths"], ["s"], {"axis": -1}), FIRST, LAST, ("Add", ["a", "b"], ["y"], {})
    ],
    "single rows": [("SplitToSequence", ["x"], ["s"], {"keepdims": 0}), FIRST, LAST, ("Sub", ["a", "b"], ["y"], {})],
    "joined along a new axis": [
        ("Neg", ["x"], ["z"], {}),
        ("SequenceConstruct", ["x", "z", "x"], ["s"], {}),
        ("ConcatFromSequence", ["s"], ["y"], {"axis": -1, "new_axis": 1}),
    ],
    "joined along an axis": [
        ("SplitToSequence", ["x", "lengths"], ["s"], {"axis": 1}),
        ("ConcatFromSequence", ["s"], ["y"], {"axis": 1}),
    ],
    "its length, and a known part": [
        ("Shape", ["x"], ["shape"], {}),
        ("SplitToSequence", ["shape", "one"], ["s"], {}),
        ("SequenceLength", ["s"], ["n"], {}),
        ("SequenceAt", ["s", "last"], ["columns"], {}),
        ("Expand", ["one_number", "columns"], ["ones"], {}),
        ("Cast", ["n"], ["f"], {"to": TensorProto.FLOAT}),
        ("Cast", ["ones"], ["g"], {"to": TensorProto.FLOAT}),
        ("Mul", ["x", "f"], ["xf"], {}),
        ("Add", ["xf", "g"], ["y"], {}),
    ],
}  # fmt: skip
NUMBERS = {"four": 4, "first": 0, "last": -1, "lengths": [3, 3], "one": 1, "one_number": [1]}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_give_what_onnxruntime_gives(tmp_path, name, mode):
    made = network(tmp_path, *SEQUENCES[name], **NUMBERS)
    expected = onnxruntime.InferenceSession(tmp_path / "sequence.onnx").run(None, {"x": X})[0]
    np.testing.assert_array_equal(step_of(made.construct, mode)(X)[0], expected)
    slope = step_of(lambda value: gradients(made.construct(value), [value]), mode)(X)[0]
    assert slope.shape == X.shape
    assert np.abs(slope).max() > 0


@pytest.mark.parametrize("mode", MODES)
def test_a_sequence_of_another_batch_than_that_of_the_file(tmp_path, mode):
    made, x = network(tmp_path, *SEQUENCES["parts of given lengths"], **NUMBERS), np.concatenate([X, X + 1])
    np.testing.assert_array_equal(step_of(made.construct, mode)(x)[0], x[:, :3] + x[:, 3:])
    rows = network(tmp_path, *SEQUENCES["single rows"], **NUMBERS)
    with pytest.raises(ConfigError, match="reads samples by number"):
        step_of(rows.construct, mode)(x)


@pytest.mark.parametrize(
    ("nodes", "what"),
    [
        ([("SplitToSequence", ["x", "lengths"], ["y"], {})], "the parts of a split are not the whole"),
        ([("SplitToSequence", ["x", "four"], ["y"], {})], "the output of an ONNX file is a sequence"),
        (
            [("SplitToSequence", ["x", "four"], ["s"], {}), ("SequenceAt", ["s", "four"], ["y"], {})],
            "a sequence has no such position",
        ),
    ],
)
def test_sequences_that_are_refused(tmp_path, nodes, what):
    with pytest.raises(ConfigError, match=what):
        step_of(network(tmp_path, *nodes, **NUMBERS).construct, "pynative")(X)
