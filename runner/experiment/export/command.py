"""`runner export RUN_DIR --to DIR`: write what a run has trained for other programs, in one of several formats."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from runner.errors import ConfigError, known_names
from runner.experiment.export import mindir_file, onnx_directory
from runner.experiment.export.options import ExportOptions
from runner.experiment.export.trained_run import TrainedRun, opened
from runner.host import files
from runner.host.process import stopped_by_signals


class Format(NamedTuple):
    """A format: `check` raises, before the run is built, when the place or an option does not fit; `write` writes
    atomically and returns lines about what was written."""

    check: Callable[[Path, ExportOptions], None]
    write: Callable[[TrainedRun, Path, ExportOptions], list[str]]


FORMATS = {
    "onnx": Format(onnx_directory.check, onnx_directory.write),
    "mindir": Format(mindir_file.check, mindir_file.write),
}


def main(args: argparse.Namespace) -> int:
    """Write the files and print what they are. Raises RunnerError."""
    if args.format not in FORMATS:
        raise ConfigError("unknown format", format=args.format, **known_names(args.format, FORMATS))
    chosen, place = FORMATS[args.format], files.real_path(Path(args.to))
    options = ExportOptions(steps=args.steps, quantize=args.quantize, opset=args.opset)
    chosen.check(place, options)
    with stopped_by_signals(), opened(Path(args.run), args.code) as run:
        lines = chosen.write(run, place, options)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0
