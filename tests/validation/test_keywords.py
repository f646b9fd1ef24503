"""Keyword arguments that constructors do not have."""

import copy
import pickle

import pytest
from runner.train.loss_scale_manager import FixedLossScaleManager
from tables import table

import runner.dataset as ds
from runner import Model, Parameter, Tensor, nn, ops
from runner.common import initializer as init
from runner.dataset.vision import c_transforms as vision
from runner.errors import ConfigError
from runner.train.callback import CheckpointConfig, LossMonitor

NET = nn.Dense(2, 2)


@table(
    ("make", "nearest"),
    [
        (lambda: nn.Conv2d(1, 2, kernal_size=3), "kernel_size"),
        (lambda: nn.Momentum(NET.trainable_params(), learing_rate=0.1, momentum=0.9), "learning_rate"),
        (lambda: nn.SoftmaxCrossEntropyWithLogits(sparze=True), "sparse"),
        (lambda: nn.Accuracy(evaltype="classification"), "eval_type"),
        (lambda: nn.CosineDecayLR(0.0, 0.1, decay_step=4), "decay_steps"),
        (lambda: ops.Conv2D(1, 3, strides=2), "stride"),
        (lambda: ops.ReduceSum(keepdims=True), "keep_dims"),
        (lambda: ops.ScatterAdd(use_lock=True), "use_locking"),
        (lambda: ops.GradOperation(getall=True), "get_all"),
        (lambda: Tensor([1], dtpye=None), "dtype"),
        (lambda: Parameter([1.0], requires_gradient=True), "requires_grad"),
        (lambda: init.Normal(sigm=0.1), "sigma"),
        (lambda: ds.MnistDataset("mnist", suffle=True), "shuffle"),
        (lambda: ds.RandomSampler(replace=True), "replacement"),
        (lambda: vision.Resize(sise=3), "size"),
        (lambda: CheckpointConfig(save_checkpoint_step=1), "save_checkpoint_steps"),
        (lambda: LossMonitor(per_print_time=1), "per_print_times"),
        (lambda: FixedLossScaleManager(lossscale=1.0), "loss_scale"),
        (lambda: Model(NET, optimiser=None), "optimizer"),
    ],
)
def test_an_unknown_name_has_the_nearest_one(make, nearest):
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.rows["nearest"] == nearest
    assert nearest in caught.value.rows["allowed"].split(", ")
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ConfigError)


def test_the_whole_text():
    with pytest.raises(ConfigError) as caught:
        nn.MaxPool2d(2, padmode="same")
    assert str(caught.value) == (
        "ConfigError: MaxPool2d has no argument 'padmode'\n"
        "  allowed  kernel_size, stride, pad_mode, data_format, padding, dilation, ceil_mode\n"
        "  nearest  pad_mode"
    )
    with pytest.raises(ConfigError, match="allowed  no arguments"):
        ops.Add(alpha=1)


@table(
    ("make", "release", "use"),
    [
        (lambda: nn.Dropout(p=0.5), "2.x", "keep_prob = 1 - p"),
        (lambda: ops.Conv2DBackpropInput(1, 3, pad_list=(0, 0, 0, 0)), "r1.2", "pad_mode and pad"),
    ],
)
def test_arguments_of_mindspore_that_are_missing(make, release, use):
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.what == f"an argument of MindSpore {release} that runner does not have"
    assert caught.value.rows["use"] == use


def test_classes_of_users_have_their_own_arguments():
    class Scaled(nn.Cell):
        def __init__(self, factor=2.0):
            super().__init__()
            self.factor = factor

        def construct(self, x):
            return x * self.factor

    class Open(nn.Dense):
        def __init__(self, *sizes, **others):
            super().__init__(*sizes, has_bias=False)
            self.others = others

    assert Scaled(factor=3.0).factor == 3.0
    assert Open(2, 2, colour="red").others == {"colour": "red"}
    with pytest.raises(TypeError, match="unexpected keyword"):
        Scaled(factr=3.0)


def test_copies_and_pickled_objects():
    op = pickle.loads(pickle.dumps(ops.ReduceSum(keep_dims=True)))
    assert op == ops.ReduceSum(keep_dims=True)
    assert copy.deepcopy(NET)(Tensor([[1.0, 2.0]])).asnumpy().tolist() == NET(Tensor([[1.0, 2.0]])).asnumpy().tolist()
