"""Random crops and mirror images: right pixels, right odds, and the same for a sample wherever it is prepared."""

import numpy as np
import pytest
from argument_errors import refused_argument
from tables import table

import runner.dataset as ds
import runner.dataset.vision.c_transforms as CV
from runner import dtype as dt
from runner.dataset.transforms import RandomTransform
from runner.dataset.transforms.c_transforms import TypeCast
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.host import seed
from runner.types import TensorType

HEIGHT, WIDTH, CHANNELS = 5, 7, 3


def images(count: int = 40, channels: int = CHANNELS) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 256, (count, HEIGHT, WIDTH, channels), dtype=np.uint8)


def visits(count: int = 40, first: int = 0) -> Visits:
    return Visits.of(np.arange(first, first + count), 40)


def places_of(crop: np.ndarray, padded: np.ndarray) -> list[tuple[int, int]]:
    """Where in an image a crop can have come from."""
    height, width = crop.shape[:2]
    rows, columns = padded.shape[0] - height + 1, padded.shape[1] - width + 1
    every = ((y, x) for y in range(rows) for x in range(columns))
    return [(y, x) for y, x in every if np.array_equal(padded[y : y + height, x : x + width], crop)]


@pytest.mark.parametrize(
    ("size", "padding", "borders"),
    [
        ((3, 4), 0, (0, 0, 0, 0)),
        (5, 2, (2, 2, 2, 2)),
        ((5, 7), (1, 3), (1, 1, 3, 3)),
        ((6, 4), (0, 1, 2, 3), (0, 1, 2, 3)),
        ((5, 7), 0, (0, 0, 0, 0)),
        ([4], [1], (1, 1, 1, 1)),
    ],
)
def test_a_crop_is_a_part_of_the_padded_image(size, padding, borders) -> None:
    left, top, right, bottom = borders
    crop = CV.RandomCrop(size, padding)
    made = crop.apply(images(), visits())
    assert made.shape[1:] == crop.infer(TensorType(dt.uint8, (HEIGHT, WIDTH, CHANNELS))).shape
    assert made.dtype == np.uint8
    for image, part in zip(images(), made, strict=True):
        padded = np.pad(image, ((top, bottom), (left, right), (0, 0)))
        assert len(places_of(part, padded)) == 1
    assert not np.shares_memory(made, images())


def test_all_places_are_equally_likely() -> None:
    image = np.arange(HEIGHT * WIDTH, dtype=np.float32).reshape(1, HEIGHT, WIDTH, 1)
    many = np.repeat(image, 6000, axis=0)
    made = CV.RandomCrop((3, 4)).apply(many, Visits.of(np.arange(6000), 6000))
    counts = np.bincount(made[:, 0, 0, 0].astype(int), minlength=HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)
    assert (counts[:3, :4] > 0).all()
    assert counts[3:].sum() + counts[:, 4:].sum() == 0
    statistic = float(((counts[:3, :4] - 500.0) ** 2 / 500.0).sum())  # chi squared, 11 degrees of freedom
    assert statistic < 11 + 6 * 22**0.5


def test_a_mirror_image_is_one() -> None:
    made = CV.RandomHorizontalFlip(0.5).apply(images(), visits())
    mirrored = [np.array_equal(after, before[:, ::-1]) for before, after in zip(images(), made, strict=True)]
    same = [np.array_equal(after, before) for before, after in zip(images(), made, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 8 < sum(mirrored) < 32
    np.testing.assert_array_equal(CV.RandomHorizontalFlip(0.0).apply(images(), visits()), images())
    np.testing.assert_array_equal(CV.RandomHorizontalFlip(1.0).apply(images(), visits()), images()[:, :, ::-1])


@pytest.mark.parametrize("transform", [CV.RandomCrop((4, 5), (0, 1, 2, 3)), CV.RandomHorizontalFlip()])
@pytest.mark.parametrize("channels", [1, 3])
def test_channels_first_is_the_same_picture(transform: RandomTransform, channels: int) -> None:
    given = images(channels=channels)
    kept = given.copy()
    expected = transform.apply(given, visits()).transpose(0, 3, 1, 2)
    turned = transform.channels_first()
    planes = np.ascontiguousarray(given.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(turned.apply(planes, visits()), expected)
    np.testing.assert_array_equal(turned.apply(given.transpose(0, 3, 1, 2), visits()), expected)
    sample = TensorType(dt.uint8, given.shape[1:])
    height, width, depth = transform.infer(sample).shape
    assert turned.infer(sample.with_shape(channels, HEIGHT, WIDTH)).shape == (depth, height, width)
    np.testing.assert_array_equal(given, kept)


def test_places_in_a_chain_draw_differently_and_each_pass_does() -> None:
    flip = CV.RandomHorizontalFlip()
    made = [flip.at_position(place).apply(images(), visits(first=first)) for place in (0, 1) for first in (0, 40, 80)]
    assert len({array.tobytes() for array in made}) == 6
    assert flip.position == 0


def test_called_directly_it_is_the_first_pass() -> None:
    flip = CV.RandomHorizontalFlip()
    np.testing.assert_array_equal(flip(images()), flip.apply(images(), visits()))


def pipeline(batch: int, workers: int = 1, buffer_size: int = 40, **arguments: object) -> ds.Dataset:
    data = ds.NumpySlicesDataset((images(), np.arange(40)), ["image", "number"], **arguments)
    steps = [CV.RandomCrop((HEIGHT, WIDTH), 2), CV.Rescale(1 / 255, 0.0), CV.RandomHorizontalFlip(), CV.HWC2CHW()]
    return data.map(steps, "image", workers).shuffle(buffer_size).batch(batch)


def by_number(data: ds.Dataset, epoch: int) -> dict[int, bytes]:
    parts = (zip(numbers.tolist(), images, strict=True) for images, numbers in data.read(epoch))
    return {number: image.tobytes() for part in parts for number, image in part}


def test_what_a_sample_gets_depends_on_seed_pass_and_row_alone() -> None:
    expected = [by_number(pipeline(8), epoch) for epoch in range(3)]
    for batch, workers, buffer_size in ((1, 1, 40), (7, 3, 2), (40, 2, 17)):
        other = pipeline(batch, workers, buffer_size)
        assert [by_number(other, epoch) for epoch in range(3)] == expected
    shards = [pipeline(4, num_shards=3, shard_id=k) for k in range(3)]
    assert {**by_number(shards[0], 2), **by_number(shards[1], 2), **by_number(shards[2], 2)} == expected[2]
    twice = {bytes_ for image, _ in pipeline(8).repeat(3).read(0) for bytes_ in (part.tobytes() for part in image)}
    assert twice == set(expected[0].values()) | set(expected[1].values()) | set(expected[2].values())
    seed.set_seed(2)
    assert by_number(pipeline(8), 0) != expected[0]


def test_rows_are_the_visits_of_the_first_pass() -> None:
    data = pipeline(8)
    rows = np.array([4, 17, 4])
    first, later = data.fetch(rows), data.fetch(rows + 40)
    assert first[0].tobytes() != later[0].tobytes()
    np.testing.assert_array_equal(first[0][0], first[0][2])
    np.testing.assert_array_equal(first[1], later[1])
    assert data.rows(np.array([[3, 45], [81, 119]])).tolist() == [[3, 5], [1, 39]]


def test_the_whole_chain_by_hand() -> None:
    """Every sample of a batch is found in its image by search, then scaled in float64."""
    data = pipeline(8)
    made, numbers = next(data.read(5))
    assert made.shape == (8, CHANNELS, HEIGHT, WIDTH)
    for image, number in zip(made, numbers, strict=True):
        pixels = np.rint(image.transpose(1, 2, 0) * 255.0).astype(np.uint8)
        np.testing.assert_allclose(image, (pixels / 255.0).transpose(2, 0, 1), rtol=1e-6)
        padded = np.pad(images()[number], ((2, 2), (2, 2), (0, 0)))
        assert len(places_of(pixels, padded)) + len(places_of(pixels[:, ::-1], padded)) == 1


def test_own_random_transforms() -> None:
    class Noise(RandomTransform):
        def infer(self, sample: TensorType) -> TensorType:
            return sample

        def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
            return batch + visits.random(self.position, 1)[0].astype(batch.dtype)

    zeros = ds.NumpySlicesDataset({"x": np.zeros(9, np.int32)})
    data = zeros.map([TypeCast(dt.int64), Noise(), Noise()], "x").batch(9)
    (first,), (second,) = next(data.read(0)), next(data.read(1))
    assert len({*first.tolist(), *second.tolist()}) == 18
    drawn = [Visits.of(np.arange(9), 9).random(place, 1)[0].astype(np.int64) for place in (0, 1)]
    np.testing.assert_array_equal(first, drawn[0] + drawn[1])


@table(
    ("make", "argument", "value"),
    [
        (lambda: CV.RandomCrop(0), "size", "0"),
        (lambda: CV.RandomCrop((4, 4, 4)), "size", "(4, 4, 4)"),
        (lambda: CV.RandomCrop(1.5), "size", "1.5"),
        (lambda: CV.RandomCrop(4, -1), "padding", "-1"),
        (lambda: CV.RandomCrop(4, (1, 2, 3)), "padding", "(1, 2, 3)"),
        (lambda: CV.RandomCrop(4, ()), "padding", "()"),
        (lambda: CV.RandomCrop(4, "1"), "padding", "'1'"),
        (lambda: CV.RandomHorizontalFlip(1.5), "prob", "1.5"),
        (lambda: CV.RandomHorizontalFlip(-0.1), "prob", "-0.1"),
        (lambda: CV.RandomHorizontalFlip("often"), "prob", "'often'"),
        (lambda: CV.RandomHorizontalFlip(float("nan")), "prob", "nan"),
    ],
)
def test_arguments_are_checked(make: object, argument: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert refused_argument(caught.value) == (argument, value)


def test_a_crop_that_does_not_fit_says_what_would() -> None:
    data = ds.NumpySlicesDataset((images(),), ["image"])
    with pytest.raises(ConfigError) as caught:
        data.map(CV.RandomCrop((9, 12), 2), "image")
    assert caught.value.rows == {
        "argument": "size",
        "value": "width 12",
        "allowed": "1 to 11 (7 and 4 of padding)",
        "column": "image",
        "operation": "RandomCrop((9, 12), (2, 2, 2, 2))",
    }
    with pytest.raises(ConfigError) as caught:
        CV.RandomHorizontalFlip().infer(TensorType(dt.uint8, (4, 4)))
    assert "images [height, width, channels]" in str(caught.value)
