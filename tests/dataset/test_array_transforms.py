"""Transforms of samples of any shape, and transforms of transforms. Numbers marked so are of MindSpore 2.10."""

import numpy as np
import pytest
from argument_errors import refused_argument
from tables import table

import runner.dataset as ds
from runner import dtype as dt, set_seed
from runner.dataset.transforms import c_transforms as CT, py_transforms as PT
from runner.dataset.transforms.c_transforms import Relational
from runner.dataset.vision import c_transforms as CV
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.types import TensorType

X = np.array([[1, 2, 3], [4, 5, 6]], np.int32)


@table(
    ("transform", "value", "expected"),  # MindSpore 2.10
    [
        (CT.PadEnd([3, 4], 10), X, [[1, 2, 3, 10], [4, 5, 6, 10], [10, 10, 10, 10]]),
        (CT.PadEnd([1, 2], 10), X, [[1, 2]]),
        (CT.Fill(7), X, [[7, 7, 7], [7, 7, 7]]),
        (CT.Fill(2.7), X, [[2, 2, 2], [2, 2, 2]]),
        (CT.Mask(Relational.GE, 3), X, [[False, False, True], [True, True, True]]),
        (CT.Mask(Relational.EQ, 3, dt.int32), X, [[0, 0, 1], [0, 0, 0]]),
        (CT.Slice(slice(0, 1), slice(1, 3)), X, [[2, 3]]),
        (CT.Slice([0, 1], [0, 2]), X, [[1, 3], [4, 6]]),
        (CT.Slice(0), X, [[1, 2, 3]]),
        (CT.Slice(..., [-1]), X, [[3], [6]]),
        (CT.Slice(None, 1), X, [[2], [5]]),
        (CT.Concatenate(0, np.array([0], np.int32), np.array([9], np.int32)), X[0], [0, 1, 2, 3, 9]),
        (CT.OneHot(3), np.array(1, np.int32), [0, 1, 0]),
        (CT.TypeCast(dt.int32), np.array([1.7, -1.7]), [1, -1]),
    ],
)
def test_the_numbers_of_mindspore(transform, value, expected) -> None:
    made = transform(value)
    assert made.tolist() == expected
    assert made.dtype == (np.bool_ if isinstance(np.ravel(expected)[0], np.bool_) else np.int32)


def test_other_numbers() -> None:
    assert CT.PadEnd([None, 4])(X).tolist() == [[1, 2, 3, 0], [4, 5, 6, 0]]
    assert CT.Slice(slice(None, None, -1))(X[0]).tolist() == [3, 2, 1]
    first, second = CT.Duplicate()(X)
    assert first.tolist() == second.tolist() == X.tolist()
    assert not np.shares_memory(first, second)
    values, places, counts = CT.Unique()(np.array([[3, 1], [3, 2]], np.int64))
    assert (values.tolist(), places.tolist(), counts.tolist()) == ([3, 1, 2], [0, 1, 0, 2], [2, 1, 1])
    assert (values.dtype, places.dtype, counts.dtype) == (np.int64, np.int32, np.int32)
    comparisons = [CT.Mask(kind, 2)(np.array([1, 2, 3])).tolist() for kind in Relational]
    yes, no = True, False
    expected = [[no, yes, no], [yes, no, yes], [no, no, yes], [no, yes, yes], [yes, no, no], [yes, yes, no]]
    assert comparisons == expected


def test_one_hot_op_smooths() -> None:
    assert PT.OneHotOp(3)(np.array(2)).tolist() == [[0.0, 0.0, 1.0]]  # one row, as in r1.2
    made = PT.OneHotOp(4, 0.2)(np.array([[1], [3]], np.uint8))
    assert made.shape == (2, 1, 4)
    np.testing.assert_allclose(made[1, 0], [0.05, 0.05, 0.05, 0.85])
    with pytest.raises(ConfigError, match="out of range"):
        PT.OneHotOp(3)(np.array(3))
    with pytest.raises(ConfigError, match="integers"):
        PT.OneHotOp(3)(np.array(1.0))


def test_chains_pass_tuples_on() -> None:
    pair = PT.Compose([lambda x: (x, x + 1), lambda a, b: (a * b, b)])
    assert pair(3) == (12, 4)
    assert PT.Compose([lambda a, b: a - b])(5, 2) == 3
    assert CT.Compose([CT.PadEnd([4]), CT.TypeCast("float32")])(X[0]).dtype == np.float32


def add(amount):
    return lambda value: value + amount


def test_choices() -> None:
    set_seed(3)
    made = [CT.RandomApply([add(1), add(2)], 0.25)(0) for _ in range(800)]
    assert set(made) == {0, 3}
    assert 150 < made.count(3) < 250
    made = [CT.RandomChoice([add(1), add(2), add(3)])(0) for _ in range(900)]
    assert all(240 < made.count(number) < 360 for number in (1, 2, 3))
    made = [PT.RandomOrder([add(1), lambda value: value * 2])(1) for _ in range(400)]
    assert set(made) == {3, 4}
    assert 150 < made.count(3) < 250


def test_functions_that_call_random_transforms_draw_from_the_sample() -> None:
    """So a pipeline is the same with any number of threads, in any batch."""
    crop = CV.RandomCrop((2, 2))
    chain = PT.Compose([lambda image: crop(image), CT.RandomChoice([CV.Invert(), CV.RandomHorizontalFlip(0.5)])])
    images = np.random.default_rng(0).integers(0, 256, (30, 9, 9, 1), dtype=np.uint8)

    def rows(batch: int, workers: int) -> np.ndarray:
        data = ds.NumpySlicesDataset({"image": images}).map(chain, "image", workers).batch(batch)
        return np.concatenate([columns[0] for columns in data.read(1)])

    expected = rows(30, 1)
    np.testing.assert_array_equal(rows(4, 3), expected)
    visit = Visits.of(np.array([30 + 7]), 30)
    np.testing.assert_array_equal(chain.apply(images[7:8], visit)[0], expected[7])


def test_samples_of_different_shapes_are_an_error_with_a_repair() -> None:
    with pytest.raises(ConfigError) as caught:
        PT.Compose([lambda value: np.zeros(int(value))]).apply(np.array([1, 2]), Visits.of(np.arange(2), 2))
    assert caught.value.rows["shapes"] == "(1,), (2,)"
    assert "PadEnd" in caught.value.rows["repair"]


def test_types_are_found_with_zeros() -> None:
    assert CT.PadEnd([4, None]).infer(TensorType(dt.int32, (2, 3))) == TensorType(dt.int32, (4, 3))
    assert CT.Mask(Relational.LT, 1).infer(TensorType(dt.int32, (2,))) == TensorType(dt.bool_, (2,))


def test_printed_forms_and_metadata() -> None:
    assert repr(CT.PadEnd([4, None], 1)) == "PadEnd(pad_shape=[4, None], pad_value=1)"
    assert CT.Mask(Relational.LT, 1).attributes() == {"operator": "LT", "constant": 1, "dtype": "Bool"}
    assert repr(CT.RandomChoice([CV.Invert()])) == "RandomChoice(transforms=['Invert()'])"


@table(
    ("make", "argument"),
    [
        (lambda: CT.Fill([1]), "fill_value"),
        (lambda: CT.Mask("GT", 1), "operator"),
        (lambda: CT.Mask(Relational.GT, None), "constant"),
        (lambda: CT.PadEnd(3), "pad_shape"),
        (lambda: CT.PadEnd([-1]), "pad_shape"),
        (lambda: CT.Concatenate(1), "axis"),
        (lambda: CT.Concatenate(0, X), "prepend"),
        (lambda: CT.Slice(), "slices"),
        (lambda: CT.Slice(1.5), "slices"),
        (lambda: CT.Slice([]), "slices"),
        (lambda: CT.Slice(..., ...), "slices"),
        (lambda: CT.Compose([]), "transforms"),
        (lambda: CT.Compose(CV.Invert()), "transforms"),
        (lambda: CT.RandomChoice([3]), "transforms"),
        (lambda: CT.RandomApply([CV.Invert()], 2.0), "prob"),
        (lambda: PT.OneHotOp(0), "num_classes"),
        (lambda: PT.OneHotOp(3, -0.1), "smoothing_rate"),
    ],
)
def test_arguments_are_checked(make, argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert refused_argument(caught.value)[0] == argument


@table(
    ("transform", "value"),
    [
        (CT.PadEnd([4]), X),
        (CT.Slice(5), X),
        (CT.Slice([-3]), X),
        (CT.Slice(0, 0, 0), X),
        (CT.Concatenate(0, [1]), X),
    ],
)
def test_other_samples_are_refused(transform, value) -> None:
    with pytest.raises(ConfigError):
        transform(value)


def test_constants_have_the_type_of_the_sample() -> None:
    assert CT.Mask(Relational.EQ, 3.5)(np.array([3, 4])).tolist() == [True, False]  # r1.2 compares with int(3.5)
    assert CT.Fill(-3)(np.array([1, 2], np.uint8)).tolist() == [253, 253]


def test_text_is_bytes() -> None:
    words = np.array(["ab", "c"])
    assert CT.Mask(Relational.GT, "b")(words).tolist() == [False, True]
    assert CT.Fill("word")(words).tolist() == [b"word", b"word"]
    assert CT.PadEnd([3], "xyz")(words).tolist() == [b"ab", b"c", b"xyz"]
    assert CT.PadEnd([3])(words).tolist() == [b"ab", b"c", b""]
    assert CT.Concatenate(0, np.array(["first"]))(words).tolist() == [b"first", b"ab", b"c"]
    assert CT.Slice([1, 0])(words).tolist() == [b"c", b"ab"]
    for transform, value in ((CT.Fill("x"), X), (CT.Mask(Relational.EQ, 1), words), (CT.PadEnd([3], 0), words)):
        with pytest.raises(RuntimeError, match="takes numbers, or text"):
            transform(value)
    with pytest.raises(RuntimeError, match="takes numbers, or text"):
        CT.Concatenate(0, np.array([1]))(words)


def test_columns_are_concatenated_and_labels_of_one_axis_are_encoded() -> None:
    data = ds.NumpySlicesDataset([[1, 2]], ["x"]).map([CT.Duplicate(), CT.Concatenate(append=np.array([9]))])
    assert next(iter(data))[0].asnumpy().tolist() == [1, 2, 1, 2, 9]
    rows = ds.NumpySlicesDataset([[0, 1], [1, 1]], shuffle=False).map(CT.OneHot(2)).batch(2)
    assert next(iter(rows))[0].asnumpy().tolist() == [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]
