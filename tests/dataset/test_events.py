"""Callbacks of `map`, `sync_wait`, and samplers that a dataset uses from then on; sequences of MindSpore r1.2."""

import numpy as np
import pytest
from runner.dataset.callback import DSCallback, WaitedDSCallback

import runner
import runner.dataset as ds
from runner import nn
from runner.errors import ConfigError
from runner.train.callback import Callback


class Recorder(DSCallback):
    def __init__(self, step_size: int = 1) -> None:
        super().__init__(step_size)
        self.events: list[tuple[str, int, int, int]] = []

    def _record(self, name, at):
        self.events.append((name, at.cur_epoch_num, at.cur_step_num_in_epoch, at.cur_step_num))

    def ds_begin(self, ds_run_context):
        self._record("begin", ds_run_context)

    def ds_epoch_begin(self, ds_run_context):
        self._record("epoch_begin", ds_run_context)

    def ds_epoch_end(self, ds_run_context):
        self._record("epoch_end", ds_run_context)

    def ds_step_begin(self, ds_run_context):
        self._record("step_begin", ds_run_context)

    def ds_step_end(self, ds_run_context):
        self._record("step_end", ds_run_context)


def expected_events(epochs, rows, step_size):
    events = [("begin", 0, 0, 0)]
    for epoch in range(epochs):
        events.append(("epoch_begin", epoch + 1, 0, epoch * rows))
        for row in range(0, rows, step_size):
            events += [(name, epoch + 1, row + 1, epoch * rows + row + 1) for name in ("step_begin", "step_end")]
        events.append(("epoch_end", epoch + 1, rows, (epoch + 1) * rows))
    return events


@pytest.mark.parametrize(("epochs", "repeats", "step_size", "batch"), [(1, 1, 1, 1), (3, 1, 2, 2), (2, 3, 4, 1)])
def test_events_of_rows(epochs, repeats, step_size, batch):
    recorder = Recorder(step_size)
    data = ds.NumpySlicesDataset([1, 2, 3, 4], shuffle=False).map(lambda x: x, callbacks=recorder)
    data = data.batch(batch).repeat(repeats)
    iterator = data.create_tuple_iterator(num_epochs=epochs)
    for _ in range(epochs):
        list(iterator)
    assert recorder.events == expected_events(epochs, 4 * repeats, step_size)


def test_what_is_no_callback():
    class Silent(DSCallback):
        pass

    data = ds.NumpySlicesDataset([1])
    with pytest.raises(TypeError, match=r"callbacks\[1\]"):
        data.map(lambda x: x, callbacks=[Recorder(), 0])
    with pytest.raises(ConfigError, match="overrides no event"):
        data.map(lambda x: x, callbacks=Silent())


class Waited(WaitedDSCallback):
    def __init__(self, events, step_size):
        super().__init__(step_size)
        self.events = events

    def sync_epoch_begin(self, train_run_context, ds_run_context):
        self.events.append(("ds epoch", ds_run_context.cur_epoch_num, ds_run_context.cur_step_num))

    def sync_step_begin(self, train_run_context, ds_run_context):
        done = train_run_context.original_args().cur_step_num
        self.events.append(("ds step", ds_run_context.cur_epoch_num, ds_run_context.cur_step_num, done))


class Steps(Callback):
    def __init__(self, events):
        self.events = events

    def step_end(self, run_context):
        self.events.append(("step", run_context.original_args().cur_step_num))


class Identity(nn.Cell):
    def construct(self, x, y):
        return x


def trained(batch, step_size, mode, first_step=0):
    runner.context.set_context(mode=mode)
    events = []
    waited = Waited(events, step_size)
    data = ds.NumpySlicesDataset(([1.0, 2.0, 3.0, 4.0], [0, 0, 0, 0]), ["x", "y"], shuffle=False)
    data = data.map(lambda x: x, callbacks=waited).batch(batch)
    callbacks = [Steps(events), waited]
    runner.Model(Identity()).train(2, data, callbacks=callbacks, dataset_sink_mode=False, first_step=first_step)
    return events


@pytest.mark.parametrize("mode", [runner.context.PYNATIVE_MODE, runner.context.GRAPH_MODE])
def test_rows_wait_for_the_training_step_before(mode):
    assert trained(2, 2, mode) == [
        ("step", 1),
        ("ds step", 1, 3, 1),
        ("step", 2),
        ("ds epoch", 2, 4),
        ("ds step", 2, 5, 2),
        ("step", 3),
        ("ds step", 2, 7, 3),
        ("step", 4),
    ]


def test_a_training_that_continues_has_reached_the_epoch_before():
    assert trained(2, 2, runner.context.PYNATIVE_MODE, first_step=2)[-3:] == [
        ("step", 3),
        ("ds step", 2, 3, 3),
        ("step", 4),
    ]


def test_another_step_size_than_the_batch_is_an_error():
    with pytest.raises(ConfigError, match="has not reached the step before"):
        trained(3, 2, runner.context.PYNATIVE_MODE)


def test_updates_come_before_the_items_that_are_requested_later():
    scale = [1]
    data = ds.GeneratorDataset([1, 1, 1, 1, 1], ["x"], shuffle=False, num_parallel_workers=4)
    data = data.sync_wait("policy", callback=lambda made: scale.append(made["scale"]))
    data = data.map(lambda x: x * scale[-1]).batch(2)
    found = []
    for item in data.create_dict_iterator(num_epochs=1, output_numpy=True):
        found.append(item["x"].tolist())
        data.sync_update("policy", data={"scale": 10 * len(found)})
    assert found == [[1, 1], [10, 10], [20]]
    with pytest.raises(RuntimeError, match="no such condition"):
        data.sync_update("police")
    with pytest.raises(RuntimeError, match="in use"):
        data.sync_wait("policy")
    with pytest.raises(RuntimeError, match="reads ahead"):
        data.shuffle(2)


def test_a_dataset_uses_a_sampler_from_then_on():
    data = ds.NumpySlicesDataset(np.arange(7), shuffle=True)
    for shard, rows in enumerate([[0, 3, 6], [1, 4, 0], [2, 5, 1]]):
        data.use_sampler(ds.DistributedSampler(3, shard, shuffle=False))
        assert data.order(0).tolist() == rows
    data.add_sampler(ds.SequentialSampler(1))
    assert data.order(0).tolist() == [5, 1]
    both = ds.NumpySlicesDataset(np.arange(3)) + ds.NumpySlicesDataset(np.arange(3, 5))
    found = []
    for shard in range(3):
        both.use_sampler(ds.DistributedSampler(3, shard, shuffle=False))
        found.append([int(item[0]) for item in both.create_tuple_iterator(num_epochs=1, output_numpy=True)])
    assert found == [[0, 3], [1, 4], [2]]  # every item once
    with pytest.raises(TypeError, match="not a sampler"):
        data.use_sampler(1)


def test_the_number_of_samples_is_that_of_each_shard_and_of_a_sampler():
    def rows(**arguments):
        return ds.NumpySlicesDataset(np.arange(10), num_samples=2, **arguments).order(0).tolist()

    assert rows(num_shards=3, shard_id=1, shuffle=False) == [1, 4]
    assert rows(sampler=[9, 0, 3]) == [9, 0]
    assert rows(sampler=7) == [7]


def test_an_iterator_that_is_stopped():
    iterator = ds.NumpySlicesDataset(np.arange(5)).create_tuple_iterator()
    next(iterator)
    iterator.stop()
    assert list(iterator) == []
