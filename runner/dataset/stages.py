"""The operators of a data pipeline with their costs, as listed in a profile."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from runner.dataset.order import Batched, DerivedOrder, Order, Part, Repeated, Sharded, Shuffled, VariedBatches
from runner.dataset.pipeline import Dataset
from runner.dataset.prefetch import AHEAD_PER_WORKER
from runner.dataset.samplers import Sampled
from runner.dataset.samples import SampleColumn, Samples
from runner.dataset.visits import Visits

REPEATS = 5


class Stage(NamedTuple):
    """One operator of a pipeline: MindSpore's type, a description, and its number of threads.

    `queue` is the capacity of its output queue (None: no queue), `microseconds` its time for one batch when nothing
    else runs (None: it only determines the order of rows).
    """

    kind: str
    detail: str
    workers: int
    queue: int | None
    microseconds: float | None


def stages(dataset: Dataset) -> list[Stage]:
    """The operators, from the output to the source: each consumes the output of the next one in the list."""
    threads = dataset.threads
    orders = list(_orders(dataset._order))
    ordering = [Stage(kind, detail, max(1, threads), None, None) for kind, detail in orders]
    if ordering and threads:
        ordering[0] = ordering[0]._replace(queue=AHEAD_PER_WORKER * threads)
    last = [stage for stage in ordering if stage.kind == "Batch"]
    rest = [stage for stage in ordering if stage.kind != "Batch"]
    maps = [Stage("Map", detail, max(1, threads), None, microseconds) for detail, microseconds in _transforms(dataset)]
    return [*last, *maps, *rest, _source(dataset, max(1, threads))]


def _orders(order: Order) -> Iterator[tuple[str, str]]:
    while isinstance(order, DerivedOrder):
        if isinstance(order, Batched):
            yield "Batch", f"batches of {order.batch_size}"
        elif isinstance(order, Repeated):
            yield "Repeat", f"{order.times} times"
        elif isinstance(order, Shuffled):
            yield "Shuffle", f"a buffer of {order.buffer_size}"
        elif isinstance(order, VariedBatches):
            yield "Batch", f"batches of up to {order.batch_size}"
        elif isinstance(order, Part):
            yield ("Skip" if order.start else "Take"), f"items {order.start} to {order.stop - 1}"
        elif isinstance(order, Sampled):
            yield type(order.sampler).__name__, f"{order.count} items"
        elif isinstance(order, Sharded):
            yield "DistributedSampler", f"shard {order.shard_id} of {order.num_shards}"
        order = order.inner


def _transforms(dataset: Dataset) -> Iterator[tuple[str, float]]:
    """The transforms that run for every batch, with their microseconds: per column, the last one first."""
    visits = _first_batch(dataset)
    computed = dict.fromkeys(c.source.samples for c in dataset._columns if isinstance(c.source, SampleColumn))
    for samples in computed:
        items = visits.passes * samples.count + visits.rows
        yield f"{', '.join(samples.names)}: {samples}", _median_time(partial(_computed, samples, items))
    for column in dataset._columns:
        if isinstance(column.source, SampleColumn):
            continue
        batch = column.compact.take(visits.rows, axis=0)
        timed = []
        for transform in column.remaining:
            timed.append((f"{column.name}: {transform}", _median_time(partial(transform.apply, batch, visits))))
            batch = transform.apply(batch, visits)
        yield from reversed(timed)


def _computed(samples: Samples, visits: np.ndarray) -> list[object]:
    return [samples.at(int(visit)) for visit in visits]


def _source(dataset: Dataset, workers: int) -> Stage:
    visits = _first_batch(dataset)
    stored = [column.compact for column in dataset._columns if not isinstance(column.source, SampleColumn)]
    microseconds = _median_time(lambda: [values.take(visits.rows, axis=0) for values in stored])
    rows = len(dataset._columns[0].source)
    return Stage("Generator", f"{rows} rows of {', '.join(dataset.get_col_names())}", workers, None, microseconds)


def _first_batch(dataset: Dataset) -> Visits:
    visits = np.atleast_1d(dataset.visits(0)[0])
    return Visits.of(visits, len(dataset._columns[0].source))


def _median_time(work: Callable[[], Any]) -> float:
    """Microseconds of a call, the median of `REPEATS`."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return sorted(times)[REPEATS // 2]
