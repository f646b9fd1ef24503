"""The arranged chain gives what the written one gives, at less cost."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from runner import dtype as dt
from runner.dataset import column
from runner.dataset.column import Column
from runner.dataset.transforms import Affine, RandomTransform, Transform
from runner.dataset.transforms.c_transforms import OneHot, TypeCast
from runner.dataset.vision.c_transforms import HWC2CHW, Normalize, RandomCrop, RandomHorizontalFlip, Rescale, Resize
from runner.dataset.visits import Visits
from runner.errors import ConfigError

SCALINGS = [Rescale(1 / 255, 0.0), Rescale(1 / 0.3081, -0.1307 / 0.3081), Normalize([0.5, 0.4, 0.3], [0.2, 0.2, 0.3])]
ROWS = np.array([3, 0, 3, 5])
VISITS = Visits(ROWS, np.array([0, 0, 1, 7]))


def images(channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (6, 5, 7, channels), dtype=np.uint8)


def one_by_one(values: np.ndarray, transforms: list[Transform]) -> np.ndarray:
    place = 0
    for transform in transforms:
        if isinstance(transform, RandomTransform):
            transform = transform.at_position(place)
            place += 1
        values = transform.apply(values, VISITS)
    return values


RANDOM = [RandomCrop((4, 5), 1), RandomHorizontalFlip(0.5)]


@settings(max_examples=100)
@given(st.lists(st.sampled_from([*SCALINGS, *RANDOM, Resize((6, 6))]), max_size=5), st.booleans())
def test_arranged_chain_equals_the_written_one(steps: list[Transform], channels_first: bool) -> None:
    chain = [*steps, HWC2CHW()] if channels_first else steps
    made = Column("image", images(), tuple(chain)).fetch(VISITS)
    expected = one_by_one(images()[ROWS], chain)
    assert made.dtype == expected.dtype
    np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6 * max(1.0, float(np.abs(expected).max())))


def test_bytes_are_resized_and_turned_once_and_scaled_per_batch() -> None:
    made = Column("image", images(), (Resize((4, 4)), *SCALINGS, HWC2CHW()))
    assert made.compact.shape == (6, 3, 4, 4)
    assert made.compact.dtype == np.uint8
    assert not made.compact.flags.writeable
    (only,) = made.remaining
    assert isinstance(only, Affine)
    assert only.scale.shape == (3, 1, 1)
    assert str(made.sample) == "Float32[3, 4, 4]"


def test_random_steps_work_on_bytes_in_the_layout_of_the_network() -> None:
    made = Column("image", images(), (Resize((6, 6)), RandomCrop(6, 1), *SCALINGS, RandomHorizontalFlip(), HWC2CHW()))
    assert made.compact.shape == (6, 3, 6, 6)
    crop, scaling, flip = made.remaining
    assert [type(step) for step in (crop, scaling, flip)] == [RandomCrop, Affine, RandomHorizontalFlip]
    assert (crop.position, crop.row_axis, flip.position, flip.row_axis) == (0, 1, 1, 1)


def test_joining_stops_where_a_byte_would_notice() -> None:
    apart = [Rescale(1.0, 3e7), Rescale(1.0, -3e7)]  # float32 loses the byte in between; a joined step would not
    made = Column("image", images(), tuple(apart))
    assert len(made.remaining) == 2
    np.testing.assert_array_equal(made.fetch(VISITS), one_by_one(images()[ROWS], apart))


def test_floats_are_never_joined() -> None:
    values = images().astype(np.float64)
    assert len(Column("image", values, (SCALINGS[0], SCALINGS[1])).remaining) == 2


def test_a_column_that_grows_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column, "CACHED_BYTES", 6 * 8 * 8 * 3)
    kept = Column("image", images(), (Resize((8, 8)),))
    assert kept.remaining == ()
    monkeypatch.setattr(column, "CACHED_BYTES", 6 * 8 * 8 * 3 - 1)
    per_batch = Column("image", images(), (Resize((8, 8)),))
    assert len(per_batch.remaining) == 1
    assert np.shares_memory(per_batch.compact, per_batch.source)
    np.testing.assert_array_equal(per_batch.fetch(VISITS), kept.fetch(VISITS))


def test_a_cast_to_the_same_type_costs_nothing() -> None:
    labels = np.arange(6, dtype=np.int32)
    made = Column("label", labels, (TypeCast(dt.int32),))
    assert made.remaining == ()
    assert np.shares_memory(made.compact, labels)


def test_one_hot_labels() -> None:
    made = Column("label", np.arange(6, dtype=np.int32), (OneHot(6),))
    np.testing.assert_array_equal(made.fetch(VISITS), np.eye(6)[ROWS])


def test_errors_name_column_and_operation() -> None:
    with pytest.raises(ConfigError) as caught:
        Column("label", np.arange(6, dtype=np.int32), (HWC2CHW(),))
    assert caught.value.rows["column"] == "label"
    assert caught.value.rows["operation"] == "HWC2CHW()"
    assert caught.value.rows["sample"] == "Int32[]"


def test_own_transforms() -> None:
    class Mirror(Transform):
        def infer(self, sample):
            return sample

        def __call__(self, batch):
            return batch[:, :, ::-1]

    made = Column("image", images(), (Mirror(), HWC2CHW()))
    np.testing.assert_array_equal(made.fetch(VISITS), images()[ROWS][:, :, ::-1].transpose(0, 3, 1, 2))
