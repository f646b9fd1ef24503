"""Methods of cells under the names of r1.2: flags, precision, hooks, insertion, names of parameters, printed form."""

import numpy as np
import pytest
from both_modes import MODES, nodes_of, step_of
from tables import table

from runner import ParameterTuple, Tensor, context, dtype as dt, nn, ops
from runner.core.gradients import gradients
from runner.core.precision import policy, use_precision
from runner.core.values import Parameter
from runner.errors import ConfigError, ShapeError

X = np.random.default_rng(5).normal(size=(3, 4)).astype(np.float32)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = nn.Dense(4, 5, weight_init="he_uniform")
        self.second = nn.Dense(5, 2, weight_init="he_uniform")

    def construct(self, x, scale=1.0):
        return self.second(self.first(x)) * scale


@pytest.fixture(params=MODES)
def mode(request):
    modes = {"pynative": context.PYNATIVE_MODE, "graph": context.GRAPH_MODE}
    context.set_context(mode=modes[request.param])
    return request.param


def in_float64(net, x):
    first, second = net.first, net.second
    hidden = x.astype(np.float64) @ first.weight.asnumpy().T.astype(np.float64) + first.bias.asnumpy()
    return hidden @ second.weight.asnumpy().T.astype(np.float64) + second.bias.asnumpy()


def test_a_cell_in_float16(mode):
    """Float16 inside, also where a call is the outermost one, and Float32 parameters with Float32 gradients."""
    net = Net()
    assert net.to_float(dt.float16) is net
    out = net(Tensor(X))
    assert out.dtype is dt.float16
    assert {p.dtype for p in net.get_parameters()} == {dt.float32}
    assert np.abs(out.asnumpy() - in_float64(net, X)).max() < 1e-2
    assert not np.array_equal(out.asnumpy(), in_float64(net, X).astype(np.float16))
    weights = net.trainable_params()
    made = step_of(lambda x: tuple(gradients(ops.ReduceSum()(net(x)), weights)), mode)(X)
    assert [g.dtype for g in made] == [np.float32] * 4
    expected = np.ones((3, 2)).T @ (X @ net.first.weight.asnumpy().T + net.first.bias.asnumpy())
    assert np.abs(made[2] - expected).max() < 2e-2
    net.to_float(dt.float32)
    assert np.allclose(net(Tensor(X)).asnumpy(), in_float64(net, X), atol=1e-6)


def test_a_cell_in_float32_inside_of_one_in_float16(mode):
    net = Net().to_float(dt.float16)
    net.second.to_float(dt.float32)
    assert (net.float_type, net.second.float_type) == (dt.float16, dt.float32)
    casts = [node.op.dtype for node in nodes_of(net.compute, mode, X) if node.op.name == "Cast"]
    assert casts[0] is dt.float16
    assert dt.float32 in casts
    assert net(Tensor(X)).dtype is dt.float32  # the product with `scale` follows what the inner cell gives


def test_a_cell_casts_its_inputs_and_parameters_only(mode):
    """What another cell gives in Float32 stays Float32. MindSpore 2.10 in graph mode gave these types."""

    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(4, 4)
            self.weight = Parameter(np.full(4, 1 / 3, np.float32), name="weight")
            self.relu = ops.ReLU()

        def construct(self, x):
            wide = self.dense(x)
            return self.relu(wide), self.relu(x), x * self.weight, wide * self.weight, ops.Cast()(x, dt.float32) + wide

    net = Outer().to_float(dt.float16)
    net.dense.to_float(dt.float32)
    wide, narrow, product, mixed, both = net(Tensor(X))
    assert [y.dtype for y in (wide, narrow, product, mixed, both)] == [
        *(dt.float32, dt.float16, dt.float16, dt.float32, dt.float32),
    ]
    rounded = X.astype(np.float16).astype(np.float64)
    expected = rounded @ net.dense.weight.asnumpy().T.astype(np.float64) + net.dense.bias.asnumpy()
    assert np.allclose(wide.asnumpy(), np.maximum(expected, 0), atol=1e-6)
    assert np.allclose(product.asnumpy(), rounded / 3, atol=2e-3)


def test_a_loss_in_float32_after_a_network_in_float16(mode):
    """The example of the release's tutorial on mixed precision: the last layer in Float32, labels too."""
    net = Net().to_float(dt.float16)
    net.second.to_float(dt.float32)
    step = nn.TrainOneStepCell(
        nn.WithLossCell(net, nn.SoftmaxCrossEntropyWithLogits()), nn.Momentum(net.trainable_params(), 0.1, 0.9)
    )
    before = in_float64(net, X)
    losses = step(Tensor(X), Tensor(np.eye(3, 2, dtype=np.float32))).asnumpy()
    log_softmax = before - np.log(np.exp(before).sum(1, keepdims=True))
    assert losses.dtype == np.float32
    assert np.allclose(losses, -(np.eye(3, 2) * log_softmax).sum(1), atol=5e-3)


def test_a_forced_precision_is_that_of_all_cells(mode):
    """Under force_fp32 a network in Float16 computes what it computes without `to_float`, and the other way round."""
    net = Net().to_float(dt.float16)
    net.second.to_float(dt.float32)
    context.set_context(precision_mode="force_fp32")
    out = net(Tensor(X))
    assert out.dtype is dt.float32
    assert np.allclose(out.asnumpy(), in_float64(net, X), atol=1e-6)
    with use_precision(policy("force_fp32")):
        kinds = {x.dtype for node in nodes_of(net.compute, mode, X) for x in (*node.inputs, *node.outputs)}
    assert kinds == {dt.float32}
    context.set_context(precision_mode="force_fp16")
    assert net(Tensor(X)).dtype is dt.float16
    with use_precision(policy("force_fp16")):
        made = [y.dtype for node in nodes_of(net.compute, mode, X) for y in node.outputs]
    assert set(made) == {dt.float16}


def test_only_two_precisions():
    with pytest.raises(ConfigError) as caught:
        Net().to_float(dt.int32)
    assert str(caught.value).startswith("ConfigError: a cell computes in Float16 or Float32\n  given    Int32")


def test_arguments_by_name(mode):
    net = Net()
    plain = net(Tensor(X)).asnumpy()
    assert np.allclose(net(x=Tensor(X)).asnumpy(), plain)
    assert np.allclose(net(scale=Tensor(2.0), x=Tensor(X)).asnumpy(), 2 * plain, rtol=1e-6)

    class Outer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.net = net

        def construct(self, x):
            return self.net(x, scale=3.0)

    assert np.allclose(Outer()(Tensor(X)).asnumpy(), 3 * plain, rtol=1e-6)
    with pytest.raises(TypeError, match="scal"):
        net(Tensor(X), scal=2)


def test_compile_and_run_is_graph_mode():
    net = Net()
    assert np.allclose(net.compile_and_run(Tensor(X)).asnumpy(), in_float64(net, X), atol=1e-6)


def test_a_hook_receives_the_gradients_of_outputs_and_input():
    context.set_context(mode=context.PYNATIVE_MODE)
    net, received = Net(), []
    net.second.register_backward_hook(lambda name, out, given: received.append((name, out, given)))
    loss = lambda x: tuple(gradients(ops.ReduceSum()(net(x)), net.trainable_params()))  # noqa: E731
    plain = step_of(loss, "pynative")(X)
    ((name, out, given),) = received
    assert name == f"Dense({id(net.second)})"
    assert (len(out), out[0].asnumpy().tolist()) == (1, np.ones((3, 2)).tolist())
    assert np.allclose(given[0].asnumpy(), np.ones((3, 2)) @ net.second.weight.asnumpy(), rtol=1e-6)
    net.second.register_backward_hook(lambda name, out, given: given[0] * 2.0)
    doubled = step_of(loss, "pynative")(X)
    for k, factor in enumerate((2, 2, 1, 1)):
        assert np.allclose(doubled[k], factor * plain[k], rtol=1e-6)


def test_graph_mode_has_no_hooks():
    net = Net()
    net.first.register_backward_hook(print)
    with pytest.raises(ConfigError) as caught:
        net.compile_and_run(Tensor(X))
    assert caught.value.what == "graph mode does not support hooks"
    with pytest.raises(ConfigError, match="a hook is a function"):
        net.register_backward_hook("print")


def test_flags():
    net = nn.SequentialCell(nn.ReLU(), nn.Dense(2, 2))
    assert net.add_flags(defer_inline=True) is net
    assert (net.get_flags(), net.defer_inline) == ({"defer_inline": True}, True)
    net.add_flags_recursive(mark=3)
    assert [cell.mark for _, cell in net.cells_and_names()] == [3, 3, 3]
    assert (net.set_train(False).phase, net.set_train().phase) == ("predict", "train")
    assert net.set_grad() is net
    assert (net.requires_grad, net.set_grad(False).requires_grad) == (True, False)
    net.set_broadcast_flag()
    assert net[0].broadcast_flag
    assert nn.Cell(flags={"a": 1}).a == 1
    net.bprop_debug = True
    assert net.bprop_debug
    assert net.set_comm_fusion(2) is net
    assert [p.comm_fusion for p in net.get_parameters()] == [2, 2]


def test_names_of_cells_and_parameters():
    net = Net()
    assert net.cls_name == "Net"
    assert net.cell_init_args == f"<class '{__name__}.Net'>"
    net.update_cell_prefix()
    assert [cell.param_prefix for _, cell in net.cells_and_names()] == ["", "first", "second"]
    assert [name for name, _ in net.cells_and_names(name_prefix="a")] == ["a", "a.first", "a.second"]
    assert [name for name, _ in net.parameters_and_names("a")][:2] == ["a.first.weight", "a.first.bias"]
    assert list(net.parameters_and_names(expand=False)) == []
    assert net.first.get_parameters(expand=False) == [net.first.weight, net.first.bias]
    assert (net.trainable_params(recurse=False), net.untrainable_params(recurse=False)) == ([], [])
    net.update_parameters_name("net.")
    assert list(net.parameters_dict()) == [
        f"net.{cell}.{name}" for cell in ("first", "second") for name in ("weight", "bias")
    ]
    assert net.init_parameters_data() == {p: p for p in net.get_parameters()}


def test_a_shared_cell_is_listed_once():
    class Twice(nn.Cell):
        def __init__(self):
            super().__init__()
            self.a = nn.Dense(2, 2)
            self.b = self.a

    assert [name for name, _ in Twice().cells_and_names()] == ["", "a"]


def test_insertion():
    net = nn.Cell()
    net.insert_child_to_cell("dense", nn.Dense(2, 3, has_bias=False))
    net.insert_param_to_cell("scale", Parameter(1.0))
    net.insert_param_to_cell("a.b", Parameter(2.0))
    assert net.dense.weight.name == "weight"
    assert (net.scale.name, net.scale.asnumpy()) == ("scale", 1)
    assert [p.name for p in net.get_parameters()] == ["scale", "a.b", "weight"]
    del net.scale
    net.insert_child_to_cell("dense", None)
    assert [p.name for p in net.get_parameters()] == ["a.b"]
    with pytest.raises(AttributeError, match="has no attribute scale"):
        net.scale  # noqa: B018
    with pytest.raises(AttributeError):
        del net.scale


@table(
    ("insert", "what"),
    [
        (lambda net: net.insert_child_to_cell("a.b", nn.ReLU()), "the name of a cell is a text without dots"),
        (lambda net: net.insert_child_to_cell("", nn.ReLU()), "the name of a cell is a text without dots"),
        (lambda net: net.insert_child_to_cell("cells", nn.ReLU()), "the name of a cell is taken"),
        (lambda net: net.insert_child_to_cell("x", Parameter(1.0)), "only a cell can be inserted as one"),
        (lambda net: net.insert_param_to_cell("", Parameter(1.0)), "the name of a parameter is a text"),
        (lambda net: net.insert_param_to_cell("x", Tensor(1.0)), "only a parameter can be inserted as one"),
        (lambda net: net.set_comm_fusion(-1), "comm_fusion is a whole number"),
        (lambda net: net.set_param_ps(), "runner has no parameter server"),
        (lambda net: setattr(net, "phase", 1), "phase is a text"),
        (lambda net: setattr(net, "bprop_debug", 1), "bprop_debug is true or false"),
        (lambda net: setattr(net, "cell_init_args", 1), "cell_init_args is a text"),
        (
            lambda net: net(Tensor(X), y=Tensor(X)),
            "the outermost cell takes no arguments that can only be given by name",
        ),
    ],
)
def test_what_is_refused(insert, what):
    class Named(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(1.0)

        def construct(self, x, *, y):
            return x + y

    with pytest.raises(ConfigError) as caught:
        insert(Named())
    assert caught.value.what == what


def test_a_tensor_replaces_the_value_of_a_parameter(mode):
    class Count(nn.Cell):
        def __init__(self):
            super().__init__()
            self.count = Parameter(Tensor([1.0]))

        def construct(self, x):
            self.count = self.count + x
            return self.count * 1.0

    net = Count()
    parameter = net.count
    net.count = Tensor([5.0])
    assert net.count is parameter
    assert [net(Tensor([2.0])).asnumpy().tolist() for _ in range(2)] == [[7], [9]]
    assert net.count.asnumpy().tolist() == [9]
    with pytest.raises(ShapeError, match="a parameter keeps its type"):
        net.count = Tensor([1.0, 2.0])


def test_a_tuple_of_parameters_belongs_to_its_cell():
    class Owner(nn.Cell):
        def __init__(self):
            super().__init__()
            self.net = nn.Dense(2, 2)
            self.weights = ParameterTuple(self.net.trainable_params())
            self.moments = self.weights.clone("moments", init="zeros")

    names = [p.name for p in Owner().get_parameters()]
    assert names == ["moments.net.weight", "moments.net.bias", "net.weight", "net.bias"]


def test_the_printed_form():
    class Named(nn.Cell):
        def extend_repr(self):
            return "size=3"

    class Outer(Named):
        def __init__(self):
            super().__init__()
            self.inner = nn.SequentialCell(Named(), nn.ReLU())

    assert repr(Named()) == "Named<size=3>"
    # As MindSpore 2.10.0 prints it.
    assert str(Outer()) == (
        "Outer<\n  size=3\n  (inner): SequentialCell<\n    (0): Named<size=3>\n    (1): ReLU<>\n    >\n  >"
    )
