"""Parameters and tuples of them: copies, settings, values."""

import copy
import pickle

import numpy as np
import pytest
from tables import table

from runner import Parameter, ParameterTuple, Tensor, dtype as dt
from runner.common.initializer import initializer
from runner.errors import ConfigError, ShapeError


@table(
    ("given", "dtype", "shape"),
    [
        (3, dt.int32, ()),
        (0.5, dt.float32, ()),
        ([1.0, 2.0], dt.float32, (2,)),
        (np.zeros((2, 3), np.float16), dt.float16, (2, 3)),
        (Tensor([1], dt.int8), dt.int8, (1,)),
        (initializer("ones", [2, 2]).init_data(), dt.float32, (2, 2)),
    ],
)
def test_what_a_parameter_is_made_of(given, dtype, shape):
    parameter = Parameter(given, name="w")
    assert (parameter.dtype, parameter.shape) == (dtype, shape)
    assert (parameter.layerwise_parallel, parameter.parallel_optimizer, parameter.comm_fusion) == (False, True, 1)
    assert (parameter.is_init, parameter.inited_param, parameter.sliced, parameter.has_init) == (
        False,
        None,
        False,
        False,
    )
    expected = f"Parameter (name=w, shape={shape}, dtype={dtype}, requires_grad=True)"
    assert (repr(parameter), str(parameter)) == (expected, expected)


@table(
    ("init", "values"),
    [("same", [1, 2]), ("zeros", [0, 0]), (3, [3, 3]), (Tensor([5.0, 6.0]), [5, 6])],
)
def test_a_clone(init, values):
    parameter = Parameter([1.0, 2.0], "w", requires_grad=False, layerwise_parallel=True)
    parameter.comm_fusion = 4
    clone = parameter.clone(init)
    assert (clone.name, clone.requires_grad, clone.layerwise_parallel, clone.comm_fusion) == ("w", False, True, 4)
    assert clone.asnumpy().tolist() == values
    clone.set_data(Tensor([8.0, 9.0]))
    assert parameter.asnumpy().tolist() == [1, 2]


def test_a_number_fills_a_parameter_and_a_slice_may_have_another_shape():
    parameter = Parameter([[1.0, 2.0]], "w")
    assert parameter.set_data(7) is parameter
    assert parameter.asnumpy().tolist() == [[7, 7]]
    with pytest.raises(ShapeError):
        parameter.set_data(Tensor([1.0]))
    parameter.set_data(Tensor([1.0]), slice_shape=True)
    assert (parameter.shape, parameter.sliced) == ((1,), True)
    with pytest.raises(ShapeError):
        parameter.set_data(np.float64([1]), slice_shape=True)
    parameter.set_dtype(dt.float16)
    assert (parameter.dtype, parameter.asnumpy().dtype) == (dt.float16, np.float16)


def test_names_in_a_tuple():
    first, second, other = Parameter(1.0, "w"), Parameter(2.0, "w"), Parameter(3.0, "v")
    both = ParameterTuple([first, second, other, first])
    assert [p.name for p in both] == ["w_0", "w_1", "v", "w_0"]
    assert isinstance(both, tuple)
    clones = ParameterTuple(both[:2]).clone("m", init="ones")
    assert isinstance(clones, ParameterTuple)
    assert [(p.name, p.asnumpy().tolist()) for p in clones] == [("m.w_0", 1), ("m.w_1", 1)]
    assert first.asnumpy() == 1
    with pytest.raises(ConfigError) as caught:
        ParameterTuple([first, Tensor(1.0)])
    assert str(caught.value).startswith(
        "ConfigError: a ParameterTuple takes parameters\n  given   Tensor\n  at      1\n"
    )


@table("copied", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))], ids=str)
def test_copies(copied):
    parameter = Parameter([1.0, 2.0], "w", requires_grad=False)
    made = copied(parameter)
    assert (repr(made), made.asnumpy().tolist()) == (repr(parameter), [1, 2])
