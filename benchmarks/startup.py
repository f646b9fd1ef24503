"""How long a user waits for the first loss.

    python benchmarks/startup.py [--repeats 15] [-- overrides]

Starts `runner +experiment=lenet` and, in turn, a Python that imports numpy, onnx, onnxruntime, hydra and omegaconf.
Prints the medians in seconds, from the start of the process to the first loss on its standard output, and their ratio.
Bytecode is kept whatever PYTHONDONTWRITEBYTECODE says, and a first pair, which writes it, is not counted: pip has
compiled the libraries, and a checkout that has to be compiled anew in every start takes a quarter second more.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

IMPORTS = "import numpy, onnx, onnxruntime, hydra, omegaconf"
FEW = ["max_steps=3", "eval.every=never", "callbacks=verbose"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds_to_first_loss(overrides: list[str], folder: str) -> float:
    """From the start of the process to the first line with a loss."""
    command = [sys.executable, "-m", "runner", "+experiment=lenet", *FEW, *overrides]
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "loss is" in line:
                break
        else:
            sys.exit(f"{' '.join(command)} printed no loss")
        seconds = time.perf_counter() - start
        process.stdout.read()
    return seconds


def seconds_to_import() -> float:
    """A Python process that imports the libraries."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, env=ENVIRONMENT)
    return time.perf_counter() - start


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("overrides", nargs="*")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(seconds_to_first_loss(o.overrides, folder), seconds_to_import()) for _ in range(o.repeats + 1)]
    ours, imports = (round(statistics.median(column), 3) for column in zip(*pairs[1:], strict=True))
    ratio = round(statistics.median(a / b for a, b in pairs[1:]), 2)
    row = {"first_loss_seconds": ours, "imports_seconds": imports, "ratio": ratio, "overrides": o.overrides}
    print(json.dumps(row))


if __name__ == "__main__":
    main()
