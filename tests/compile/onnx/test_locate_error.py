"""Errors point home: wherever a graph fails behind the tracer, the error names operator, scope and line, and the graph
is left in `analyze_fail.ir`."""

from pathlib import Path

import numpy as np
import pytest

import runner
import runner.observe.graph
from runner import dtype as dt, nn, ops
from runner.compile.onnx.describe import add_location, locate_errors
from runner.compile.passes import fold, optimize
from runner.compile.program import Program
from runner.core.graph import Graph
from runner.core.operators import Primitive, primitive
from runner.core.trace import trace
from runner.device import Device
from runner.errors import ConfigError, DeviceError, InternalError, RunnerError, ShapeError, TrainingError
from runner.experiment.observers import FailedGraph
from runner.observe.graph.folder import FAILED
from runner.types import TensorType

HERE = Path(__file__)
X = TensorType(dt.float32, (4, 3))


class Bad(Primitive):
    """Base of operators that lower themselves to nonsense."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        raise ValueError("no such number")


@primitive
class NoSuchNode(Bad):
    """The checker of ONNX knows no such operator."""

    def lower(self, b, x):
        return b.node("Nothing", (x,))


@primitive
class NoKernel(Bad):
    """ONNX accepts it, onnxruntime has no kernel for this element type."""

    def lower(self, b, x):
        return b.node("Cast", (b.node("Sinh", (b.node("Cast", (x,), to=dt.float64),)),), to=dt.float32)


@primitive
class FailsLater(Bad):
    """Everybody accepts it, and it fails when it runs: no element has such a place."""

    def lower(self, b, x):
        places = b.node("Cast", (b.node("Add", (x, b.const(9.0, like=x))),), to=dt.int64)
        return b.node("GatherElements", (x, places))


class Inner(nn.Cell):
    def __init__(self, operator: Primitive) -> None:
        super().__init__()
        self.operator = operator

    def construct(self, x):
        return self.operator(x)  # here


class Net(nn.Cell):
    def __init__(self, operator: Primitive) -> None:
        super().__init__()
        self.inner, self.relu = Inner(operator), nn.ReLU()

    def construct(self, x):
        return self.inner(self.relu(x)) * 2.0


def line_of(comment: str) -> str:
    """`file:number  text` of the line of this file that ends with the comment."""
    number, line = next((k, t) for k, t in enumerate(HERE.read_text().splitlines(), 1) if t.endswith(f"# {comment}"))
    return f"{HERE}:{number}  {line.strip()}"


def failing(operator: Primitive, folder: Path) -> RunnerError:
    """The error of compiling and running a network with an operator."""
    with pytest.raises(RunnerError) as caught:
        Program(Net(operator).construct, [X], Device("CPU", threads=1), "net", observer=FailedGraph(folder))(
            [np.ones(X.shape, np.float32)]
        )
    return caught.value


@pytest.mark.parametrize(
    ("operator", "kind", "what"),
    [
        (NoSuchNode(), InternalError, "ONNX does not accept the lowered graph"),
        (NoKernel(), ConfigError, "onnxruntime has no kernel for an operator in this element type"),
        (FailsLater(), TrainingError, "a step failed in onnxruntime"),
    ],
)
def test_lowered_graphs_that_fail(operator, kind, what, tmp_path):
    error = failing(operator, tmp_path)
    assert (type(error), error.what) == (kind, what)
    assert error.rows["operator"] == f"Default/inner-Inner/{operator.name}-op1"
    assert error.rows["scope"] == "Default/inner-Inner"
    assert error.rows["line"] == line_of("here")
    left = runner.observe.graph.read(tmp_path / FAILED).subgraphs[0]
    assert [operation.op for operation in left.operations] == ["ReLU", operator.name, "Mul"]


class Half(nn.Cell):
    """Fails after two operators."""

    def __init__(self, failure) -> None:
        super().__init__()
        self.failure, self.relu = failure, nn.ReLU()

    def construct(self, x):
        return self.failure(self.relu(x) * 2.0)


def wrong_python(x):
    raise KeyError("a user's own")


@pytest.mark.parametrize(
    ("failure", "kind"), [(lambda x: ops.Reshape()(x, (5,)), ShapeError), (wrong_python, KeyError)]
)
def test_what_was_traced_so_far_is_left(failure, kind, tmp_path):
    with pytest.raises(kind):
        Program(Half(failure).construct, [X], Device("CPU"), "net", observer=FailedGraph(tmp_path))
    left = runner.observe.graph.read(tmp_path / FAILED).subgraphs[0]
    assert [operation.full_name for operation in left.operations] == ["Default/relu-ReLU/ReLU-op0", "Default/Mul-op1"]


def traced(operator: Primitive) -> Graph:
    return trace(Net(operator).construct, [X], "net")


def breaks(graph: Graph) -> Graph:
    """A pass that forgets the first node."""
    return graph.replace_nodes(graph.nodes[1:], {})


def stumbles(graph: Graph) -> Graph:
    """A pass that does not expect what it meets."""
    raise IndexError(f"no room for {graph.nodes[1].name}")


@pytest.mark.parametrize("apply", [breaks, stumbles])
def test_a_pass_that_fails_is_named_with_the_operator(apply, tmp_path):
    with pytest.raises(InternalError) as caught:
        optimize(traced(ops.Neg()), [apply], FailedGraph(tmp_path))
    rows = caught.value.rows
    assert rows["pass"] == apply.__name__
    assert (rows["operator"], rows["line"]) == ("Default/inner-Inner/Neg-op1", line_of("here"))
    assert len(runner.observe.graph.read(tmp_path / FAILED).subgraphs[0].operations) == 3


def test_a_constant_that_cannot_be_computed_is_located():
    class Fixed(nn.Cell):
        def construct(self, x):
            return x + ops.ReduceSum()(NoSuchNode()(np.ones((2, 2), np.float32)))  # folded

    with pytest.raises(TrainingError, match="NoSuchNode: no such number") as caught:
        optimize(trace(Fixed().construct, [X], "net"), [fold])
    assert caught.value.rows["line"] == line_of("folded")
    assert caught.value.rows["operator"] == "Default/NoSuchNode-op0"


def test_a_name_is_not_taken_for_a_longer_one():
    graph = traced(ops.Neg())
    error = add_location(TrainingError("it broke", reason="in Default/inner-Inner/Neg-op12 it broke"), graph)
    assert "operator" not in error.rows
    error = add_location(TrainingError("it broke", reason="Name:'Default/inner-Inner/Neg-op1/Neg_0' broke"), graph)
    assert error.rows["operator"] == "Default/inner-Inner/Neg-op1"


def test_a_device_is_no_fault_of_a_graph(tmp_path):
    with pytest.raises(DeviceError), locate_errors(traced(ops.Neg()), FailedGraph(tmp_path)):
        raise DeviceError("no card")
    assert not (tmp_path / FAILED).exists()


def test_a_full_disk_does_not_hide_the_error(tmp_path):
    with (
        pytest.raises(InternalError, match="broken"),
        locate_errors(traced(ops.Neg()), FailedGraph(tmp_path / "nowhere")),
    ):
        raise InternalError("broken")


def test_a_run_that_fails_leaves_what_was_traced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["+experiment=lenet_seed", "dataset.image_size=8", "mode=graph", "max_steps=1", "hydra.run.dir=run"]
    with pytest.raises(ShapeError) as caught:
        runner.run(words)
    left = runner.observe.graph.read(tmp_path / "run" / FAILED).subgraphs[0].operations
    assert [operation.op for operation in left] == ["Conv2D", "ReLU", "MaxPool"]
    assert "models/lenet.py" in caught.value.rows["line"]
