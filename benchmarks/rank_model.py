"""A cost model of sums over ranks, fitted to measurements of benchmarks/ranks.py, checked, and extrapolated.

    python benchmarks/ranks.py sums --ranks 2 4 8 > rows.jsonl
    python benchmarks/rank_model.py rows.jsonl [--network-gbit 100] [--latency-us 2] [--mib 100]

Five costs are fitted to the least times of every other row: `fixed_us` of a sum, `message_us` of a message that is sent
and received (Python, MPI and the memory between two processes), `gib_per_second` with which a rank sends, receives and
adds, `far_gib_per_second` for sums that do not fit into caches, and `turn_us` that a sum waits for each further rank on
its core. The other rows check the fit: errors are medians of |predicted / measured - 1|.

The extrapolation replaces memory by a network: each rank sends and receives at `--network-gbit`, each message takes
`--latency-us` more, and adding is measured here. It prints the milliseconds of a sum of `--mib` for 8 to 1,000 ranks,
one on each core: ours, the same for the best of MPI's algorithms (logarithmic numbers of messages), and the ratio. Then
the efficiency of weak scaling with steps of `--step-ms`: in graph mode the sum follows the gradients; in PyNative mode
the sums of `--buckets` overlap with two thirds of the step, the gradients, but for that of the last bucket.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runner.communication.world import PIECE_BYTES, WHOLE_BYTES, grid

CACHE_BYTES = 2 << 20  # a sum of more has its operand, its result and the parts in memory

Row = dict[str, Any]


class Costs(NamedTuple):
    """Seconds: of a sum, of a message, of a byte that is moved and added, more of one in memory, of a turn."""

    fixed: float
    message: float
    byte: float
    far: float
    turn: float


def amounts(ranks: int, size: int) -> tuple[int, float]:
    """Messages that a rank sends, and bytes, of a sum of `size` bytes."""
    if size * (ranks - 1) <= WHOLE_BYTES:
        return ranks - 1, size * (ranks - 1)
    rows, columns = grid(ranks)
    if rows > 1:
        inner = amounts(rows, -(-size // columns))
        messages, moved = _scattered(columns, size)
        return messages + inner[0], moved + inner[1]
    return _scattered(ranks, size)


def _scattered(ranks: int, size: int) -> tuple[int, float]:
    return 2 * (ranks - 1) * -(-size // (ranks * PIECE_BYTES)), 2 * size * (ranks - 1) / ranks


def terms(row: Row) -> list[float]:
    """What the costs are multiplied with."""
    share = max(1.0, row["ranks"] / row["cores"])
    messages, moved = amounts(row["ranks"], row["bytes"])
    far = moved if row["bytes"] > CACHE_BYTES else 0.0
    return [share, share * messages, share * moved, share * far, share - 1]


def fitted(rows: Sequence[Row]) -> Costs:
    """Least squares of relative errors; no cost is below 0."""
    matrix = np.array([[term / row["ours_least_us"] * 1e6 for term in terms(row)] for row in rows])
    free = [0, 1, 2, 3, 4]
    while True:
        found, *_ = np.linalg.lstsq(matrix[:, free], np.ones(len(rows)), rcond=None)
        if (found > 0).all() or len(free) == 1:
            costs = np.zeros(5)
            costs[free] = found
            return Costs(*costs.tolist())
        free.pop(int(found.argmin()))


def predicted(costs: Costs, row: Row) -> float:
    """Seconds."""
    return sum(cost * term for cost, term in zip(costs, terms(row), strict=True))


def error(costs: Costs, rows: Sequence[Row]) -> float:
    """The median of relative errors."""
    return float(np.median([abs(predicted(costs, row) * 1e6 / row["ours_least_us"] - 1) for row in rows]))


def adding() -> float:
    """Seconds for each byte that is added to a sum, in pieces as they arrive."""
    total, part = np.zeros(PIECE_BYTES // 4, np.float32), np.ones(PIECE_BYTES // 4, np.float32)
    best = math.inf
    for _ in range(50):
        start = time.perf_counter()
        np.add(total, part, out=total)
        best = min(best, time.perf_counter() - start)
    return best / part.nbytes


def extrapolated(costs: Costs, o: argparse.Namespace) -> list[Row]:
    """A row for each number of ranks."""
    size, of_sums, rows = int(o.mib * 2**20), adding(), []
    wire = 8e-9 / o.network_gbit
    for ranks in (8, 32, 100, 256, 1000):
        messages, moved = amounts(ranks, size)
        arithmetic = size * of_sums
        ours = costs.fixed + messages * (costs.message + o.latency_us * 1e-6) + moved * wire + arithmetic
        rounds = 2 * math.ceil(math.log2(ranks))
        theirs = rounds * o.latency_us * 1e-6 + 2 * size * (ranks - 1) / ranks * wire + arithmetic
        row = {"ranks": ranks, "messages": messages, "ours_ms": round(ours * 1e3, 2), "mpi_ms": round(theirs * 1e3, 2)}
        row |= {"ratio": round(ours / theirs, 3)}
        for mode, exposed in (("graph", ours), ("pynative", overlapped(ours, o))):
            row[f"{mode}_efficiency"] = round(1 / (1 + exposed * 1e3 / o.step_ms), 3)
        rows.append(row)
    return rows


def overlapped(seconds: float, o: argparse.Namespace) -> float:
    """What remains of a sum behind the gradients."""
    hidden = o.step_ms * 1e-3 * 2 / 3 * (o.buckets - 1) / o.buckets
    return max(seconds / o.buckets, seconds - hidden)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="what `benchmarks/ranks.py sums` has printed")
    parser.add_argument("--network-gbit", type=float, default=100.0)
    parser.add_argument("--latency-us", type=float, default=2.0)
    parser.add_argument("--mib", type=float, default=100.0)
    parser.add_argument("--step-ms", type=float, default=1000.0)
    parser.add_argument("--buckets", type=int, default=4)
    o = parser.parse_args()
    rows = [row for row in map(json.loads, o.rows.read_text().splitlines()) if row["what"] == "sum"]
    given, others = rows[::2], rows[1::2]
    costs = fitted(given)
    shown = {f"{name}_us": round(getattr(costs, name) * 1e6, 2) for name in ("fixed", "message", "turn")}
    for name, seconds in (("gib_per_second", costs.byte), ("far_gib_per_second", costs.byte + costs.far)):
        shown[name] = round(1 / seconds / 2**30, 2) if seconds else None
    shown |= {"error": round(error(costs, given), 3), "error_of_others": round(error(costs, others), 3)}
    print(json.dumps(shown))
    for row in extrapolated(costs, o):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
