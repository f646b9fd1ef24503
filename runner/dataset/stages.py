"""The operators of a pipeline as a list, as a profile of the data shows them."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from runner.dataset.order import Batched, DerivedOrder, Order, Repeated, Sharded, Shuffled
from runner.dataset.pipeline import Dataset
from runner.dataset.prefetch import AHEAD_PER_WORKER
from runner.dataset.visits import Visits

REPEATS = 5


class Stage(NamedTuple):
    """One operator of a pipeline: the reference's type, what it does, and its threads.

    `queue` is how many results may wait (None: it has no queue), `microseconds` what it takes for one batch when it
    works alone (None: it only puts rows in order).
    """

    kind: str
    what: str
    workers: int
    queue: int | None
    microseconds: float | None


def stages(dataset: Dataset) -> list[Stage]:
    """The operators, the last one first: each takes what the next one in the list gives."""
    threads = dataset.threads
    orders = list(_orders(dataset._order))
    made = [Stage(kind, what, max(1, threads), None, None) for kind, what in orders]
    if made and threads:
        made[0] = made[0]._replace(queue=AHEAD_PER_WORKER * threads)
    last = [stage for stage in made if stage.kind == "Batch"]
    rest = [stage for stage in made if stage.kind != "Batch"]
    maps = [Stage("Map", what, max(1, threads), None, took) for what, took in _transforms(dataset)]
    return [*last, *maps, *rest, _source(dataset, max(1, threads))]


def _orders(order: Order) -> Iterator[tuple[str, str]]:
    while isinstance(order, DerivedOrder):
        if isinstance(order, Batched):
            yield "Batch", f"batches of {order.batch_size}"
        elif isinstance(order, Repeated):
            yield "Repeat", f"{order.times} times"
        elif isinstance(order, Shuffled):
            yield "Shuffle", f"a buffer of {order.buffer_size}"
        elif isinstance(order, Sharded):
            yield "DistributedSampler", f"shard {order.shard_id} of {order.num_shards}"
        order = order.inner


def _transforms(dataset: Dataset) -> Iterator[tuple[str, float]]:
    """Those that are left for each batch, in the order in which they work, with their microseconds; last ones first."""
    visits = _first(dataset)
    for column in dataset._columns:
        batch = column.compact.take(visits.rows, axis=0)
        made = []
        for transform in column.remaining:
            made.append((f"{column.name}: {transform}", _took(partial(transform.at, batch, visits))))
            batch = transform.at(batch, visits)
        yield from reversed(made)


def _source(dataset: Dataset, workers: int) -> Stage:
    visits = _first(dataset)
    took = _took(lambda: [column.compact.take(visits.rows, axis=0) for column in dataset._columns])
    rows = len(dataset._columns[0].source)
    return Stage("Generator", f"{rows} rows of {', '.join(dataset.get_col_names())}", workers, None, took)


def _first(dataset: Dataset) -> Visits:
    visits = np.atleast_1d(dataset.visits(0)[0])
    return Visits.of(visits, len(dataset._columns[0].source))


def _took(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return sorted(times)[REPEATS // 2]
