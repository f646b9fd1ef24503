"""How long one training step takes.

    python benchmarks/step.py lenet5 --mode graph --threads 2
    python benchmarks/step.py lenet5 --mode graph pynative --threads 1 2 --peer torch --repeats 5

Every measurement runs in a process of its own, after a warm-up, on random but fixed data of which each step takes a
new batch. With `--peer torch` the same step in PyTorch runs in between, in turn, so that both see the same moods of the
machine; only the ratio is worth quoting. Prints one JSON object per line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT.parent / "shared" / "bench" / "peer_torch.py"
SHAPES = {"lenet5": (1, 32, 32)}


def measure(net: str, mode: str, threads: int, batch: int, steps: int, sink: int) -> dict[str, Any]:
    """Warm up, then time `steps` steps: milliseconds per step, compile seconds, peak memory."""
    import resource

    import numpy as np

    from runner import context, nn, registry, set_seed
    from runner.dataset import NumpySlicesDataset
    from runner.device import Device
    from runner.machine import thread_limit
    from runner.train import Model
    from runner.train.sink import Sink

    set_seed(0)
    network = registry.network(net)()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    modes = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
    model = Model(network, loss, optimizer, mode=modes[mode], device=Device(threads=threads))
    step = model.train_step
    rng = np.random.default_rng(0)
    count = max(batch * 8, 2048)
    images = rng.standard_normal((count, *SHAPES[net]), np.float32)
    labels, order = rng.integers(0, 10, count, np.int32), rng.permutation(count)

    def run_single(number: int) -> None:
        for i in range(number):
            rows = order[(i * batch) % (count - batch + 1) :][:batch]
            step((images[rows], labels[rows]))

    data = NumpySlicesDataset((images, labels), ["image", "label"]).shuffle(count).batch(batch, drop_remainder=True)
    sunk = Sink(model.train_network, model.device, data)

    def run_sunk(number: int) -> None:
        for start in range(0, number, sink):
            sunk(min(sink, number - start))

    run, compiled = (run_sunk, sunk) if sink else (run_single, step)

    with thread_limit(threads):
        start = time.perf_counter()
        run(1)
        first = time.perf_counter() - start
        run(min(20, steps))
        start = time.perf_counter()
        run(steps)
        seconds = (time.perf_counter() - start) / steps
    programs = getattr(compiled, "programs", {}).values()
    return {
        "net": net,
        "mode": mode,
        "sink": sink,
        "batch": batch,
        "threads": threads,
        "ms_per_step": round(seconds * 1e3, 3),
        "steps_per_second": round(1 / seconds, 1),
        "compile_seconds": round(sum(p.compile_seconds for p in programs), 3),
        "first_step_seconds": round(first, 3),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def child(command: list[str], threads: int) -> dict[str, Any]:
    """Run a measurement in a process and read the last line that it prints."""
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    environment = {**os.environ, **limits, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def repeats(o: argparse.Namespace, mode: str, threads: int) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Pairs of our row and the peer's, measured in turn."""
    common = [o.net, "--threads", str(threads), "--batch", str(o.batch), "--steps", str(o.steps)]
    for _ in range(o.repeats):
        worker = [sys.executable, __file__, *common, "--mode", mode, "--sink", str(o.sink), "--worker"]
        ours = child(worker, threads)
        yield ours, child([o.peer_python, str(PEER), *common, "--repeats", "1"], threads) if o.peer else None


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=list(SHAPES))
    parser.add_argument("--mode", nargs="+", choices=["graph", "pynative"], default=["graph"])
    parser.add_argument("--threads", nargs="+", type=int, default=[2])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sink", type=int, default=0, help="steps in one call (graph mode); 0: one by one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", choices=["torch"])
    parser.add_argument("--peer-python", default=sys.executable, help="the interpreter that has the peer installed")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.worker:
        print(json.dumps(measure(o.net, o.mode[0], o.threads[0], o.batch, o.steps, o.sink)))
        return
    if o.peer and not PEER.exists():
        sys.exit(f"the peer's script is not there: {PEER}")
    for mode in o.mode:
        for threads in o.threads:
            summarise(list(repeats(o, mode, threads)))


def summarise(pairs: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> None:
    """Print the median row of ours, of the peer, and the ratio of speeds."""
    for rows in zip(*pairs, strict=True):
        if rows[0] is not None:
            print(json.dumps(sorted(rows, key=lambda row: row["ms_per_step"])[len(rows) // 2]), flush=True)
    if pairs[0][1] is not None:
        single = [peer["ms_per_step"] / ours["ms_per_step"] for ours, peer in pairs if peer]
        first = pairs[0][0]
        ratio = {"ratio_to_torch": round(statistics.median(single), 2), "of_each_repeat": [round(r, 2) for r in single]}
        print(json.dumps({name: first[name] for name in ("net", "mode", "threads", "sink")} | ratio), flush=True)


if __name__ == "__main__":
    main()
