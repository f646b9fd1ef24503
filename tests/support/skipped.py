"""What would enable the tests that were skipped: the list at the end of the suite."""

import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

# A pattern in the reason of a skip, and what a contributor does about it. The first one that is found counts.
ENABLED_BY = (
    (r"make soak", "make soak"),
    (r"onnxruntime-web|onnxruntime-node", "make web"),
    (r"mpi4py", 'pip install "runner-ml[mpi]"'),
    (r"PIL|extra images", 'pip install "runner-ml[images]"'),
    (r"tensorboardX|extra tensorboard", 'pip install "runner-ml[tensorboard]"'),
    (r"mlflow", 'pip install "runner-ml[mlflow]"'),
    (r"optuna", 'pip install "runner-ml[optuna]"'),
    (r"joblib_launcher", 'pip install "runner-ml[joblib]"'),
    (r"ray_launcher", 'pip install "runner-ml[ray]"'),
    (r"submitit", 'pip install "runner-ml[slurm]"'),
    (r"needs a Slurm", "a machine of a Slurm cluster, with sbatch"),
    (r"extra mindrecord", 'pip install "runner-ml[mindrecord]"'),
    (r"mkdocs|material", 'pip install "runner-ml[docs]"'),
    (r"mypy|markdown_it|google\.protobuf|'onnx'", 'pip install "runner-ml[test]"'),
    (r"is a peer", "pip install of the peer, in the version that its file in benchmarks/peers/ names"),
    (r"torchvision", "pip install torchvision, in the version for the PyTorch that is installed"),
    (r"PyTorch", "pip install torch==2.13.0"),
    (r"RUNNER_MINDSPORE_PYTHON", "RUNNER_MINDSPORE_PYTHON=ms/bin/python; the test file says how to make it"),
    (r"MindSpore is the oracle", "pip install mindspore"),
    (r"RUNNER_ORT_", "the variable, with a Python that has onnxruntime-gpu or onnxruntime-cann"),
    (r"TensorFlow", "pip install tensorflow"),
    (r"TensorBoard", "pip install tensorboard"),
    (r"pandas", "pip install pandas"),
    (r"viztracer", "pip install viztracer"),
    (r"perfetto", "pip install perfetto"),
    (r"Chromium", "apt install chromium"),
    (r"no Node", "apt install nodejs npm"),
    (r"no bash|no fish|no zsh|no make", "apt install bash fish zsh make"),
    (r"Graphviz", "apt install graphviz"),
    (r"root may write", "the suite as a user other than root"),
    (r"tmpfs", "the suite as root, where file systems can be mounted"),
    (r"perf_event|counters", "a machine whose kernel gives counters: sysctl kernel.perf_event_paranoid=1"),
    (r"/proc|/dev/full|glibc", "Linux with glibc"),
    (r"MNIST|real data|files of data", "the data files, in the folder that the reason names"),
    (r"needs the network", "nothing: it would load files from the net"),
    (r"qemu-user", "apt install qemu-user"),
    (r"C compiler", "apt install gcc libc6-dev"),
    (r"a processor with", "a machine with the processor that the reason names"),
    (r"git checkout", "the suite in a git checkout"),
    (r"has the provider|has the device|this onnxruntime has", "a machine without this device"),
    (r"all peers are here", "an environment without one of the peers"),
    (r"fewer operations", "nothing: there is no such operation"),
)


def how_to_enable(reason: str) -> str | None:
    """What would let a test run that gives this reason; None for a reason that no row of ENABLED_BY knows."""
    return next((how for pattern, how in ENABLED_BY if re.search(pattern, reason)), None)


def summary(reports: Iterable[pytest.CollectReport | pytest.TestReport]) -> list[str]:
    """A line for each thing to do: how many tests or files it enables, what it is, and the reasons of the skips."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for report in reports:
        if isinstance(report.longrepr, tuple):  # not a test that is expected to fail
            reason = report.longrepr[2].removeprefix("Skipped: ").partition("\n")[0]
            found[how_to_enable(reason) or "see the reason"][reason].add(report.nodeid)
    rows = [(sum(map(len, reasons.values())), how, sorted(reasons)) for how, reasons in found.items()]
    return [f"{count:4}  {how}\n      ({'; '.join(reasons)})" for count, how, reasons in sorted(rows, reverse=True)]
