"""A file is promised to train exactly when it does: a trial without data agrees with a step with data in both modes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from both_modes import MODES, step_of
from conformance import Case, cases
from onnx import TensorProto, helper, numpy_helper
from onnx_files import classifier, model, saved
from onnx_kinds import FILES
from onnx_mutations import bases
from soak import thinned
from tables import table

from runner import nn
from runner.errors import RunnerError
from runner.importer import trial
from runner.importer.network import OnnxNetwork
from runner.importer.trial import tried

RNG = np.random.default_rng(8)


def n(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def of(operator: str, inputs: str, output: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], name or operator.lower(), **attributes)


def layers(before: Sequence[onnx.NodeProto], result: str, width: int) -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """Nodes that compute `result`, and a dense layer behind them."""
    nodes = [*before, of("Flatten", result, "flat"), of("Gemm", "flat v", "y", "dense")]
    return nodes, {"v": n(width, 2)}


def convolved(lengths: Sequence[Any], width: int) -> onnx.ModelProto:
    nodes, arrays = layers([of("Conv", "x w", "c", strides=[2, 2], pads=[1, 1, 1, 1])], "c", width)
    return model(nodes, {"x": ["n", 3, *lengths]}, ["y"], {"w": n(4, 3, 3, 3), **arrays})


def pooled(lengths: Sequence[Any]) -> onnx.ModelProto:
    nodes, arrays = layers([of("Conv", "x w", "c"), of("GlobalAveragePool", "c", "p")], "p", 4)
    return model(nodes, {"x": ["n", 3, *lengths]}, ["y"], {"w": n(4, 3, 3, 3), **arrays})


def sampled(mode: str, size: Any = 4) -> onnx.ModelProto:
    nodes, arrays = layers([of("GridSample", "x grid", "s", "sample", mode=mode)], "s", 8)
    return model(nodes, {"x": ["n", 2, size, size], "grid": ["n", 2, 2, 2]}, ["y"], arrays)


def positions() -> onnx.ModelProto:
    """Texts of up to 20 tokens, with a table of positions."""
    nodes = [
        of("Shape", "x", "shape", start=1),
        of("Slice", "places zero shape", "p"),
        of("Cast", "x", "ids", to=TensorProto.INT64),
        of("Gather", "words ids", "e"),
        of("Add", "e p", "h"),
        of("ReduceMean", "h", "r", axes=[1]),
        of("MatMul", "r v", "y"),
    ]
    arrays = {"places": n(20, 4), "words": n(9, 4), "v": n(4, 2), "zero": np.zeros(1, np.int64)}
    return model(nodes, {"x": ["n", "tokens"]}, ["y"], arrays)


def chosen() -> onnx.ModelProto:
    """A branch on data."""
    branches = {}
    for key, weight in (("then_branch", "a"), ("else_branch", "b")):
        output = helper.make_tensor_value_info(key, TensorProto.FLOAT, None)
        branches[key] = helper.make_graph([of("MatMul", f"x {weight}", key)], key, [], [output])
    nodes = [of("ReduceSum", "x", "s", keepdims=0), of("Greater", "s zero", "c"), of("If", "c", "y", **branches)]
    return model(nodes, {"x": ["n", 3]}, ["y"], {"a": n(3, 2), "b": n(3, 2), "zero": np.zeros((), np.float32)})


def selected() -> onnx.ModelProto:
    """Places that depend on data."""
    nodes = [of("NonZero", "x", "i"), of("Shape", "i", "s"), of("Expand", "w s", "y")]
    return model(nodes, {"x": ["n", 3]}, ["y"], {"w": n(1, 1)})


def half() -> onnx.ModelProto:
    made = model([of("MatMul", "x w", "y")], {"x": ["n", 3]}, ["y"], {})
    made.graph.initializer.append(numpy_helper.from_array(n(3, 2).astype(np.float16), "w"))
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return made


def fixed(by_number: bool) -> onnx.ModelProto:
    """A file for batches of 4, which may read its samples by number."""
    rows = np.arange(4) if by_number else np.arange(3)
    nodes = [of("Gather", "x i", "g", axis=0 if by_number else 1), of("MatMul", "g w", "y")]
    return model(nodes, {"x": [4, 3]}, ["y"], {"i": rows, "w": n(3, 2)})


def second() -> onnx.ModelProto:
    """Sequences of 6 steps, which come first, as in recurrent networks."""
    nodes = [of("RNN", "x w r", "h", "rnn", hidden_size=2), of("Squeeze", "h one", "s"), of("MatMul", "s v", "y")]
    arrays = {"w": n(1, 2, 3), "r": n(1, 2, 2), "v": n(2, 2), "one": np.array([1])}
    return model(nodes, {"x": [6, "n", 3]}, ["y"], arrays)


def texts_of(rows: int) -> onnx.ModelProto:
    """A file for so many texts, whose length a weight fixes."""
    nodes = [of("Reshape", "x shape", "h"), of("MatMul", "h v", "y")]
    return model(nodes, {"x": [rows, "tokens"]}, ["y"], {"shape": np.array([rows, -1]), "v": n(3, 2)})


@dataclass(frozen=True)
class File:
    """A file, what is found of it without data, and the shape of data with which it trains."""

    made: onnx.ModelProto
    data: Sequence[Sequence[int]]
    rows: Sequence[int] = ()
    lengths: Mapping[str, int] = field(default_factory=dict)
    nodes: Sequence[str] = ()
    depends: bool = False


SETTING = "a setting is not supported"
KNOWN = "an input must be known when the network is imported"
CASES = {
    "dense": File(classifier(), [(5, 6)], (2, 3)),
    "Float16": File(half(), [(5, 3)], (2, 3)),
    "branch on data": File(chosen(), [(5, 3)], (2, 3)),
    "any size": File(pooled(["h", "w"]), [(5, 3, 40, 41)], (2, 3), {"h": 32, "w": 32}),
    "sizes without names": File(pooled([None, None]), [(5, 3, 9, 9)], (2, 3), {"x[2]": 32, "x[3]": 32}),
    "one size": File(convolved(["h", "w"], 4 * 14 * 14), [(5, 3, 28, 28)], (2, 3), {"h": 28, "w": 28}),
    "up to 20 tokens": File(positions(), [(5, 7)], (2, 3), {"tokens": 8}),
    "batches along the second axis": File(second(), [(5, 6, 3)], (2, 3)),
    "batches of 4 of texts of any length": File(texts_of(4), [(5, 3)], (4, 2), {"tokens": 3}),
    "batches of 4": File(fixed(by_number=False), [(5, 3)], (4, 2)),
    "batches of 4 only": File(fixed(by_number=True), [(4, 3)], (4,), nodes=["gather"]),
    "sampled": File(sampled("bilinear"), [(5, 2, 4, 4), (5, 2, 2, 2)], (2, 3)),
    "a rare size": File(convolved(["h", "w"], 4 * 15 * 15), [(5, 3, 30, 30)], (2, 3), {"h": 29, "w": 29}),
    "a width of weights": File(
        model([of("MatMul", "x w", "y")], {"x": ["n", "d"]}, ["y"], {"w": n(77, 2)}), [(5, 77)], (2, 3), {"d": 77}
    ),
    "another height": File(
        convolved(["h", "w"], 4 * 14 * 15), [(5, 3, 28, 30)], (), {"h": 32, "w": 32}, ["dense"], depends=True
    ),
    "bicubic": File(sampled("bicubic"), [(5, 2, 4, 4), (5, 2, 2, 2)], nodes=["sample"]),
    "bicubic, any size": File(sampled("bicubic", "s"), [(5, 2, 4, 4), (5, 2, 2, 2)], (), {"s": 32}, ["sample"]),
    "places by data": File(selected(), [(5, 3)], nodes=["nonzero"]),
    "no parameter": File(model([of("Relu", "x", "y")], {"x": ["n", 3]}, ["y"], {}), [(5, 3)], nodes=[""]),
    "no shape": File(
        model([of("MatMul", "x w", "y")], {"x": None}, ["y"], {"w": n(3, 2)}), [(5, 3)], nodes=[""], depends=True
    ),
}


class Power(nn.Cell):
    """The mean of the squares of a network."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, *inputs):
        return (self.network(*inputs) ** 2).mean()


def trains(path: Path, mode: str, given: Callable[[OnnxNetwork], Sequence[np.ndarray]]) -> bool:
    """Whether a training step with data runs, which then has a loss."""
    try:
        network = OnnxNetwork(str(path)).set_train()
        step = nn.TrainOneStepCell(Power(network), nn.Momentum(network.trainable_params(), 0.1, 0.9)).set_train()
        (loss,) = step_of(step.construct, mode)(*given(network))
    except RunnerError:
        return False
    return loss.shape == ()


@table("name", list(CASES))
def test_the_promise_is_what_training_keeps(tmp_path, name):
    case = CASES[name]
    path = saved(tmp_path / "file.onnx", case.made)
    found = tried(path)
    assert (tuple(found.rows), dict(found.lengths), found.depends) == (tuple(case.rows), case.lengths, case.depends)
    assert [*dict.fromkeys(error.rows.get("node", "") for error in found.refusals)] == [*case.nodes]
    data = [np.abs(n(*shape)) for shape in case.data]
    for mode in MODES:
        assert trains(path, mode, lambda network: data) is bool(case.rows or case.depends), mode


def with_a_weight(case: Case) -> onnx.ModelProto | None:
    """The model of a case with a scale at its first input of floats; None where it has none, or no output of floats."""
    known = next(case.forms())
    given = {name: x for name, x in case.given.items() if isinstance(x, np.ndarray)}
    names = [name for name, x in given.items() if x.dtype == np.float32 and x.ndim and name not in known]
    if not names or case.model.graph.output[0].type.tensor_type.elem_type != TensorProto.FLOAT:
        return None
    made, first = onnx.ModelProto(), names[0]
    made.CopyFrom(case.model)
    for node in made.graph.node:
        node.input[:] = ["scaled" if name == first else name for name in node.input]
    weight = RNG.normal(1, 0.01, case.given[first].shape[-1:]).astype(np.float32)
    arrays = {name: given[name] for name in known} | {"layer.weight": weight}
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    for node in (of("Mul", "bounded layer.weight", "scaled"), helper.make_node("Tanh", [first], ["bounded"])):
        made.graph.node.insert(0, node)
    del made.graph.value_info[:]
    return made


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_promise_is_kept_for_models_of_the_conformance_suite(tmp_path):
    """Each with a weight before its operators: it is promised to train exactly when it does."""
    path, promised = tmp_path / "conformance.onnx", []
    for case in thinned(cases(), 30):
        made = with_a_weight(case)
        if made is not None:
            path.write_bytes(made.SerializeToString())
            found = [trains(path, m, lambda net: [case.given[x.name] for x in net.graph.inputs]) for m in MODES]  # noqa: B023
            try:
                promised.append(bool(tried(path).rows))
            except RunnerError:
                promised.append(False)
            assert found == [promised[-1]] * 2, case.name
    assert promised.count(True) > promised.count(False) > 0


def test_all_reasons_are_found_at_once(tmp_path):
    """Operators without a rule, and settings before, beside and behind them; what follows from those is no reason."""
    nodes = [
        of("Frobnicate", "x", "a", "first"),
        of("Relu", "a", "r"),
        of("GridSample", "x grid", "s", "second", mode="bicubic"),
        of("IsInf", "x", "i", "third", detect_negative=0),
        of("Cast", "i", "c", to=TensorProto.FLOAT),
        of("Mul", "s c", "m"),
        of("Mul", "m r", "k"),
        of("Conv", "k w", "y"),
    ]
    made = model(nodes, {"x": ["n", 1, 4, 4], "grid": ["n", 4, 4, 2]}, ["y"], {"w": n(1, 1, 3, 3)})
    found = tried(saved(tmp_path / "many.onnx", made))
    assert not found.rows
    assert [(error.what, error.rows.get("node")) for error in found.refusals] == [
        ("1 operator of an ONNX file cannot be imported", None),
        (SETTING, "second"),
        (SETTING, "third"),
    ]


@pytest.mark.parametrize("path", [*thinned(FILES, every=4)], ids=lambda path: path.stem)
def test_files_of_twenty_kinds(path):
    found = tried(path)
    assert len(found.rows) == 2
    assert not found.refusals


def test_a_large_file_is_tried_in_parts(tmp_path, monkeypatch):
    """Each operator is lowered once for operands of the same types, so that time and memory stay small."""
    count = trial.MOST_NODES + 2
    nodes = [of(*(("MatMul", f"v{k} w") if k % 2 else ("Tanh", f"v{k}")), f"v{k + 1}", f"n{k}") for k in range(count)]
    made = model(nodes, {"v0": ["n", 3]}, [f"v{count}"], {"w": n(3, 3)})
    lowered = []
    monkeypatch.setattr(trial, "lower", lambda graph: lowered.append(len(graph.nodes)))
    assert tried(saved(tmp_path / "large.onnx", made)).rows == [2]
    assert lowered[0] < 30


def test_long_sequences_are_tried_in_parts_and_endless_ones_refused(tmp_path, monkeypatch):
    lowered = []
    monkeypatch.setattr(trial, "lower", lambda graph: lowered.append(len(graph.nodes)))
    made = bases()["recurrent"]
    steps = made.graph.input[0].type.tensor_type.shape.dim[1]
    steps.dim_value = 500
    assert tried(saved(tmp_path / "long.onnx", made)).rows
    assert lowered[0] < 500
    steps.dim_value = 5000
    (error,) = tried(saved(tmp_path / "endless.onnx", made)).refusals
    assert (error.rows["steps"], error.rows["allowed"]) == ("5000", "at most 4096")


def test_a_file_whose_output_no_node_computes(tmp_path):
    made = model([of("Relu", "x", "h")], {"x": ["n", "m"]}, ["w"], {"w": n(3, 2)})
    assert tried(saved(tmp_path / "constant.onnx", made)).rows


def test_what_needs_too_much_memory_is_refused_before_it_is_taken(tmp_path):
    nodes = [of("Expand", "one shape", "big"), of("ReduceSum", "big", "s", keepdims=0), of("MatMul", "x w", "h")]
    arrays = {"one": np.ones(1, np.float32), "shape": np.array([1 << 20, 1 << 20]), "w": n(3, 2)}
    made = model([*nodes, of("Mul", "h s", "y")], {"x": ["n", 3]}, ["y"], arrays)
    (error,) = tried(saved(tmp_path / "big.onnx", made)).refusals
    assert (error.rows["node"], error.rows["needed"]) == ("expand", "4096 GiB")
