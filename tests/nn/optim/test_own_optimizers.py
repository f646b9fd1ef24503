"""Optimizers of scripts: subclasses of `nn.Optimizer` as r1.2 has them, which apply update rules for their effect."""

import numpy as np
import pytest
from both_modes import MODES
from optimizer_steps import GRADIENTS, parameters, trained

from runner import Model, context, nn, ops, set_seed
from runner.core.values import Tensor
from runner.dataset import open_dataset
from runner.device import Device


class Momentum(nn.Optimizer):
    """The script's own Momentum: the methods of the base, one after the other."""

    def __init__(self, params, learning_rate, momentum, weight_decay=0.0, loss_scale=1.0, use_nesterov=False):
        super(Momentum, self).__init__(learning_rate, params, weight_decay, loss_scale)  # noqa: UP008  as scripts do
        self.momentum = Tensor(momentum)
        self.params = self.parameters
        self.moments = self.state("moments")
        self.opt = ops.ApplyMomentum(use_nesterov=use_nesterov)

    def construct(self, gradients):
        params, moments = self.params, self.moments
        gradients = self.decay_weight(gradients)
        gradients = self.gradients_centralization(gradients)
        gradients = self.scale_grad(gradients)
        lr = self.get_lr()
        success = True
        for k, (gradient, param, moment) in enumerate(zip(gradients, params, moments, strict=True)):
            rate = lr[k] if self.is_group_lr else lr
            success = self.opt(param, moment, rate, gradient, self.momentum)
        return success


class Fused(Momentum):
    """Reads the attributes that replace the methods."""

    def construct(self, gradients):
        for k, (gradient, param, moment) in enumerate(zip(gradients, self.params, self.moments, strict=True)):
            if self.exec_weight_decay and self.decay_flags[k]:
                decay = self.weight_decay_tensor_tuple[k] if self.is_group else self.weight_decay_tensor
                gradient = gradient + param * decay
            if self.need_scale:
                gradient = gradient * self.reciprocal_scale
            rate = self.get_lr()[k] if self.is_group_lr else self.get_lr()
            self.opt(param, moment, rate, gradient, self.momentum)


_momentum_opt = ops.MultitypeFuncGraph("momentum_opt")


@_momentum_opt.register("Function", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor")
def _tensor_run_opt(opt, momentum, learning_rate, gradient, weight, moment):
    return ops.depend(True, opt(weight, moment, learning_rate, gradient, momentum))


class Mapped(Momentum):
    """The script's functions over tensors, as optimizers of the ModelZoo have them."""

    def construct(self, gradients):
        gradients = self.scale_grad(self.decay_weight(gradients))
        lr = self.get_lr()
        if self.is_group_lr:
            update = ops.partial(_momentum_opt, self.opt, self.momentum)
            return self.hyper_map(update, lr, gradients, self.params, self.moments)
        update = ops.partial(_momentum_opt, self.opt, self.momentum, lr)
        return self.map_(update, gradients, self.params, self.moments)


def plain(p):
    return p


def groups(p):
    return [{"params": p[:1], "lr": 0.5, "weight_decay": 0.2}, {"params": p[1:]}]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [Momentum, Fused, Mapped])
@pytest.mark.parametrize("given", [plain, groups])
@pytest.mark.parametrize("rate", [0.1, [0.3, 0.2, 0.1]])
def test_it_trains_as_ours(rate, given, kind, mode):
    own = trained(kind(given(parameters()), rate, 0.9, 0.01, 4.0, True), mode)
    ours = trained(nn.Momentum(given(parameters()), rate, 0.9, 0.01, 4.0, True), mode)
    assert own.keys() == ours.keys()
    assert {name: value.tobytes() for name, value in own.items()} == {
        name: value.tobytes() for name, value in ours.items()
    }


@pytest.mark.parametrize("kind", [Momentum, Fused, Mapped])
def test_in_a_sink(kind):
    def after(sunk, mode=context.GRAPH_MODE):
        set_seed(5)
        net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 10))
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        optimizer = kind(net.trainable_params(), [0.1, 0.05, 0.02], 0.9, 1e-3)
        model = Model(net, loss, optimizer, mode=mode, device=Device(threads=1))
        data = open_dataset(image_size=8, num_samples=320, train=True)
        model.train(99, data, (), sunk, max_steps=12)
        return {p.name: p.asnumpy() for p in model.train_network.get_parameters()}

    sunk, unsunk, pynative = after(True), after(False), after(False, context.PYNATIVE_MODE)
    for name, value in unsunk.items():
        assert sunk[name].tobytes() == value.tobytes()
        assert np.allclose(pynative[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
@pytest.mark.parametrize("kind", [Mapped, nn.Adam, nn.Lamb])
def test_called_outside_of_a_network(kind, mode):
    """A loop of a script calls it with a tuple of gradients; each call is a step, whose assignments take effect."""
    context.set_context(mode=mode)
    arguments = (0.1, 0.9) if kind is Mapped else (0.1,)
    p = parameters()
    optimizer = kind(p, *arguments)
    for step in GRADIENTS:
        optimizer(tuple(Tensor(gradient) for gradient in step.values()))
    inside = trained(kind(parameters(), *arguments), "pynative")
    for parameter in p:
        assert np.allclose(parameter.asnumpy(), inside[parameter.name], rtol=1e-5)


def test_a_rule_applied_outside_of_a_network():
    p, moment = parameters()[0], parameters()[0]
    before = p.asnumpy().copy()
    rate, factor, gradient = Tensor(0.5), Tensor(0.0), Tensor(np.ones((2, 3), np.float32))
    ops.ApplyMomentum()(p, moment, rate, gradient, factor)
    assert np.array_equal(p.asnumpy(), before - np.float32(0.5))
    assert np.array_equal(moment.asnumpy(), np.ones((2, 3), np.float32))


SCHEDULE_STEPS = 12


class WarmUpThenDecay(nn.LearningRateSchedule):
    """A schedule of a script, in operators: the warm-up of BERT in the ModelZoo is written like this."""

    def __init__(self, rate, warmup_steps, decay_steps):
        super().__init__()
        self.warmup_lr = nn.WarmUpLR(rate, warmup_steps)
        self.decay_lr = nn.PolynomialDecayLR(rate, 0.0, decay_steps, 1.0)
        self.warmup_steps = Tensor(np.array([warmup_steps]).astype(np.float32))
        self.greater, self.cast = ops.Greater(), ops.Cast()
        self.one = Tensor(np.array([1.0]).astype(np.float32))

    def construct(self, global_step):
        is_warmup = self.cast(self.greater(self.warmup_steps, global_step), Tensor(1.0).dtype)
        decayed, warming = self.decay_lr(global_step), self.warmup_lr(global_step)
        return (self.one - is_warmup) * decayed + is_warmup * warming


def test_a_schedule_written_in_operators():
    schedule = WarmUpThenDecay(0.5, 4, 10)
    for step in range(SCHEDULE_STEPS):
        expected = 0.5 * step / 4 if step < 4 else 0.5 * (1 - min(step, 10) / 10)
        assert abs(schedule(step) - expected) < 1e-7
    assert schedule(Tensor(2)).asnumpy() == np.float32(0.25)
    optimizer = nn.SGD(nn.Dense(2, 2).trainable_params(), schedule)
    assert np.array_equal(optimizer.next_rates(3)[0], np.array([0.0, 0.125, 0.25], np.float32))
