"""Datasets of MindSpore that read files: folders of classes, CIFAR-100, CSV and text."""

import io
import struct

import numpy as np
import pytest
from tables import table

import runner.dataset as ds
import runner.dataset.vision.c_transforms as CV
from runner.errors import ConfigError, DataError

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def folder(tmp_path):
    """Two classes with images of different sizes; image k is full of the number 10 * k."""
    for number, (name, width) in enumerate([("dog/b", 5), ("cat/a", 4), ("cat/z", 6)]):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((3, width, 3), 10 * number, np.uint8)).save(path)
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    return tmp_path


def values(data, name):
    return [item[name] for item in data.create_dict_iterator(num_epochs=1, output_numpy=True)]


def test_images_in_folders(folder):
    data = ds.ImageFolderDataset(str(folder), shuffle=False)
    encoded = values(data, "image")
    assert [array.dtype for array in encoded] == [np.uint8] * 3
    assert np.asarray(Image.open(io.BytesIO(encoded[0].tobytes()))).shape == (3, 4, 3)
    assert [label.item() for label in values(data, "label")] == [0, 0, 1]
    assert data.output_types()[1] == np.int32
    assert data.get_class_indexing() == {"cat": 0, "dog": 1}
    assert data.num_classes() == 2
    decoded = ds.ImageFolderDataset(folder, decode=True, shuffle=False)
    assert [image.shape for image in values(decoded, "image")] == [(3, 4, 3), (3, 6, 3), (3, 5, 3)]
    assert [image[0, 0, 0] for image in values(decoded, "image")] == [10, 20, 0]


def test_the_reference_s_training_pipeline(folder):
    steps = [CV.Decode(), CV.Resize((2, 2)), CV.Rescale(0.1, 0.0), CV.HWC2CHW()]
    data = ds.ImageFolderDataset(folder, num_parallel_workers=4).map(steps, "image").batch(3)
    ((image, label),) = data.read(0)
    assert [str(kind) for kind in data.column_types()] == ["Float32[3, 3, 2, 2]", "Int32[3]"]
    assert sorted(zip(image[:, 0, 0, 0].round().tolist(), label.tolist(), strict=True)) == [(0, 1), (1, 0), (2, 0)]
    assert sorted(data.order(0).tolist()) == [0, 1, 2]
    orders = {tuple(ds.ImageFolderDataset(folder).order(epoch)) for epoch in range(30)}
    assert len(orders) > 1  # at random, as in MindSpore


def test_choices_of_classes_and_files(folder):
    only = ds.ImageFolderDataset(folder, class_indexing={"dog": 7}, shuffle=False)
    assert [label.item() for label in values(only, "label")] == [7]
    assert ds.ImageFolderDataset(folder, num_samples=2).get_dataset_size() == 2
    assert ds.ImageFolderDataset(folder, sampler=[2]).get_dataset_size() == 1
    assert ds.ImageFolderDataset(folder, num_shards=2, shard_id=1).get_dataset_size() == 1
    for arguments in ({"extensions": [".gif"]}, {"class_indexing": {"bird": 0}}):
        with pytest.raises(DataError):
            ds.ImageFolderDataset(folder, **arguments)
    with pytest.raises(DataError):
        ds.ImageFolderDataset(folder / "nothing")


def test_cifar_100(tmp_path):
    pixels = np.arange(3072).astype(np.uint8)
    record = struct.pack("BB", 3, 77) + pixels.tobytes()
    (tmp_path / "train.bin").write_bytes(record * 2)
    data = ds.Cifar100Dataset(tmp_path, usage="train")
    assert data.get_col_names() == ["image", "coarse_label", "fine_label"]
    assert data.output_types() == [np.uint8, np.uint32, np.uint32]
    image, coarse, fine = next(data.create_tuple_iterator(output_numpy=True))
    assert (coarse.item(), fine.item()) == (3, 77)
    np.testing.assert_array_equal(image, pixels.reshape(3, 32, 32).transpose(1, 2, 0))
    for content in (record[:-1], struct.pack("BB", 20, 0) + pixels.tobytes()):
        (tmp_path / "train.bin").write_bytes(content)
        with pytest.raises(DataError):
            ds.Cifar100Dataset(tmp_path)
    with pytest.raises(DataError, match="missing"):
        ds.Cifar100Dataset(tmp_path, "test")


@table(
    ("content", "arguments", "expected"),
    [
        ("a,b\n1,2.5\n3,x\n", {}, [[b"1", b"2.5"], [b"3", b"x"]]),
        ("1,2.5\n3,4\n", {"column_defaults": [1, 2.0], "column_names": ["p", "q"]}, [[1, 2.5], [3, 4.0]]),
        ("1;\n3;4\n", {"column_defaults": [1, 9], "column_names": ["p", "q"], "field_delim": ";"}, [[1, 9], [3, 4]]),
        ('"1,0",2\n', {"column_names": ["p", "q"]}, [[b"1,0", b"2"]]),
        ('"1\n0",2\n', {"column_names": ["p", "q"], "field_delim": None}, [[b"1\n0", b"2"]]),
    ],
)
def test_csv(tmp_path_factory, content, arguments, expected):
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_text(content)
    data = ds.CSVDataset(str(path), shuffle=False, **arguments)
    found = [[value.item() for value in item] for item in data.create_tuple_iterator(num_epochs=1, output_numpy=True)]
    assert found == expected


@table(
    ("content", "arguments", "error", "what"),
    [
        ("1,2\n3\n", {"column_names": ["p", "q"]}, DataError, "a row with another number of fields"),
        ("x\n", {"column_names": ["p"], "column_defaults": [1]}, DataError, "not a number"),
        ("a\n", {}, DataError, "CSV files without rows"),
        ("1\n", {"column_names": ["p"], "column_defaults": [1, 2]}, ConfigError, "column_defaults needs a value"),
        ("1\n", {"shuffle": 3}, ConfigError, "not a way to shuffle"),
    ],
)
def test_csv_errors(tmp_path_factory, content, arguments, error, what):
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_text(content)
    with pytest.raises(error, match=what):
        ds.CSVDataset([str(path)], **arguments)


def test_lines_of_text(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo words\r\n")
    (tmp_path / "b.txt").write_text("three")
    data = ds.TextFileDataset(str(tmp_path / "*.txt"), shuffle=ds.Shuffle.FILES)
    assert [text.item() for text in values(data, "text")] == [b"one", b"two words", b"three"]
    lengths = data.map(lambda text: len(text.item()), "text", "length").batch(3)
    assert next(lengths.read(0))[0].tolist() == [3, 9, 5]
    with pytest.raises(ConfigError, match="a column has values that are not numbers"):
        list(data.batch(2).read(0))
    with pytest.raises(DataError, match="a data file is missing"):
        ds.TextFileDataset(str(tmp_path / "c.txt"))
