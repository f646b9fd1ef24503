"""What networks are built from: only the facts that exist, and without transforming the data."""

import numpy as np
import pytest
from tables import table

import runner.dataset as ds
import runner.dataset.transforms.c_transforms as CT
import runner.dataset.vision.c_transforms as CV
from runner import dtype as dt
from runner.dataset.batches import facts_of, open_dataset
from runner.dataset.transforms.transform import Transform


class Never(Transform):
    """A transform that must not be applied."""

    def infer(self, sample):
        return sample

    def __call__(self, batch):
        raise AssertionError("transformed")


def slices(**columns: object) -> ds.Dataset:
    return ds.NumpySlicesDataset({name: np.asarray(values) for name, values in columns.items()})


@table(
    ("data", "expected"),
    [
        (slices(x=np.zeros((3, 5)), y=[0, 2, 1]), {"num_classes": 3, "input_shape": (5,), "num_features": 5}),
        (slices(x=np.zeros((3, 5)), y=np.array([0, 6, 1], np.uint8)), {"num_classes": 7, "input_shape": (5,)}),
        (slices(x=np.zeros((3, 5)), y=[0.5, 1.0, 2.0]), {"input_shape": (5,), "num_features": 5}),
        (slices(x=np.zeros((3, 5)), y=[True, False, True]), {"input_shape": (5,), "num_features": 5}),
        (slices(x=np.zeros((3, 5)), y=[-1, 0, 1]), {"input_shape": (5,), "num_features": 5}),
        (slices(x=np.zeros((3, 5)), y=[[0, 1], [1, 1], [0, 0]]), {"input_shape": (5,), "num_features": 5}),
        (slices(x=[1.0, 2.0], y=[0, 1]), {"num_classes": 2, "input_shape": ()}),
        (slices(x=[[1, 2], [3, 9]]), {"input_shape": (2,), "num_features": 2}),
        (slices(x=[1, 2]), {"input_shape": ()}),
        (
            slices(x=np.zeros((2, 3, 8, 8)), n=[5, 9], y=[0, 1]),
            {"num_classes": 2, "num_channels": 3, "image_size": 8, "input_shape": (3, 8, 8)},
        ),
        (
            slices(x=np.zeros((2, 3, 8, 6)), y=[0.5, 1.5]),
            {"num_channels": 3, "input_shape": (3, 8, 6)},
        ),
        (slices(x=np.zeros((2, 4, 8), np.int32), y=[0, 1]), {"num_classes": 2, "input_shape": (4, 8)}),
        (slices(x=[1, 2], y=[[0.0, 1.0, 0.0], [0.5, 0.2, 0.3]]), {"num_classes": 3, "input_shape": ()}),
        (slices(x=[1, 2], y=[[0.0, 1.0, 0.0], [0.5, 0.2, 0.2]]), {"input_shape": ()}),
        (slices(x=[1, 2], y=[[-1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]), {"input_shape": ()}),
        (slices(x=[1, 2], y=[[0, 1, 0], [1, 0, 0]]), {"input_shape": ()}),
        (slices(x=[1, 2], y=[[1.0], [1.0]]), {"input_shape": ()}),
    ],
)
def test_only_what_exists(data, expected):
    if "num_classes" in expected and expected["num_classes"] == 7:
        expected = {**expected, "num_features": 5}
    for pipeline in (data, data.shuffle(2).batch(2)):
        assert facts_of(pipeline) == expected


def test_stated_classes():
    data = slices(x=np.zeros((3, 5)), y=[0, 2, 1])
    data.class_names = ("cat", "dog", "cow", "owl")
    assert facts_of(data)["num_classes"] == 4
    data.num_classes = 9
    assert facts_of(data)["num_classes"] == 9
    data.class_names, data.num_classes = None, None
    assert facts_of(data)["num_classes"] == 3


def test_transforms_are_inferred_and_not_applied():
    images, labels = np.zeros((6, 8, 8, 3), np.uint8), np.arange(6)
    data = ds.NumpySlicesDataset({"image": images, "label": labels})
    mapped = data.map([Never(), CV.HWC2CHW()], "image")
    assert facts_of(mapped) == {"num_classes": 6, "num_channels": 3, "image_size": 8, "input_shape": (3, 8, 8)}
    assert facts_of(mapped.map(CT.TypeCast(dt.int8), "label"))["num_classes"] == 6
    assert facts_of(mapped.map([CT.OneHot(11), CT.TypeCast(dt.float32)], "label"))["num_classes"] == 11
    for steps in ([Never()], [CT.TypeCast(dt.float32)]):
        assert "num_classes" not in facts_of(mapped.map(steps, "label"))
    assert facts_of(data.project(["label", "image"]))["input_shape"] == ()


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_the_datasets_of_runner(name):
    data = open_dataset(name, train=True, image_size=12)
    channels = data.column_types()[0].shape[1]
    assert facts_of(data) == {
        "num_classes": 10,
        "num_channels": channels,
        "image_size": 12,
        "input_shape": (channels, 12, 12),
    }
