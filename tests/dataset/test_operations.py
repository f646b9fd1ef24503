"""Operations of MindSpore's pipelines. Expected values are those that MindSpore 2.10 returns, unless derived."""

import numpy as np
import pytest
from tables import table

import runner.dataset as ds
import runner.dataset.transforms.c_transforms as CT
from runner import Tensor, dtype as mstype
from runner.errors import ConfigError


def one(name: str = "x", count: int = 4) -> ds.Dataset:
    return ds.NumpySlicesDataset({name: np.arange(count)})


def two() -> ds.Dataset:
    return ds.zip((one("x"), one("y", 6)))


def ragged() -> ds.Dataset:
    return ds.GeneratorDataset(lambda: ((np.arange(length),) for length in [1, 4, 2, 6, 3, 2, 5]), ["t"])


def items(data: ds.Dataset) -> list[object]:
    """The only column of every item of an epoch."""
    return [item[0].tolist() for item in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]


@table(
    ("inputs", "outputs", "function", "names"),
    [
        (["x"], ["u", "v"], lambda x: (x, x + 1), ["u", "v", "y"]),
        (["y"], ["u", "v"], lambda y: (y, y + 1), ["u", "v", "x"]),
        (["y", "x"], ["u"], lambda y, x: y + x, ["u"]),
        (["y", "x"], ["u", "v"], lambda y, x: (y, x), ["v", "u"]),
        (["y", "x"], None, lambda y, x: (y, x), ["x", "y"]),
        (["y"], ["w"], lambda y: y, ["x", "w"]),
        (["y", "x"], ["y", "x", "z"], lambda y, x: (y, x, x), ["y", "x", "z"]),
        (["y", "x"], ["y"], lambda y, x: y, ["y"]),
    ],
)
def test_names_of_columns_after_a_map(inputs, outputs, function, names):
    data = two().map(function, inputs, outputs)
    assert data.get_col_names() == names
    assert sorted(next(data.create_dict_iterator(num_epochs=1))) == sorted(names)


def test_a_map_of_functions_and_transforms():
    steps = [lambda x: (x, x * 10), lambda x, tens: x + tens, CT.TypeCast(mstype.float32), lambda x: x / 2]
    data = one().map(steps, ["x"])
    assert items(data) == [0.0, 5.5, 11.0, 16.5]
    assert data.output_types() == [np.float32]
    assert data.output_shapes() == [[]]
    ordered = two().map(lambda x: -x, "x", column_order=["y", "x"])
    assert ordered.get_col_names() == ["y", "x"]
    assert next(ordered.skip(1).create_tuple_iterator(output_numpy=True)) == [1, -1]


@table(
    ("make", "expected"),
    [
        (lambda: one().batch(2).map(lambda x: x.sum(), "x"), [1, 5]),
        (lambda: one().batch(2).batch(2), [[[0, 1], [2, 3]]]),
        (lambda: one().batch(3).map(lambda x: x * 2, "x").repeat(2), [[0, 2, 4], [6]] * 2),
        (lambda: one().repeat(2).batch(3), [[0, 1, 2], [3, 0, 1], [2, 3]]),
        (lambda: one().map(lambda x: x + 1, "x").repeat(2).batch(8), [[1, 2, 3, 4] * 2]),
        (lambda: one().filter(lambda x: x % 2 == 1, ["x"]), [1, 3]),
        (lambda: one().filter(lambda x: x != 0).batch(2), [[1, 2], [3]]),
        (lambda: one().batch(2).filter(lambda x: x.sum() > 1), [[2, 3]]),
        (lambda: one().skip(1).take(2), [1, 2]),
        (lambda: one().take(-1).take(9), [0, 1, 2, 3]),
        (lambda: one().batch(2).skip(1), [[2, 3]]),
        (lambda: one() + one("x", 2), [0, 1, 2, 3, 0, 1]),
        (lambda: one().concat([one("x", 1), one("x", 2)]), [0, 1, 2, 3, 0, 0, 1]),
        (lambda: one("x", 3).flat_map(lambda row: one("z", int(row[0]) + 1)), [0, 0, 1, 0, 1, 2]),
        (lambda: one().apply(lambda data: data.batch(4)), [[0, 1, 2, 3]]),
        (lambda: one().batch(lambda info: info.get_batch_num() + 1), [[0], [1, 2], [3]]),
        (lambda: one().batch(lambda info: info.get_batch_num() + 1, drop_remainder=True), [[0], [1, 2]]),
        (lambda: one() + ds.PaddedDataset([{"x": np.array(7)}]), [0, 1, 2, 3, 7]),
        (lambda: one().use_sampler(ds.SubsetSampler([3, 0])), [3, 0]),
        (
            lambda: one().batch(2, per_batch_map=lambda x, info: ([v * 10 + info.get_batch_num() for v in x],)),
            [[0, 10], [21, 31]],
        ),
        (
            lambda: ragged().batch(2, pad_info={"t": ([None], -1)}).take(2),
            [[[0, -1, -1, -1], [0, 1, 2, 3]], [[0, 1, -1, -1, -1, -1], [0, 1, 2, 3, 4, 5]]],
        ),
        (lambda: ragged().batch(2, pad_info={"t": ([3], 9)}).take(1), [[[0, 9, 9], [0, 1, 2]]]),
        (
            lambda: ragged().bucket_batch_by_length(["t"], [3, 5], [2, 2, 1], None, {"t": ([None], -1)}),
            [[[0, -1], [0, 1]], [[0, 1, 2, 3, 4, 5]], [[0, 1, 2, 3], [0, 1, 2, -1]], [[0, 1, 2, 3, 4]], [[0, 1]]],
        ),
    ],
)
def test_values(make, expected):
    data = make()
    assert items(data) == expected
    assert data.get_dataset_size() == len(expected)
    assert [arrays[0].tolist() for arrays in data.read(3)] == expected  # the same in a later epoch


def test_a_batch_map_with_other_columns():
    data = one().batch(
        2, per_batch_map=lambda x, _: ([10 * v for v in x], list(x)), input_columns=["x"], output_columns=["p", "q"]
    )
    found = [[item["p"].tolist(), item["q"].tolist()] for item in data.create_dict_iterator(1, output_numpy=True)]
    assert found == [[[0, 10], [0, 1]], [[20, 30], [2, 3]]]
    assert data.get_batch_size() == 2


def test_zip_ends_with_the_shortest():
    data = ds.zip((one("x", 7).batch(2), one("y", 3)))
    found = [(x.tolist(), y.item()) for x, y in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]
    assert found == [([0, 1], 0), ([2, 3], 1), ([4, 5], 2)]
    assert one().zip(one("y")).get_col_names() == ["x", "y"]


@table(
    ("sizes", "expected"),
    [
        ([0.5, 0.25, 0.25], [6, 2, 2]),
        ([3, 4, 3], [3, 4, 3]),
        ([0.33, 0.33, 0.34], [4, 3, 3]),
        ([0.9, 0.1], [9, 1]),
    ],
)
def test_split(sizes, expected):
    parts = one("x", 10).split(sizes, randomize=False)
    assert [value for part in parts for value in items(part)] == list(range(10))
    assert [part.get_dataset_size() for part in parts] == expected
    mixed = one("x", 10).split(sizes)
    assert sorted(value for part in mixed for value in items(part)) == list(range(10))
    assert [part.order(0).tolist() for part in mixed] == [part.order(5).tolist() for part in mixed]


def test_types_that_scripts_and_networks_see():
    data = ds.GeneratorDataset([(1, 0.1), (2, 0.2)], ["n", "x"])
    assert data.output_types() == [np.int64, np.float64]
    assert [str(kind) for kind in data.column_types()] == ["Int32[]", "Float32[]"]
    item = next(data.create_dict_iterator())
    assert isinstance(item["x"], Tensor)
    assert (item["n"].dtype, item["x"].dtype, item["x"].asnumpy()) == (mstype.int64, mstype.float64, 0.1)
    doubled = data.map(lambda x: x * 2, "x").batch(2)
    assert doubled.output_types() == [np.int64, np.float64]
    assert [array.dtype for array in next(doubled.read(0))] == [np.int32, np.float32]
    assert next(doubled.create_tuple_iterator(columns="x", output_numpy=True))[0].tolist() == [0.2, 0.4]


def test_an_endless_repeat_has_no_end():
    iterator = one("x", 2).repeat().create_tuple_iterator(num_epochs=1, output_numpy=True)
    assert [next(iterator)[0].item() for _ in range(5)] == [0, 1, 0, 1, 0]
    assert one("x", 2).repeat(-1).get_dataset_size() == 2


class Jitter:
    """A function of a script that calls a random transform, as MindSpore's tutorials do."""

    def __init__(self):
        import runner.dataset.vision.c_transforms as CV

        self.crop = CV.RandomCrop(2)

    def __call__(self, image):
        return self.crop(image)


def test_random_functions_are_exact_wherever_an_epoch_is_read_from():
    images = np.arange(5 * 36, dtype=np.uint8).reshape(5, 6, 6, 1)

    def make(workers):
        data = ds.NumpySlicesDataset({"image": images, "n": np.arange(5)})
        data = data.map([Jitter()], "image", num_parallel_workers=workers).shuffle(5)
        return data.batch(2).map(lambda x: x[..., 0], "image", num_parallel_workers=workers)

    whole = [[array.tolist() for array in batch] for batch in make(1).read(2)]
    for workers in (1, 4):
        for start in range(3):
            assert [[array.tolist() for array in batch] for batch in make(workers).read(2, start)] == whole[start:]
    assert whole != [[array.tolist() for array in batch] for batch in make(1).read(3)]
    ds.config.set_seed(8)
    assert whole != [[array.tolist() for array in batch] for batch in make(1).read(2)]


@table(
    ("make", "what"),
    [
        (lambda: one().map(lambda x: (x, x), "x").read(0), "a function returned another number of columns"),
        (lambda: one().filter(lambda x: False), "no items are left"),
        (lambda: one().skip(4), "no items are left"),
        (lambda: one().split([2, 1]), "the sizes have another sum than the dataset"),
        (lambda: one().split([0.1, 0.9]), "a share is too small for the dataset"),
        (lambda: ds.zip((one(), one())), "columns of the same name"),
        (lambda: one() + one("y"), "concat needs datasets with the same columns"),
        (lambda: one().map(lambda x: x, "x", cache=3), "an argument of MindSpore that runner does not have"),
        (lambda: two().map(lambda x: x, "x", "y"), "not names of columns"),
        (lambda: one().batch(2, pad_info={"z": ([3], 0)}), "no such column"),
        (lambda: one().apply(lambda data: 3), "not a dataset"),
        (lambda: ragged().bucket_batch_by_length(["t"], [3, 3], [1, 1, 1]), "not boundaries"),
        (lambda: ragged().bucket_batch_by_length(["t"], [3], [1]), "another number of batch sizes than of buckets"),
        (lambda: one().create_tuple_iterator(columns="z"), "no such column"),
        (lambda: one().filter(3), "not a function"),
    ],
)
def test_errors(make, what):
    with pytest.raises(ConfigError) as caught:
        list(make())
    assert caught.value.what == what


def test_a_filter_that_changes_between_passes_is_an_error():
    calls = []
    data = one().filter(lambda x: calls.append(x) or len(calls) <= 6, ["x"])
    with pytest.raises(ConfigError, match="the number of items differs between passes"):
        list(data.read(1))


def test_what_a_function_raises_is_raised_by_the_reader():
    data = one().map(lambda x: 1 // int(x), "x", num_parallel_workers=3)
    with pytest.raises(ZeroDivisionError):
        list(data.read(0))
