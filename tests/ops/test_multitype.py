import numpy as np
import pytest
from tables import table

from runner import Parameter, Tensor, dtype, ops
from runner.errors import ConfigError, ShapeError


def tensor(*numbers):
    return Tensor(np.array(numbers, np.float32))


def scaling():
    scale = ops.MultitypeFuncGraph("scale")

    @scale.register("Number", "Tensor")
    def _tensor(factor, x):
        return x * factor

    @scale.register("Number", "Number")
    def _number(factor, x):
        return factor * x

    @scale.register("Bool", "String")
    def _text(factor, x):
        return x if factor else ""

    return scale


def test_a_body_is_chosen_by_types():
    scale = scaling()
    assert scale(2.0, tensor(1.0, 2.0)).asnumpy().tolist() == [2, 4]
    assert scale(2.0, Parameter(tensor(3.0), "w")).asnumpy().tolist() == [6]
    assert scale(True, 3) == 3
    assert scale(True, "text") == "text"


def test_the_most_specific_body_is_chosen():
    kind = ops.MultitypeFuncGraph("kind")
    kind.register("Number")(lambda x: "number")
    kind.register("Bool")(lambda x: "bool")
    kind.register("Tuple")(lambda x: "tuple")
    kind.register("Function")(lambda x: "function")
    kind.register(dtype.int32, "Float64")(lambda x, y: "widths")
    assert [kind(x) for x in (1, True, (), len)] == ["number", "bool", "tuple", "function"]
    assert kind(1, 2.0) == "widths"


@table(["types", "arguments", "text"], [
    (["Tensor"], (1,), "given       Int"),
    (["Tensor"], (1,), "@f.register('Int')"),
    (["Tensor", "Tensor"], (tensor(1.0),), "no body is registered"),
    (["Number", "Bool"], ("a", True), "given       String, Bool"),
])  # fmt: skip
def test_no_body(types, arguments, text):
    function = ops.MultitypeFuncGraph("f")
    function.register(*types)(lambda *_: None)
    with pytest.raises(ConfigError) as caught:
        function(*arguments)
    assert text in str(caught.value)


def test_ambiguous_doubled_and_unknown_bodies():
    function = ops.MultitypeFuncGraph("f")
    function.register("Bool", "Number")(lambda x, y: 1)
    function.register("Number", "Bool")(lambda x, y: 2)
    with pytest.raises(ConfigError, match="more than one body fits"):
        function(True, True)
    with pytest.raises(ConfigError, match="two bodies"):
        function.register("Bool", "Number")(lambda x, y: 3)
    with pytest.raises(ConfigError, match="Tensor"):
        function.register("Tensr")


def test_hyper_map_and_map():
    xs, ys = (tensor(1.0), (tensor(2.0), tensor(3.0))), (tensor(10.0), (tensor(20.0), tensor(30.0)))
    made = ops.HyperMap()(lambda x, y: x + y, xs, ys)
    assert made[0].asnumpy().tolist() == [11]
    assert [x.asnumpy().tolist() for x in made[1]] == [[22], [33]]
    scaled = ops.HyperMap()(ops.partial(scaling(), 2.0), [tensor(1.0), 3])
    assert scaled[0].asnumpy().tolist() == [2]
    assert scaled[1] == 6
    assert ops.HyperMap(scaling())((2, 3), (4, 5)) == (8, 15)
    assert ops.Map()(lambda pair: len(pair), ((1, 2), (3,))) == (2, 1)
    assert ops.Map(lambda x, y: x - y)([5, 7], (1, 2)) == (4, 5)
    with pytest.raises(ShapeError, match="1, 2"):
        ops.Map()(lambda x, y: x, (1,), (2, 3))
    with pytest.raises(ShapeError, match="no sequence"):
        ops.HyperMap()(lambda x, y: x, (1,), 2)
