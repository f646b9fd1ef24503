"""Data parallelism without MPI: what one rank does when the others are made up."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from ranks import Several, environment

from runner import Model, cli, context, nn, ops
from runner.communication import get_group_size, get_rank, init, settings as fusion, world
from runner.compile.divided_session import DividedSession
from runner.compile.parts import DividedGraph
from runner.core.interpreter import Eager
from runner.core.precision import policy, use_precision
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError, TrainingError
from runner.experiment.ranks import start_up
from runner.host import process
from runner.nn.steps import EagerStep, GraphStep
from runner.nn.wrap import DistributedGradReducer
from runner.observe.dump.dumper import FirstFailure
from runner.train.loop import FailureReplay, StepByStep
from runner.types import TensorType


@pytest.fixture
def several(monkeypatch):
    made = Several()
    monkeypatch.setattr(world.WORLD, "of_process", made)
    return made


@pytest.fixture(autouse=True)
def _fresh():
    context.reset_auto_parallel_context()
    yield
    context.reset_auto_parallel_context()


class Line(nn.Cell):
    """loss = mean of (w x + b - y)^2."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(np.array([[1.0], [2.0]], np.float32))
        self.b = Parameter(np.zeros(1, np.float32))

    def construct(self, x, y):
        return ops.ReduceMean()(ops.Square()(ops.MatMul()(x, self.w) + self.b - y))


X, Y = np.array([[1, 2], [3, 4]], np.float32), np.array([[1], [0]], np.float32)


def one_step(kind, **settings):
    """Parameters and loss after a step, with gradients that the made-up world has reduced."""
    if settings:
        context.set_auto_parallel_context(parallel_mode="data_parallel", **settings)
    net = Line()
    cell = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.125))
    step = EagerStep(cell, "step") if kind == "pynative" else GraphStep(cell, context.device(), "step")
    loss = step([X, Y])[0]
    return net.w.array.copy(), net.b.array.copy(), loss


def by_hand():
    """Gradients and loss of this rank, in numpy."""
    error = X @ np.array([[1.0], [2.0]]) - Y
    return X.T @ error, error.sum(keepdims=True)[0], (error**2).mean()


@pytest.mark.parametrize("kind", ["pynative", "graph"])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("indices", [None, [1]])
def test_a_step_uses_what_all_ranks_have(several, kind, mean, indices):
    more = {} if indices is None else {"all_reduce_fusion_config": indices}
    w, b, loss = one_step(kind, gradients_mean=mean, **more)
    of_w, of_b, of_loss = by_hand()
    # Ranks 0, 1 and 2 have g - 1, g and g + 1: the sum is 3 g, the mean g.
    factor = 1 if mean else 3
    np.testing.assert_allclose(w, [[1.0], [2.0]] - 0.125 * factor * of_w, rtol=1e-6)
    np.testing.assert_allclose(b, -0.125 * factor * of_b, rtol=1e-6)
    np.testing.assert_allclose(loss, of_loss, rtol=1e-6)
    begun = [] if kind == "graph" else ["begin 2"] if indices is None else ["begin 1", "begin 1"]
    sums = ["sum 2", "sum 1"] if indices is None else ["sum 1", "sum 1", "sum 1"]
    assert several.told == begun + sums


def test_stand_alone_exchanges_nothing(several):
    one_step("graph")
    one_step("pynative")
    assert several.told == []


def test_a_bucket_leaves_before_the_last_gradient_is_there(several, monkeypatch):
    made = []
    usual = ops.MatMul.kernel
    monkeypatch.setattr(ops.MatMul, "kernel", lambda *arguments: made.append(len(several.told)) or usual(*arguments))
    context.set_auto_parallel_context(parallel_mode="data_parallel", all_reduce_fusion_config=[2])
    net = nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 1))
    loss = nn.WithLossCell(net, lambda x, y: ops.ReduceMean()(ops.Square()(x - y)))
    cell = nn.TrainOneStepCell(loss, nn.SGD(net.trainable_params(), 0.1))
    EagerStep(cell, "step")([X, Y])
    # Forward twice, then the gradients of the second layer, then that of the first layer's weight.
    assert made[:2] == [0, 0]
    assert made[-1] == 1
    assert several.told == ["begin 2", "begin 2", "sum 2", "sum 2", "sum 1"]


def test_the_graph_is_cut_where_ranks_meet(several):
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    net = Line()
    cell = nn.TrainOneStepCell(net, nn.Momentum(net.trainable_params(), 0.1, 0.9))
    graph = trace(cell.construct, [TensorType.of(X), TensorType.of(Y)], "step")
    first, second = DividedGraph(graph, None).segments
    assert [node.op.name for node in first.exchanges] == ["AllReduce", "AllReduce"]
    assert second.exchanges == []
    assert {node.op.name for node in second.whole} == {"ApplyMomentum"}
    assert len(first.whole) + len(second.whole) + 2 == len(graph.nodes)


def test_two_meetings_one_after_the_other(several):
    class Twice(nn.Cell):
        def construct(self, x):
            return ops.AllReduce("mean")(ops.Square()(ops.AllReduce()(x) + 1.0)) * 2.0

    made = GraphStep(Twice(), context.device(), "twice")([X])[0]
    once = 3 * X + 1  # the sum of x - 1, x and x + 1
    np.testing.assert_allclose(made, 2 * once**2, rtol=1e-6)
    np.testing.assert_array_equal(EagerStep(Twice(), "twice")([X])[0], made)


def test_a_graph_that_only_exchanges(several):
    class Sum(nn.Cell):
        def construct(self, x):
            return ops.AllReduce()(x)

    np.testing.assert_array_equal(GraphStep(Sum(), context.device(), "sum")([X])[0], 3 * X)


@pytest.mark.parametrize("kind", ["pynative", "graph"])
def test_constants_are_exchanged_in_every_step(several, kind):
    """Not by the compiler: another rank may compile another number of programs."""

    class Constant(nn.Cell):
        def construct(self, x):
            return x * ops.AllReduce()(Tensor(np.ones(1, np.float32)))

    step = EagerStep(Constant(), "one") if kind == "pynative" else GraphStep(Constant(), context.device(), "one")
    if kind == "graph":
        step.program((TensorType.of(X),))
    assert several.told == []
    for count in (1, 2):
        np.testing.assert_array_equal(step([X])[0], 3 * X)  # 0, 1 and 2
        assert several.told == ["sum 1"] * count


def test_collectives_have_the_order_of_the_network(several):
    """Passes may order the nodes of ranks differently, since their parts of a batch have different sizes."""

    class Two(nn.Cell):
        def construct(self, x):
            return ops.AllReduce()(x + 1.0), ops.AllReduce("mean")(x + 2.0)

    graph = trace(Two().construct, [TensorType.of(X)], "two")
    division = DividedGraph(replace(graph, nodes=_swapped(graph)), None)
    turns = DividedSession(division, context.device(), optimize=False).turns
    assert [node.op.op for turn in turns for node, *_ in turn.kernels] == ["sum", "mean"]


def _swapped(graph):
    """The nodes in another valid order: both sums, then the exchanges backwards."""
    adds = [node for node in graph.nodes if not isinstance(node.op, ops.AllReduce)]
    return (*adds, *[node for node in graph.nodes if isinstance(node.op, ops.AllReduce)][::-1])


@pytest.mark.parametrize("kind", ["pynative", "graph"])
@pytest.mark.parametrize("scaled", [False, True])
def test_rows_of_ranks_are_weights(several, kind, scaled):
    """Ranks 0, 1 and 2 have one row, two and three, so this one has a third of them, as in a mean of ranks."""
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    net = Line()
    optimizer = nn.SGD(net.trainable_params(), 0.125)
    cell = nn.TrainOneStepWithLossScaleCell(net, optimizer, 4.0) if scaled else nn.TrainOneStepCell(net, optimizer)
    cell.weighs_ranks = True
    several.summed = lambda arrays: (
        several.told.append(arrays)
        or [array * np.float32(4) if k == 0 and array.shape == () else array for k, array in enumerate(arrays)]
    )
    step = EagerStep(cell, "step") if kind == "pynative" else GraphStep(cell, context.device(), "step")
    step([X, Y])
    rows, *others = [told for told in several.told if not isinstance(told, str)]
    loss, gradients = sorted(others, key=len)
    assert rows[0] == 2.0  # the sum is 8: a mean of 8 / 3, so this rank weighs 3 / 4
    of_w, of_b, of_loss = by_hand()
    scale = 4.0 if scaled else 1.0
    np.testing.assert_allclose(gradients[0], 0.75 * scale * of_w, rtol=1e-6)
    np.testing.assert_allclose(gradients[1], 0.75 * scale * of_b, rtol=1e-6)
    np.testing.assert_allclose(loss[0], 0.75 * of_loss, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "row"),
    [
        (nn.SyncBatchNorm(2, process_groups=[[0, 1], [2]]), "process groups  [[0, 1], [2]]"),
        (nn.GlobalBatchNorm(2), "device num each group  2"),
    ],
)
def test_statistics_of_some_ranks(several, layer, row):
    with pytest.raises(ConfigError) as caught:
        EagerStep(layer.set_train(), "step")([X])
    assert "statistics of some of the ranks are not supported" in str(caught.value)
    assert row in str(caught.value).replace("_", " ")
    assert several.told == []


@pytest.mark.parametrize("kind", [nn.SyncBatchNorm, nn.GlobalBatchNorm])
@pytest.mark.parametrize("x", [X, np.ones((2, 2, 3, 1), np.float32)])
def test_synchronized_layers_in_one_process(kind, x):
    for training in (True, False):
        usual = (nn.BatchNorm1d if x.ndim == 2 else nn.BatchNorm2d)(2).set_train(training)
        layer = kind(2).set_train(training)
        np.testing.assert_array_equal(EagerStep(layer, "step")([x])[0], EagerStep(usual, "step")([x])[0])


@pytest.mark.parametrize(
    ("settings", "exchanges"),
    [
        ({}, False),
        ({"sync_batch_norm": True}, False),
        ({"parallel_mode": "data_parallel"}, True),
        ({"parallel_mode": "data_parallel", "sync_batch_norm": False}, False),
    ],
)
def test_whose_statistics(several, settings, exchanges):
    """Those of the batches of all ranks, unless they train by themselves or the setting says so."""
    context.set_auto_parallel_context(**settings)
    EagerStep(nn.BatchNorm1d(2).set_train(), "step")([X])
    assert bool(several.told) == exchanges


def test_float16_gradients_travel_as_float32(several):
    reducer = DistributedGradReducer([Parameter(np.zeros(2, np.float16), "w")], mean=False)
    with Eager():
        made = reducer.construct([Tensor(np.array([1, 2], np.float16))])[0]
    assert made.array.dtype == np.float16
    np.testing.assert_array_equal(made.array, [3, 6])


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_sums_of_float16_are_rounded_once(several, mode):
    """1024 + 1025 + 1026 is 3075, which is 3076 in Float16; rounded on the way it would be 2048 + 1026 = 3074."""

    class Net(nn.Cell):
        def construct(self, x):
            return ops.AllReduce()(ops.ReLU()(x))

    several.summed = lambda arrays: [(a - a.dtype.type(1)) + a + (a + a.dtype.type(1)) for a in arrays]
    step = EagerStep(Net(), "sum") if mode == context.PYNATIVE_MODE else GraphStep(Net(), context.device(), "sum")
    made = step([np.array([1025, 0.5], np.float16)])[0]
    assert made.dtype == np.float16
    np.testing.assert_array_equal(made, [3076, 1.5])


@pytest.mark.parametrize("kind", ["pynative", "graph"])
@pytest.mark.parametrize("scaled", [False, True])
def test_gradients_travel_in_float32_whatever_is_forced(several, kind, scaled):
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    net = Line()
    optimizer = nn.SGD(net.trainable_params(), 0.125)
    cell = nn.TrainOneStepWithLossScaleCell(net, optimizer, 4.0) if scaled else nn.TrainOneStepCell(net, optimizer)
    step = EagerStep(cell, "step") if kind == "pynative" else GraphStep(cell, context.device(), "step")
    sent = []
    several.summed = lambda arrays: sent.append(list(arrays)) or [array + np.float32(2.0**-12) for array in arrays]
    several.begin = lambda arrays: several.told.append([id(array) for array in arrays])
    with use_precision(policy("force_fp16")):
        step([X, Y])
    assert [[array.dtype for array in arrays] for arrays in sent] == [[np.float32, np.float32], [np.float32]]
    assert several.told == ([[id(array) for array in sent[0]]] if kind == "pynative" else [])
    # 2^-12 beside numbers from 1 on is lost in Float16. A third of what the sum of three ranks is.
    of_w, of_b, _ = by_hand()
    scale = 4.0 if scaled else 1.0
    mean = [(scale * g + np.float32(2.0**-12)) / 3 / scale for g in (of_w, of_b)]
    np.testing.assert_allclose(net.w.array, [[1.0], [2.0]] - 0.125 * mean[0], rtol=1e-6)
    np.testing.assert_allclose(net.b.array, -0.125 * mean[1], rtol=1e-6)


class Late(nn.Cell):
    """Fails behind the exchange, when the row that it is asked for is not there."""

    def construct(self, x, row):
        return ops.ReduceMean()(ops.Gather(0)(ops.AllReduce()(x), row))


def test_a_step_is_not_made_again_beyond_an_exchange(several, tmp_path):
    """The other ranks do not make it again, and without them nobody knows the operands."""
    step = EagerStep(Late(), "late")
    data = NumpySlicesDataset({"x": X, "row": np.array([0, 9], np.int32)}, shuffle=False).batch(1)
    batches = StepByStep(step, data.prepared(data.visits_from(0)))
    replay = FailureReplay(batches, step, data, 0, FirstFailure(tmp_path, "net", 1))
    replay(1)
    assert several.told == ["sum 1"]
    with pytest.raises(TrainingError) as caught:
        replay(1)
    assert several.told == ["sum 1", "sum 1"]
    assert caught.value.rows["dump"] == "none: this rank cannot repeat the step beyond its first collective"
    assert "Gather-op" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert world.world() is several


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_training_does_not_sink(several, mode, caplog):
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    data = NumpySlicesDataset({"x": np.tile(X, (4, 1)), "y": np.tile(Y, (4, 1))}).batch(2)
    net = Line()
    model = Model(net, None, None, mode=mode)
    model.train_network = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.01))
    model.train_step = model._step(mode, model.train_network, "train_step", ("image", "label"), ("loss",))
    model.train(1, data, sink_size=3)
    assert caplog.messages == ["data-parallel training does not sink data: the same steps run one by one"]
    assert several.told.count("sum 1") == 3  # a loss for every step


def test_indices_of_buckets():
    assert fusion.buckets(5, None) == [range(5)]
    assert fusion.buckets(5, (1, 4)) == [range(1), range(1, 4), range(4, 5)]
    with pytest.raises(ConfigError, match="behind the last parameter"):
        fusion.buckets(5, (5,))


@pytest.mark.parametrize("op", ["max", "SUM", 1, None])
def test_other_reductions(op):
    with pytest.raises(ConfigError, match="unknown reduction of AllReduce"):
        ops.AllReduce(op)


def test_without_mpirun_there_is_one_rank(monkeypatch):
    for pair in process.LAUNCHERS:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    init("nccl")
    assert (get_rank(), get_group_size()) == (0, 1)
    with pytest.raises(ConfigError, match="no such backend"):
        init("tcp")


@pytest.mark.parametrize("names", process.LAUNCHERS)
def test_what_launchers_say(monkeypatch, names):
    for pair in process.LAUNCHERS:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    assert process.launched() == (0, 1)
    monkeypatch.setenv(names[0], "3")
    monkeypatch.setenv(names[1], "many")
    assert process.launched() == (0, 1)
    monkeypatch.setenv(names[1], "4")
    assert process.launched() == (3, 4)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_mpirun_without_mpi4py(monkeypatch, capsys, tmp_path, rank):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PMI_RANK", rank)
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    words = ["+experiment=lenet_seed", "parallel=data_parallel"]
    if rank == "1":  # the first rank says it
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        assert stop.value.code == 2
        assert capsys.readouterr().err == ""
    else:
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("ConfigError: mpirun has started this process, but mpi4py cannot be used\n")
        assert 'repair  pip install "runner-ml[mpi]"' in said
    assert list(tmp_path.iterdir()) == []


def test_mpirun_of_runs_that_stand_alone(monkeypatch, tmp_path, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    assert cli.main(["+experiment=lenet_seed", "max_steps=1", "callbacks=quiet", "eval.every=never"]) == 0
    message = "mpirun launched 2 processes with parallel=stand_alone: each is a separate run"
    assert caplog.messages[0] == message


def test_runs_that_stand_alone_load_nothing_of_it():
    loaded = "import runner.experiment.launch, sys; print(list(sys.modules))"
    out = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, env=environment())
    for name in (
        "mpi4py",
        "runner.experiment.ranks.group",
        "runner.experiment.ranks.group",
    ):
        assert f"'{name}'" not in out.stdout
    assert "'runner.experiment.launch'" in out.stdout


# Dumps


class Cards(Several):
    """Rank 1 of 2, of which one has a card that is not in the list of devices."""

    def all_gathered(self, value):
        return [{**value, "value": not value["value"]}, value]


@pytest.mark.parametrize("dumps", [True, False])
def test_some_ranks_cannot_dump_without_the_others(monkeypatch, dumps):
    monkeypatch.setattr(world.WORLD, "of_process", Cards(2))
    with pytest.raises(ConfigError) as caught:
        start_up.check_all_or_none(dumps)
    without = "0" if dumps else "1"
    assert (caught.value.rows["key"], caught.value.rows["without"]) == ("dump.support_device", without)


def test_the_number_of_a_process_is_its_rank_or_that_of_its_card(monkeypatch):
    """Cards of two machines have equal numbers, and the CPU has none."""
    assert [world.process_number(card) for card in (None, 0, 3)] == [0, 0, 3]
    monkeypatch.setattr(world.WORLD, "of_process", Several(4))
    assert [world.process_number(card) for card in (None, 0, 3)] == [1, 1, 1]
