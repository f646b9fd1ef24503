"""`runner.numpy`, the functions of `mindspore.numpy`: against numpy in Float64, eagerly and traced, with gradients."""

import numpy
import pytest
import runner.numpy as mnp
from tables import table

from runner import Parameter, Tensor, context, ms_function, nn, ops
from runner.errors import ConfigError, RunnerError, ShapeError

DRAWS = numpy.random.default_rng(5)
MATRIX, OTHER = DRAWS.uniform(-2, 2, (3, 4)), DRAWS.uniform(-2, 2, (3, 4))
INSIDE = DRAWS.uniform(-0.9, 0.9, (3, 4))
POSITIVE = DRAWS.uniform(1.1, 3, (3, 4))
CUBE = DRAWS.uniform(-1, 1, (2, 3, 4))
COUNTS = numpy.array([[12, -7, 0], [9, 30, 5]])
DIVISORS = numpy.array([[8, 3, 4], [-6, 12, 5]])
GAPS = numpy.array([[1.0, numpy.nan, 3.0], [4.0, 5.0, numpy.nan]])
LIMITS = numpy.array([1.0, numpy.inf, -numpy.inf, numpy.nan, 0.0])
VECTOR, WEIGHTS = DRAWS.uniform(-1, 1, 5), numpy.array([1.0, 2.0, 3.0, 4.0])
FLAGS = numpy.array([[True, False, True]])

ONE = (
    "absolute arctan arcsinh cbrt ceil cos cosh deg2rad exp exp2 expm1 fabs fix floor isfinite isinf isnan logical_not"
)
ONE += (
    " negative positive rad2deg reciprocal sin sinh square tan tanh trunc ravel transpose flip fliplr flipud mean std"
)
ONE += (
    " var ptp amax amin max min cumsum count_nonzero nansum nanmean nanvar nanstd nancumsum cov atleast_3d squeeze abs"
)
TWO = "add subtract multiply divide true_divide arctan2 floor_divide fmod heaviside hypot logaddexp logaddexp2 maximum"
TWO += " minimum remainder mod equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor"
TWO += " inner outer kron isclose append"
ROWS = [
    *[(name, MATRIX) for name in ONE.split()],
    *[(name, MATRIX, OTHER) for name in TWO.split()],
    *[(name, INSIDE) for name in ("arccos", "arcsin", "arctanh", "log1p")],
    *[(name, POSITIVE) for name in ("arccosh", "log", "log2", "log10", "sqrt")],
    *[(name, POSITIVE, MATRIX) for name in ("power", "float_power")],
    *[(name, GAPS, 1) for name in ("nansum", "nanmean", "nanvar", "nanstd", "nancumsum")],
    *[(name, LIMITS) for name in ("isfinite", "isinf", "isnan", "isposinf", "isneginf")],
    *[(name, LIMITS, numpy.zeros(5)) for name in ("maximum", "minimum", "isclose")],
    *[(name, COUNTS, DIVISORS) for name in ("add", "multiply", "floor_divide", "remainder", "fmod", "gcd", "lcm")],
    *[(name, CUBE, axis) for name in ("mean", "std", "var", "amax", "amin", "ptp") for axis in (1, (0, -1))],
    *[(name, CUBE, 1) for name in ("cumsum", "flip", "count_nonzero", "expand_dims", "array_split")],
    *[("matmul", a, b) for a, b in ((MATRIX, OTHER.T), (CUBE, OTHER.T), (WEIGHTS, MATRIX.T), (COUNTS, DIVISORS.T))],
    *[("dot", a, b) for a, b in ((MATRIX, OTHER.T), (CUBE, OTHER.T), (WEIGHTS, WEIGHTS), (CUBE, WEIGHTS))],
    ("tensordot", CUBE, CUBE, ([0, 2], [0, 2])),
    ("average", CUBE, 2, WEIGHTS),
    ("clip", MATRIX, -1, None),
    ("clip", MATRIX, None, OTHER),
    ("where", MATRIX > 0, MATRIX, 1.5),
    ("select", [MATRIX > 1, MATRIX > 0], [MATRIX, OTHER], -1.0),
    ("isin", COUNTS, [9, 0]),
    ("in1d", COUNTS, [9, 0], False),
    ("tril", CUBE, 1),
    ("triu", CUBE, -1),
    ("tril", FLAGS),
    ("diagonal", CUBE, 1, 1, 2),
    ("trace", CUBE, 0, 1, 2),
    ("diag", VECTOR, 1),
    ("diag", MATRIX, -1),
    ("diagflat", COUNTS, 1),
    ("vander", VECTOR, 4),
    ("rollaxis", CUBE, 2, 1),
    ("moveaxis", CUBE, (0, 1), (2, 0)),
    ("swapaxes", CUBE, 0, 2),
    ("transpose", CUBE, (1, 2, 0)),
    ("reshape", CUBE, (4, -1)),
    ("roll", CUBE, (1, 2), (0, 2)),
    ("roll", CUBE, 5),
    ("rot90", CUBE, 3, (1, 2)),
    ("repeat", MATRIX, [1, 0, 2], 0),
    ("tile", MATRIX, (2, 1, 2)),
    ("broadcast_to", VECTOR, (2, 5)),
    ("broadcast_arrays", MATRIX, WEIGHTS),
    ("take", CUBE, [[2, 0], [1, 1]], 1),
    ("take_along_axis", MATRIX, numpy.array([[0], [3], [1]]), 1),
    ("split", CUBE, 2, 2),
    ("split", CUBE, [1, 3], -1),
    *[
        ("array_split", CUBE, 3, 2),
        ("vsplit", CUBE, 2),
        ("hsplit", CUBE, 3),
        ("dsplit", CUBE, 2),
        ("hsplit", VECTOR, [2]),
    ],
    *[(name, [MATRIX, OTHER]) for name in ("stack", "concatenate", "vstack", "hstack", "dstack", "column_stack")],
    *[(name, [VECTOR, VECTOR]) for name in ("vstack", "hstack", "dstack", "column_stack")],
    ("append", MATRIX, VECTOR),
    ("diff", CUBE, 2, 1),
    ("ediff1d", MATRIX, [1.0, 2.0], 0.5),
    ("convolve", VECTOR, WEIGHTS[:3], "same"),
    ("convolve", WEIGHTS[:3], VECTOR, "valid"),
    ("convolve", VECTOR, WEIGHTS),
    ("cross", CUBE.swapaxes(1, 2), CUBE.swapaxes(1, 2)),
    ("cov", MATRIX, OTHER, True, False, 0, numpy.array([1, 2, 1, 3]), WEIGHTS),
    ("meshgrid", VECTOR, WEIGHTS, WEIGHTS),
    ("atleast_2d", VECTOR),
    ("divmod", COUNTS, DIVISORS),
    ("trapz", MATRIX, POSITIVE),
    ("trapz", CUBE, None, 0.5, 0),
]


def trapezoids(y, x=None, dx=1.0, axis=-1):
    y = numpy.moveaxis(y, axis, -1)
    return ((y[..., 1:] + y[..., :-1]) / 2 * (dx if x is None else numpy.diff(x))).sum(-1)


REFERENCES = {"in1d": lambda a, b, invert: numpy.isin(a, b, invert=invert).ravel(), "trapz": trapezoids}


def given(operand):
    """An operand of a row for runner: arrays as tensors of 32 bits, also those in lists."""
    if isinstance(operand, list) and isinstance(operand[0], numpy.ndarray):
        return [given(each) for each in operand]
    if not isinstance(operand, numpy.ndarray):
        return operand
    return Tensor(operand.astype({"f": numpy.float32, "i": numpy.int32}.get(operand.dtype.kind, operand.dtype)))


def compare(result, expected):
    if isinstance(expected, list | tuple):
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            compare(one, other)
    else:
        numpy.testing.assert_allclose(numpy.float64(result.asnumpy()), numpy.float64(expected), rtol=3e-5, atol=3e-6)


@table(("name", "operands"), [(name, operands) for name, *operands in ROWS])
@pytest.mark.parametrize("mode", ["pynative", "graph"])
def test_functions_equal_those_of_numpy(mode, name, operands):
    context.set_context(mode=context.PYNATIVE_MODE if mode == "pynative" else context.GRAPH_MODE)
    function, reference = getattr(mnp, name), REFERENCES.get(name) or getattr(numpy, name)
    tensors = [given(operand) for operand in operands]
    known = [k for k, tensor in enumerate(tensors) if not isinstance(tensor, Tensor)]

    def compute(*traced):
        rest = iter(traced)
        return function(*[tensors[k] if k in known else next(rest) for k in range(len(tensors))])

    traced = [tensor for k, tensor in enumerate(tensors) if k not in known]
    result = compute(*traced) if mode == "pynative" or not traced else ms_function(compute)(*traced)
    compare(result, reference(*operands))


CREATED = {
    "array": ([[1, 2], [3, 4]],),
    "ones": ((2, 3),),
    "zeros": (4,),
    "full": ((2, 3), [1, 2, 3]),
    "arange": (1, 9, 2),
    "linspace": (0, 1, 5),
    "logspace": (0, 2, 3, True, 2.0),
    "geomspace": (1, 256, 9),
    "eye": (3, 4, 1),
    "identity": (3,),
    "tri": (3, 5, 1),
    "indices": ((2, 3),),
    "diag_indices": (3, 2),
    "ones_like": ([[1, 2]],),
    "full_like": ([1.5, 2.5], 3),
    "ix_": ([0, 1], [2, 4]),
}


@table(("name", "arguments"), CREATED.items())
def test_created_tensors_equal_those_of_numpy(name, arguments):
    expected = getattr(numpy, name)(*arguments)
    compare(getattr(mnp, name)(*arguments), list(expected) if name == "indices" else expected)


def test_grids():
    compare(mnp.mgrid[0:5, 1:3], numpy.mgrid[0:5, 1:3])
    compare(mnp.ogrid[0:5, 1:3:0.5], list(numpy.ogrid[0:5, 1:3:0.5]))
    compare(mnp.mgrid[0:1:5j], numpy.mgrid[0:1:5j])
    made, distance = mnp.linspace(0, 1, 5, retstep=True)
    assert (made.size, float(distance)) == (5, 0.25)


def test_vector_products_of_pairs():
    """A pair is a vector whose third component is 0."""
    pairs, vectors = CUBE[..., :2], CUBE[..., 1:]
    whole = numpy.concatenate([pairs, numpy.zeros((2, 3, 1))], -1)
    compare(mnp.cross(given(pairs), given(pairs[::-1])), numpy.cross(whole, whole[::-1])[..., 2])
    compare(mnp.cross(given(pairs), given(vectors)), numpy.cross(whole, vectors))


def test_element_types_are_those_of_the_release():
    assert [mnp.array(x).dtype for x in (1, 1.5, True, [1, 2])] == [mnp.int32, mnp.float32, mnp.bool_, mnp.int32]
    assert mnp.promote_types("float16", mnp.int64) is mnp.float16, "an integer never widens a float"
    assert mnp.promote_types(mnp.uint8, mnp.int8) is mnp.int16
    assert mnp.add(mnp.array([1], mnp.int8), mnp.array([1.5], mnp.float16)).dtype is mnp.float16
    assert mnp.sin(mnp.array([1])).dtype is mnp.float32
    assert mnp.mean(mnp.arange(4)).dtype is mnp.int32
    assert mnp.add([1, 2], 3, dtype="float16").dtype is mnp.float16
    assert mnp.isscalar(3)
    assert not mnp.isscalar(mnp.array(3))
    values, places = mnp.unique(mnp.array([[3, 1], [1, 2]]), return_inverse=True)
    assert values.asnumpy().tolist() == [1, 2, 3]
    assert places.asnumpy().tolist() == [[2, 0], [0, 1]]


@pytest.mark.parametrize("mode", [context.PYNATIVE_MODE, context.GRAPH_MODE])
def test_gradients_in_a_network(mode):
    """The derivative of the sum of squares of the flipped upper triangle."""

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(Tensor(MATRIX.astype(numpy.float32)), name="weight")

        def construct(self, x):
            return mnp.square(mnp.flip(mnp.triu(self.weight * x), 1)).sum()

    context.set_context(mode=mode)
    net = Net()
    (gradient,) = ops.GradOperation(get_by_list=True)(net, net.trainable_params())(Tensor(OTHER.astype(numpy.float32)))
    numpy.testing.assert_allclose(gradient.asnumpy(), 2 * numpy.triu(MATRIX * OTHER) * OTHER, rtol=1e-5, atol=1e-6)


ERRORS = {
    "an array": (lambda: mnp.add(numpy.ones(2), 1), ConfigError, "not an operand"),
    "an empty range": (lambda: mnp.arange(3, 1), ConfigError, "without elements"),
    "a negative length": (lambda: mnp.ones(-1), ConfigError, "at least 0"),
    "parts": (lambda: mnp.split(mnp.arange(5), 2), ShapeError, "divisor"),
    "a mode": (lambda: mnp.take(mnp.arange(5), [7], mode="raise"), ShapeError, "clip, wrap"),
    "an axis": (lambda: mnp.mean(mnp.ones((2, 2)), 5), ShapeError, "axis out of range"),
    "places of true elements": (lambda: mnp.where(mnp.array([True])), ShapeError, "static shape"),
    "an element type": (lambda: mnp.ones(2, "float8"), RunnerError, "float8"),
    "vectors": (lambda: mnp.cross([1], [2]), ShapeError, "2 or 3"),
}


@table(("call", "kind", "text"), ERRORS.values())
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
