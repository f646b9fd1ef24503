"""Tensors, parameters and symbols: element types, numbers beside them, and what they refuse."""

import copy
import pickle

import numpy as np
import pytest
from tables import table

from runner import dtype as dt, ops
from runner.core.values import Parameter, Symbol, Tensor
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType

NAMES = ", ".join(t.numpy.name for t in dt.ALL)


@pytest.mark.parametrize(
    ("given", "dtype", "shape"),
    [
        (1.5, dt.float32, ()),
        (3, dt.int32, ()),
        (True, dt.bool_, ()),
        ([1, 2.5], dt.float32, (2,)),
        ([[1, 2], [3, 4]], dt.int32, (2, 2)),
        (np.float64(1.5), dt.float64, ()),
        (np.int64(3), dt.int64, ()),
        (np.zeros((2, 3), np.uint8), dt.uint8, (2, 3)),
        (Tensor([1.0], dt.float64), dt.float64, (1,)),
    ],
)
def test_the_type_of_a_tensor(given, dtype, shape):
    tensor = Tensor(given)
    assert (tensor.dtype, tensor.shape) == (dtype, shape)
    assert tensor.type == TensorType(dtype, shape)
    assert (tensor.ndim, tensor.size) == (len(shape), int(np.prod(shape)))
    assert tensor.asnumpy().dtype == dtype.numpy


@table("dtype", dt.ALL)
def test_an_element_type_can_be_chosen(dtype):
    tensor = Tensor([0, 1, 1], dtype)
    assert tensor.dtype is dtype
    assert tensor.asnumpy().tolist() == [0, 1, 1]
    assert tensor.astype(dt.int16).asnumpy().tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Tensor("word"), f"not an element type of tensors\n  value    <U4\n  allowed  {NAMES}"),
        (lambda: Tensor(None), f"not an element type of tensors\n  value    object\n  allowed  {NAMES}"),
        (lambda: Tensor(1j), f"not an element type of tensors\n  value    complex128\n  allowed  {NAMES}"),
        (lambda: Tensor(2**40), "a number does not fit its element type\n  value  1099511627776\n  dtype  Int32"),
        (
            lambda: Tensor([1, -300], dt.int8),
            "a number does not fit its element type\n  value  [1, -300]\n  dtype  Int8",
        ),
        (lambda: Tensor(-1, dt.uint8), "a number does not fit its element type\n  value  -1\n  dtype  UInt8"),
    ],
)
def test_what_cannot_be_a_tensor(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == f"ConfigError: {text}"


def test_arithmetic_of_handles():
    x = Tensor([1.0, 4.0])
    for made, expected in (
        (x + 1, [2, 5]),
        (1 + x, [2, 5]),
        (x - 1.5, [-0.5, 2.5]),
        (2 - x, [1, -2]),
        (x * x, [1, 16]),
        (3 * x, [3, 12]),
        (x / 2, [0.5, 2]),
        (2 / x, [2, 0.5]),
        (x**2, [1, 16]),
        (-x, [-1, -4]),
        (np.array([1, 2], np.float32) * x, [1, 8]),
        (np.float32(2) * x, [2, 8]),
        (x * np.float64(2), [2, 8]),
    ):
        assert isinstance(made, Tensor)
        assert made.dtype is dt.float32
        assert made.asnumpy().tolist() == expected
    assert (Tensor([[1.0, 2.0]]) @ Tensor([[3.0], [4.0]])).asnumpy().tolist() == [[11.0]]


@pytest.mark.parametrize("dtype", [dt.float16, dt.float32, dt.float64, dt.int8, dt.int32, dt.int64])
def test_a_number_takes_the_type_of_the_tensor_beside_it(dtype):
    assert (Tensor([1], dtype) + 2).dtype is dtype
    assert (2 * Tensor([1], dtype)).dtype is dtype
    assert (Tensor([1], dtype) + True).dtype is dtype


@pytest.mark.parametrize(
    ("tensor", "number"), [(Tensor([1], dt.int8), 300), (Tensor([1], dt.uint8), -1), (Tensor([1], dt.int32), 2**31)]
)
def test_a_number_that_the_type_beside_it_cannot_hold_is_refused(tensor, number):
    with pytest.raises(ConfigError) as caught:
        tensor + number
    assert caught.value.what == "a number does not fit its element type"
    assert caught.value.rows == {"value": str(number), "dtype": str(tensor.dtype)}


def test_conversions():
    assert float(Tensor(1.5)) == 1.5
    assert bool(Tensor(0)) is False
    assert np.asarray(Tensor([1.0, 2.0])).tolist() == [1, 2]
    assert np.asarray(Tensor([1.0, 2.0]), np.int64).dtype == np.int64
    assert repr(Tensor([1.0, 2.0])) == "Tensor(shape=[2], dtype=Float32, value= [ 1.00000000e+00,  2.00000000e+00])"


def test_operators_give_tensors_and_leave_their_operands():
    x = Tensor([1.0, -2.0])
    made = ops.Abs()(x)
    assert isinstance(made, Tensor)
    assert made.asnumpy().tolist() == [1, 2]
    assert x.asnumpy().tolist() == [1, -2]


# Parameters


def test_a_parameter_owns_its_elements():
    start = np.array([1.0, 2.0], np.float32)
    parameter = Parameter(start, "w")
    start[0] = 9
    assert parameter.asnumpy().tolist() == [1, 2]
    new = np.array([3.0, 4.0], np.float32)
    parameter.set_data(new)
    new[0] = 9
    assert parameter.asnumpy().tolist() == [3, 4]
    assert repr(parameter) == "Parameter (name=w, shape=(2,), dtype=Float32, requires_grad=True)"


NARROWER = (
    "\n  allowed    Bool, Int8, Int16, Int32, Int64, UInt8, Float16, Float32\n  repair     value.astype('float32')"
)


@pytest.mark.parametrize(
    ("data", "given"),
    [
        (np.zeros(3, np.float32), "Float32[3]"),
        (Tensor([1, 2, 3]), "Int32[3]"),
        (np.zeros(2), f"Float64[2]{NARROWER}"),
        (np.zeros(2, np.uint16), f"UInt16[2]{NARROWER}"),
    ],
)
def test_a_parameter_keeps_its_type(data, given):
    parameter = Parameter(Tensor([1.0, 2.0]), "w")
    with pytest.raises(ShapeError) as caught:
        parameter.set_data(data)
    assert str(caught.value) == (
        f"ShapeError: a parameter keeps its type\n  parameter  w\n  has        Float32[2]\n  given      {given}"
    )
    assert parameter.asnumpy().tolist() == [1, 2]


def test_a_parameter_takes_what_is_converted_to_its_type():
    parameter = Parameter(Tensor([1.0, 2.0]), "w")
    for data in (Tensor([3, 4]), np.float16([3, 4]), Tensor([3, 4], dt.uint8)):
        assert parameter.set_data(data).asnumpy().dtype == np.float32
        assert parameter.asnumpy().tolist() == [3, 4]
    assert parameter.data is parameter
    assert parameter.data.data.asnumpy().tolist() == [3, 4]
    assert Tensor([1]).data.shape == (1,)
    assert parameter.init_data(set_sliced=True) is parameter
    assert parameter.sliced


def test_a_parameter_fetches_from_the_device_once_and_only_when_read():
    parameter = Parameter(Tensor([1.0]), "w")
    fetched = []

    def fetch(resident):
        fetched.append(resident)
        return np.array([7.0], np.float32)

    parameter.set_resident("on the device", fetch)
    assert fetched == []
    assert parameter.asnumpy().tolist() == [7]
    assert parameter.asnumpy().tolist() == [7]
    assert fetched == ["on the device"]
    parameter.set_data(np.array([8.0], np.float32))
    assert parameter.resident is None
    assert parameter.asnumpy().tolist() == [8]


# Symbols


def test_a_symbol_knows_its_type_and_refuses_to_be_a_condition():
    symbol = Symbol(TensorType(dt.float32, (2, 3)), "y")
    assert (symbol.shape, symbol.dtype, symbol.ndim, symbol.size) == ((2, 3), dt.float32, 2, 6)
    assert repr(symbol) == "%y: Float32[2, 3]"
    with pytest.raises(ConfigError) as caught:
        bool(symbol)
    assert str(caught.value) == (
        "ConfigError: graph mode cannot branch on a value that is only known when the graph runs\n"
        "  value  %y: Float32[2, 3]\n"
        "  hint   use ops.Select, or run this network with mode=pynative"
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_there_is_one_object_per_type_also_after_a_copy(copied):
    """Types are compared by identity, so a copied network must hold the very same ones."""
    type = TensorType(dt.float32, (2, 3))
    assert TensorType(dt.float32, (2, 3)) is type is TensorType.of(np.ones((2, 3), np.float32))
    assert copied(type) is type
    assert copied(Parameter(Tensor([1.0, 2.0]))).dtype is dt.float32
