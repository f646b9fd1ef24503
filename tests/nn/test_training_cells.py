"""Training cells of users: those of MindSpore's tutorials, in both modes, in `Model` and in sinks."""

import numpy as np
import pytest

from runner import Model, Parameter, Tensor, context, nn, ops
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError
from runner.train.callback import Callback

MODES = context.PYNATIVE_MODE, context.GRAPH_MODE
RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(12, 3)).astype(np.float32), RNG.normal(size=(12, 2)).astype(np.float32)


@pytest.fixture(params=MODES, ids=("pynative", "graph"))
def mode(request):
    context.set_context(mode=request.param)
    return request.param


class TrainStep(nn.Cell):
    """As in the tutorials, with its own gradient."""

    def __init__(self, network, optimizer):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer = network, optimizer
        self.weights = optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, *inputs):
        loss = self.network(*inputs)
        grads = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss))
        return ops.depend(loss, self.optimizer(grads))


class Subclass(nn.TrainOneStepCell):
    def construct(self, *inputs):
        loss = self.network(*inputs)
        grads = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss) * self.sens)
        if self.reducer_flag:
            grads = self.grad_reducer(grads)
        return ops.depend(loss, self.optimizer(grads))


class GradFirst(TrainStep):
    """The gradient is computed before the loss, by a cell that returns both."""

    def construct(self, *inputs):
        loss, grads = nn.ForwardValueAndGrad(self.network, self.weights, get_by_list=True)(*inputs)
        return ops.depend(loss, self.optimizer(grads))


def network():
    net = nn.SequentialCell(
        nn.Dense(3, 4, Tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))),
        nn.BatchNorm1d(4),
        nn.Dense(4, 2, Tensor(np.linspace(1, -1, 8, dtype=np.float32).reshape(2, 4))),
    )
    return net, nn.Momentum(net.trainable_params(), 0.1, 0.9), nn.WithLossCell(net, nn.MSELoss())


def values(net):
    return [p.asnumpy() for p in net.get_parameters()]


@pytest.mark.parametrize("kind", [TrainStep, Subclass, GradFirst])
def test_a_training_cell_of_a_user_trains_as_that_of_the_package(kind, mode):
    results = []
    for cell in (kind, nn.TrainOneStepCell):
        net, optimizer, loss = network()
        step = cell(loss, optimizer)
        step.set_train()
        losses = [step(Tensor(X), Tensor(Y)).asnumpy() for _ in range(4)]
        results.append([*losses, *values(net), *values(optimizer)])
    for found, expected in zip(*results, strict=True):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_call_that_is_differentiated_afterwards_is_executed_once():
    """PyNative mode does not compute the network twice; graph mode has as many nodes as for the package's cell."""
    context.set_context(mode=context.GRAPH_MODE)
    sizes = []
    for cell in (TrainStep, nn.TrainOneStepCell):
        _, optimizer, loss = network()
        step = cell(loss, optimizer)
        step.set_train()
        step(Tensor(X), Tensor(Y))
        (programs,) = step.__dict__["_graphs"].values()
        (program,) = programs.programs.values()
        sizes.append(len(program.graph.nodes))
    assert sizes[0] == sizes[1]
    context.set_context(mode=context.PYNATIVE_MODE)
    calls = []

    class Counting(nn.Cell):
        def construct(self, x, y):
            calls.append(1)
            return ops.ReduceMean()(loss(x, y))

    _, optimizer, loss = network()
    cell = Counting()
    cell.loss = loss
    TrainStep(cell, optimizer)(Tensor(X), Tensor(Y))
    assert len(calls) == 1


class Losses(Callback):
    def __init__(self):
        self.seen = []

    def step_end(self, run_context):
        self.seen += [float(x) for x in np.ravel(run_context.original_args().losses)]


class Several(TrainStep):
    def construct(self, *inputs):
        return super().construct(*inputs), True, (ops.ones_like(inputs[0]),)


@pytest.mark.parametrize("sunk", [False, True])
@pytest.mark.parametrize("kind", [TrainStep, Several])
def test_a_model_of_a_training_cell(kind, sunk, mode):
    def train(make):
        net, optimizer, loss = network()
        losses = Losses()
        data = NumpySlicesDataset((X, Y), ["data", "label"], shuffle=False).batch(4)
        make(net, optimizer, loss).train(2, data, losses, dataset_sink_mode=sunk)
        return [np.array(losses.seen), *values(net)]

    found = train(lambda net, optimizer, loss: Model(kind(loss, optimizer)))
    expected = train(lambda net, optimizer, loss: Model(net, nn.MSELoss(), optimizer))
    assert len(found[0]) == 6
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("sunk", [False, True])
def test_a_training_cell_without_a_loss(sunk, mode):
    class Silent(TrainStep):
        def construct(self, *inputs):
            super().construct(*inputs)
            return True

    _, optimizer, loss = network()
    with pytest.raises(ConfigError, match="returns no tensor"):
        Model(Silent(loss, optimizer)).train(
            1, NumpySlicesDataset((X, Y), ["data", "label"], shuffle=False).batch(4), dataset_sink_mode=sunk
        )


class Accumulate(nn.Cell):
    """Gradient accumulation, as in MindSpore's tutorial."""

    def __init__(self, network, optimizer):
        super().__init__(auto_prefix=False)
        self.network, self.optimizer, self.weights = network, optimizer, optimizer.parameters
        self.sums = tuple(
            Parameter(np.zeros_like(p.asnumpy()), f"sum.{p.name}", requires_grad=False) for p in self.weights
        )
        for parameter in self.sums:
            self.insert_param_to_cell(parameter.name, parameter)
        self.grad = ops.GradOperation(get_by_list=True)
        self.hyper_map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.network(*inputs)
        grads = self.grad(self.network, self.weights)(*inputs)
        return ops.depend(loss, self.hyper_map(ops.partial(accumulate), self.sums, grads))


class Apply(nn.Cell):
    def __init__(self, optimizer, sums):
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        result = self.optimizer(self.sums)
        return ops.depend(result, ops.HyperMap()(ops.partial(clear), self.sums))


accumulate, clear = ops.MultitypeFuncGraph("accumulate"), ops.MultitypeFuncGraph("clear")


@accumulate.register("Tensor", "Tensor")
def _accumulate(total, gradient):
    return ops.AssignAdd()(total, gradient)


@clear.register("Tensor")
def _clear(total):
    return ops.depend(True, ops.assign(total, ops.zeros_like(total)))


def test_gradient_accumulation(mode):
    """Two halves of a batch, whose losses are sums, and then one update, are one step with the whole batch."""
    start = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

    def dense():
        net = nn.Dense(3, 2, Tensor(start))
        return net, nn.Momentum(net.trainable_params(), 0.01, 0.9), nn.WithLossCell(net, nn.MSELoss("sum"))

    net, optimizer, loss = dense()
    forward = Accumulate(loss, optimizer)
    apply = Apply(optimizer, forward.sums)
    for _ in range(3):
        for half in (slice(0, 6), slice(6, 12)):
            forward(Tensor(X[half]), Tensor(Y[half]))
        apply()
    assert not any(p.asnumpy().any() for p in forward.sums)
    weight, bias = start.astype(np.float64), np.zeros(2)
    moments = [np.zeros_like(weight), np.zeros_like(bias)]
    for _ in range(3):
        slope = 2 * (X @ weight.T + bias - Y)
        gradients = slope.T @ X, slope.sum(0)
        moments = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
        weight, bias = weight - 0.01 * moments[0], bias - 0.01 * moments[1]
    assert net.weight.asnumpy() == pytest.approx(weight, rel=1e-5, abs=1e-5)
    assert net.bias.asnumpy() == pytest.approx(bias, rel=1e-5, abs=1e-5)


def test_two_training_cells_in_one_step(mode):
    """As in a GAN: the second network reads what the optimizer of the first one has just assigned."""

    class Loss(nn.Cell):
        def __init__(self, *scales):
            super().__init__()
            for k, scale in enumerate(scales):
                setattr(self, f"scale{k}", scale)

        def construct(self, x):
            return ops.ReduceSum()(self.scale0.w * self.scale1.w * x)

    class Scale(nn.Cell):
        def __init__(self, start):
            super().__init__()
            self.w = Parameter(Tensor([start]))

    first, second = Scale(2.0), Scale(3.0)

    class Both(nn.Cell):
        def __init__(self):
            super().__init__()
            steps = [
                nn.TrainOneStepCell(Loss(first, second), nn.SGD(s.trainable_params(), 1.0)) for s in (first, second)
            ]
            self.one, self.two = steps

        def construct(self, x):
            return self.one(x), self.two(x)

    cell = Both()
    losses = [x.asnumpy().item() for x in cell(Tensor([1.0]))]
    assert losses == [6, -3]  # 2 - 3 = -1, then -1 * 3
    assert [first.w.asnumpy().tolist(), second.w.asnumpy().tolist()] == [[-1], [4]]


class ScaledSubclass(nn.TrainOneStepWithLossScaleCell):
    """As in scripts of r1.2 with their own training step."""

    def construct(self, *inputs):
        loss = self.network(*inputs)
        status, scale = self.start_overflow_check(loss, self.scale_sense)
        sens = ops.ones_like(loss) * scale.astype(loss.dtype)
        grads = self.grad(self.network, self.weights)(*inputs, sens)
        grads = self.hyper_map(ops.partial(unscale, scale), grads)
        grads = self.grad_reducer(grads)
        cond = self.get_overflow_status(status, grads)
        overflow = self.process_loss_scale(cond)
        if not overflow:
            loss = ops.depend(loss, self.optimizer(grads))
        return loss, cond, scale


unscale = ops.MultitypeFuncGraph("unscale")


@unscale.register("Tensor", "Tensor")
def _unscale(scale, gradient):
    return gradient * (1.0 / scale).astype(gradient.dtype)


def test_a_loss_scale_cell_of_a_user(mode):
    results = []
    for kind in (ScaledSubclass, nn.TrainOneStepWithLossScaleCell):
        net = nn.Dense(3, 2, Tensor(np.ones((2, 3), np.float32)))
        optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
        update = nn.DynamicLossScaleUpdateCell(1024.0, 2, 2)
        step = kind(nn.WithLossCell(net, nn.MSELoss()), optimizer, update)
        rows = []
        for factor in (1.0, 1.0, np.inf, 1.0):
            _, cond, scale = step(Tensor(X * np.float32(factor)), Tensor(Y))
            rows += [bool(cond.asnumpy()), float(step.scale_sense.asnumpy()), float(np.asarray(scale))]
            rows += [p.asnumpy().sum() for p in step.get_parameters()]
        results.append(rows)
    assert results[0] == pytest.approx(results[1], rel=1e-5)
    conditions = results[0][:: len(results[0]) // 4]
    assert conditions == [False, False, True, False]


def test_cells_that_return_gradients(mode):
    net, _, loss = network()
    forward = nn.ForwardValueAndGrad(loss, get_all=True, get_by_list=True)
    value, (of_inputs, of_weights) = forward(Tensor(X), Tensor(Y))
    assert value.asnumpy() == pytest.approx(loss(Tensor(X), Tensor(Y)).asnumpy(), rel=1e-6)
    assert [g.shape for g in of_inputs] == [(12, 3), (12, 2)]
    for cell in (nn.WithGradCell(net, nn.MSELoss()), nn.WithGradCell(loss, sens=1.0)):
        for found, expected in zip(cell(Tensor(X), Tensor(Y)), of_weights, strict=True):
            assert found.asnumpy() == pytest.approx(expected.asnumpy(), rel=1e-5, abs=1e-6)
    weight = net.trainable_params()[0]
    nn.ParameterUpdate(weight)(ops.zeros_like(weight))
    assert not weight.asnumpy().any()


def test_an_optimizer_outside_of_cells(mode):
    net, optimizer, loss = network()
    before = values(net)
    grads = ops.GradOperation(get_by_list=True)(loss, optimizer.parameters)(Tensor(X), Tensor(Y))
    assert optimizer(grads) is True
    assert not np.array_equal(values(net)[0], before[0])
    assert values(net)[0] == pytest.approx(before[0] - 0.1 * grads[0].asnumpy(), rel=1e-5)


def test_a_scale_of_the_user():
    """`set_sense_scale` between two steps: the scale that the next step uses and returns, in both modes."""
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        context.set_context(mode=mode)
        net = nn.Dense(2, 1)
        manager = nn.FixedLossScaleUpdateCell(8.0)
        with_loss = nn.WithLossCell(net, nn.MSELoss())
        assert with_loss.backbone_network is net
        step = nn.TrainOneStepWithLossScaleCell(with_loss, nn.SGD(net.trainable_params(), 0.1), manager)
        x, y = Tensor(np.ones((3, 2), np.float32)), Tensor(np.zeros((3, 1), np.float32))
        assert manager.get_loss_scale() == step(x, y)[2].asnumpy() == 8.0
        step.set_sense_scale(Tensor(np.full((1,), 32.0, np.float32)))
        assert step(x, y)[2].asnumpy() == 32.0
        scaled = nn.TrainOneStepWithLossScaleCell(with_loss, step.optimizer, Tensor(np.full((1,), 4.0, np.float32)))
        assert scaled(x, y)[2].asnumpy() == 4.0
        for wrong in (16.0, Tensor(np.ones(2, np.float32))):
            with pytest.raises(ConfigError):
                step.set_sense_scale(wrong)
