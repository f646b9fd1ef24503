"""The Print operator: the same text in both modes, in the order in which it was applied; saved files are silent."""

import numpy as np
import pytest
from both_modes import MODES, nodes_of, step_of
from print_network import SHOWN, Error, Net, X, model, rows

from runner import Tensor, context, nn, ops
from runner.compile.onnx.lower import parameter_values
from runner.compile.passes import optimize
from runner.compile.program import Program, standalone_step
from runner.core.graph import Graph, verify
from runner.core.trace import trace
from runner.core.values import Symbol
from runner.errors import ConfigError, InternalError, ShapeError
from runner.types import TensorType

# The text


@pytest.mark.parametrize("mode", MODES)
def test_strings_tensors_arrays_and_numbers(mode, capsys):
    def network(x):
        assert ops.Print()("x is", x, "%d", 3, 2.5, True, np.float16(0.5), np.arange(3)) is None
        return x + 1

    run = step_of(network, mode)
    assert np.array_equal(run(X)[0], X + 1)
    once = (
        f"x is\n{SHOWN}%d\n"
        "Tensor(shape=[], dtype=Int32, value=3)\n"
        "Tensor(shape=[], dtype=Float32, value=2.5)\n"
        "Tensor(shape=[], dtype=Bool, value=True)\n"
        "Tensor(shape=[], dtype=Float16, value=0.5)\n"
        "Tensor(shape=[3], dtype=Int64, value=[0 1 2])\n"
    )
    assert capsys.readouterr().out == once
    run(X)
    assert capsys.readouterr().out == once


@pytest.mark.parametrize("mode", MODES)
def test_tuples(mode, capsys):
    """As MindSpore: known elements as Python prints them in PyNative mode, tensors one by one as in graph mode."""

    def network(x):
        ops.Print()("shape", x.shape, (), [1, 2.5, (True, "s")], (3, x), "end")
        return x

    step_of(network, mode)(X)
    three = "Tensor(shape=[], dtype=Int32, value=3)\n"
    assert capsys.readouterr().out == f"shape\n(2, 2)\n()\n[1, 2.5, (True, 's')]\n{three}{SHOWN}end\n"


def test_outside_of_any_network(capsys):
    ops.Print()("a", Tensor(X))
    ops.Print()()
    assert capsys.readouterr().out == f"a\n{SHOWN}"


@pytest.mark.parametrize("mode", MODES)
def test_what_passes_would_remove_is_printed(mode, capsys):
    """A value without other uses, the same one twice, strings alone, an operand, a constant, one of several outputs."""

    def network(x):
        show = ops.Print()
        show("unused", ops.Neg()(x))
        show("again", ops.Neg()(x))
        show("again", ops.Neg()(x))
        show("nothing else")
        show(x)
        show(ops.Add()(Tensor(X), 1.0))
        show(ops.Split(0, 2)(x)[1])
        y = x * 2
        show(y)
        return y

    run = step_of(network, mode)
    assert np.array_equal(run(X)[0], X * 2)
    text = capsys.readouterr().out
    assert text.count("again\nTensor(shape=[2, 2], dtype=Float32, value=\n[[-1.00000000e+00") == 2
    assert [line for line in text.splitlines() if line[0] not in "T[ "] == ["unused", "again", "again", "nothing else"]
    assert text.count("Tensor(") == 7
    assert "value=\n[[ 5.00000000e-01  4.00000000e+00]])\n" in text


def test_both_modes_print_the_same_text(capsys):
    texts = []
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        context.set_context(mode=mode)
        net = Net()
        net.set_train()
        step = nn.TrainOneStepCell(nn.WithLossCell(net, Error()), nn.SGD(net.trainable_params(), 0.5))
        for k in range(3):
            step(X * k, X[:, :1])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert [line for line in texts[0].splitlines() if line.isalpha()] == ["rows", "made", "of", "gradient"] * 3
    assert "value=\n[[5.00000000e-01]\n [5.00000000e-01]])" in texts[0].replace("[ 5", "[5")


def test_the_modes_number_and_name_it_alike():
    net = Net()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, Error()), nn.SGD(net.trainable_params(), 0.5))
    printed = {}
    for mode in MODES:
        names = [node.name for node in nodes_of(step.construct, "pynative", X, X[:, :1]) if node.op.name == "Print"]
        if mode == "graph":
            kinds = [TensorType.of(X), TensorType.of(X[:, :1])]
            names = [effect.name for effect in trace(step.construct, kinds, "step").effects]
        printed[mode] = names
    scope = "network-WithLossCell/_backbone-Net"
    assert printed["graph"] == printed["pynative"]
    assert [name.rpartition("-op")[0] for name in printed["graph"]] == [
        f"Default/{scope}/Print",
        f"Default/{scope}/Print",
        f"Gradients/Default/{scope}/gradInsertGradientOf/Print",
    ]


def test_a_print_knows_its_line():
    def construct(x):
        ops.Print()("here", x)
        return x

    (effect,) = trace(construct, [TensorType.of(X)], "net").effects
    assert "test_print.py" in effect.source[0].file
    assert 'ops.Print()("here", x)' in effect.source[0].text


# Graphs and files


def graph_of(function, *arrays) -> Graph:
    return trace(function, [TensorType.of(a) for a in arrays], "net")


def test_effects_stand_apart_from_nodes():
    graph = graph_of(Net().construct, X)
    assert [node.op.name for node in graph.nodes] == ["MatMul", "InsertGradientOf"]
    assert [effect.op.name for effect in graph.effects] == ["Print", "Print"]
    assert len(graph.effect_operands) == 4
    assert graph.results[1:] == tuple(graph.effect_operands.values())
    small = optimize(graph)
    assert [node.op.name for node in small.nodes] == ["MatMul"]
    assert small.effects[0].inputs == small.inputs
    assert small.effect_operands[f"{small.effects[1].name}:0"] is small.outputs[0]
    assert "Print(parts=('rows', None))(%input0)" in str(graph)


def test_a_print_of_something_that_is_never_made_is_found():
    graph = graph_of(Net().construct, X)
    graph.effects[0].inputs = (Symbol(TensorType.of(X), "stray"),)
    with pytest.raises(InternalError, match="used before it is defined"):
        verify(graph)


def test_files_for_others_are_silent():
    made = model(context.GRAPH_MODE)
    made.train(1, rows().batch(2), None, False)
    program: Program = next(iter(made.train_step.programs.values()))
    updated = [f"{p.name}.updated" for p in program.graph.updates]
    assert [output.name for output in program.model.graph.output] == ["loss", *updated, *program.graph.effect_operands]
    assert len(program.graph.effect_operands) == 5  # x, y, w, training, gradient
    onnx = pytest.importorskip("onnx")
    step = onnx.load_from_string(standalone_step(program.graph, ("x", "y"), ("loss",), parameter_values(program.graph)))
    assert [output.name for output in step.graph.output] == ["loss", *updated]
    network = onnx.load_from_string(made.export([TensorType.of(X)]))
    assert [output.name for output in network.graph.output] == ["output0"]


# Mistakes


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "wrong", [None, [1, None], (2, {"a": 1}), {"a": 1}, object(), 1j, b"bytes", np.array(["text"]), np.array([1j])]
)
def test_what_cannot_be_printed(mode, wrong, capsys):
    def construct(x):
        ops.Print()("x", x, wrong)
        return x

    with pytest.raises(ConfigError) as caught:
        step_of(construct, mode)(X)
    error = caught.value
    assert error.exit_code == 2
    assert error.what.startswith("Print: ")
    assert error.rows["position"] == "3"
    assert error.rows["allowed"]
    assert error.rows["scope"] == "Default/Print-op0"
    assert 'ops.Print()("x", x, wrong)' in error.rows["line"]
    assert capsys.readouterr().out == ""


def test_as_many_tensors_as_places():
    with pytest.raises(ShapeError, match="Print needs one tensor for each None in parts"):
        ops.Print(("a", None)).infer()
