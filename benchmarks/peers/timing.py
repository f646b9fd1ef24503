"""What all contenders share, runner itself too: arguments, data, the loop that is timed, the row that is printed.

Needs the standard library only, because every peer lives in an environment of its own.
"""

import argparse
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCKS = {  # of a ResNet: whether they are bottlenecks, and how many of them in each of the four layers
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}
NETS = ("lenet5", *BLOCKS)
MORE_NETS = (*NETS, "mobilenet_v2")  # which PyTorch has, and what reads the files of torch_onnx.py
DEVICES = "cpu", "gpu"
LEARNING_RATE, MOMENTUM = 0.01, 0.9


def shape_of(net: str) -> tuple[int, int, int]:
    """Channels, height and width of an image."""
    return {"lenet5": (1, 32, 32), "mobilenet_v2": (3, 64, 64)}.get(net, (3, 32, 32))


def usual_steps(net: str) -> int:
    """How many steps are timed: half a second of LeNet-5, some seconds of a ResNet."""
    return 300 if net == "lenet5" else 3


def rows_of(net: str, batch: int) -> int:
    """How many images the data have; every step takes the next `batch` of them in an order that was drawn once."""
    return max(8 * batch, 2048 if net == "lenet5" else 0)


def first_row(step: int, net: str, batch: int) -> int:
    """Where in that order the batch of a step begins."""
    return step * batch % (rows_of(net, batch) - batch + 1)


def arguments(
    description: str | None, nets: tuple[str, ...] = NETS, devices: tuple[str, ...] = DEVICES[:1]
) -> argparse.ArgumentParser:
    """The command line of a contender that computes on these devices."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=nets)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, help="of the timed loop; by default as many as suit the network")
    parser.add_argument("--device", choices=devices, default="cpu", help="gpu: the first card")
    parser.add_argument("--tf32", action="store_true", help="on the gpu: Float32 as TF32, on tensor cores")
    parser.add_argument("--onnx", type=Path, help="folder of the networks that peers/torch_onnx.py has exported")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with the number of steps that suits the network."""
    o = parser.parse_args()
    o.steps = o.steps or usual_steps(o.net)
    return o


def confine(threads: int) -> None:
    """Keep this process and its threads on so many cores, for those whose thread pools count the cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def timed(run: Callable[[int], object], steps: int) -> dict[str, float]:
    """Seconds of the first step, and milliseconds per step after a warm-up; `run(n)` returns when n steps are done."""
    start = time.perf_counter()
    run(1)
    first = time.perf_counter() - start
    run(min(20, steps))
    start = time.perf_counter()
    run(steps)
    seconds = (time.perf_counter() - start) / steps
    return {
        "ms_per_step": round(seconds * 1e3, 4),
        "steps_per_second": round(1 / seconds, 2),
        "first_step_seconds": round(first, 3),
    }


def peak_rss_mb() -> float:
    """The most memory that this process has held. `getrusage` would also count what started the process."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return round(int(found[1]) / 1024, 1)
    import resource  # here because Windows has none

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def report(peer: str, o: argparse.Namespace, **measured: Any) -> None:
    """Print the row of a measurement that has just ended."""
    row = {"peer": peer, "net": o.net, "batch": o.batch, "threads": o.threads, "steps": o.steps}
    row |= {"device": o.device, "tf32": o.tf32} if o.device != "cpu" else {}
    print(json.dumps(row | measured | {"peak_rss_mb": peak_rss_mb()}), flush=True)
