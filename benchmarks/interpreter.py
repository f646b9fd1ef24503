"""What PyNative mode costs beside the numpy kernels: microseconds per operator.

    python benchmarks/interpreter.py [--repeats 9]

Runs long chains of operators on one element, so that the kernels do next to nothing, and takes off what the same
kernels take when they are called bare. `recorded` is an operator of the forward pass, which goes on the tape, `free`
one of the gradients and the update. Prints one JSON object.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from runner import ops
from runner.core.interpreter import Eager
from runner.core.operators import Primitive
from runner.core.values import Tensor

CHAIN = 5000
ONE = Tensor(np.ones(1, np.float32))


def best(run: Callable[[], None], repeats: int) -> float:
    """Microseconds per operator, of the quickest of several runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds) / CHAIN * 1e6


def overhead(op: Primitive, operands: int, tape: bool, repeats: int) -> float:
    """What it costs to apply an operator to one value and `operands - 1` constants, less its kernel."""
    others = (ONE,) * (operands - 1)
    arrays = [x.array for x in others]

    def applied() -> None:
        value = ONE
        with Eager(tape=tape) as interpreter:
            interpreter.scope += ["network-WithLossCell", "_backbone-LeNet5", "conv1-Conv2d"]
            for _ in range(CHAIN):
                value = op(value, *others)

    def bare() -> None:
        array: Any = ONE.array
        for _ in range(CHAIN):
            array = op.kernel(array, *arrays)

    return best(applied, repeats) - best(bare, repeats)


def main() -> None:
    """Command line: measure operators of one and two operands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    o = parser.parse_args()
    cases = {"neg": (ops.Neg(), 1), "add": (ops.Add(), 2)}
    rows = {
        f"{name}_{kind}": round(overhead(op, operands, kind == "recorded", o.repeats), 2)
        for name, (op, operands) in cases.items()
        for kind in ("recorded", "free")
    }
    print(json.dumps({"microseconds_per_operator": rows}))


if __name__ == "__main__":
    main()
