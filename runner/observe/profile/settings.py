"""What is profiled, and where the files go: one checked object, whether YAML, JSON or Python asked for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from runner.errors import ConfigError

Metric = Literal["ArithmeticUtilization", "PipeUtilization", "Memory", "MemoryL0", "ResourceConflictRatio"]
METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True)
class ProfilingSettings:
    """A profile that will be made. `result_path` is the absolute folder of the files; it is there.

    `training_trace`: the parts of every step. `task_trace`: every operator, which needs the parts of the steps too.
    `aicpu_trace`: the operators of the data pipeline. `fp_point`, `bp_point`: full names of the operators with which
    the forward part begins and the backward part ends (None: found in the network). `ai_core_metrics`: the one measure
    of the hardware for each operator (None: none). `op_trace`: one operator alone, by its full name in the network, or
    by type with operands such as `MatMul(32x400,400x120)`; it excludes all others. `device_id` is in the files' names.
    """

    result_path: Path
    training_trace: bool = False
    task_trace: bool = False
    aicpu_trace: bool = False
    fp_point: str | None = None
    bp_point: str | None = None
    ai_core_metrics: Metric | None = None
    op_trace: str | None = None
    device_id: int = 0

    def __post_init__(self) -> None:
        """Raise ConfigError for what excludes each other and for a metric that is not known."""
        if self.ai_core_metrics not in (None, *METRICS):
            raise ConfigError(
                "unknown metric of the hardware", ai_core_metrics=self.ai_core_metrics, allowed=", ".join(METRICS)
            )
        others = [n for n in ("training_trace", "task_trace", "aicpu_trace", "ai_core_metrics") if getattr(self, n)]
        if self.op_trace and others:
            raise ConfigError(
                "op_trace measures one operator alone", op_trace=self.op_trace, excludes=", ".join(others)
            )

    @property
    def steps(self) -> bool:
        """Whether the parts of the steps are wanted."""
        return self.training_trace or self.operators

    @property
    def operators(self) -> bool:
        """Whether every operator is wanted: for its trace, or for a measure of the hardware."""
        return self.task_trace or self.ai_core_metrics is not None


@dataclass(frozen=True)
class Place:
    """The mode (`graph` or `pynative`), the device's kind as in file names (`cpu`, `gpu`, `ascend`), threads of one
    operator, and which of how many ranks of a data-parallel training this is.
    """

    mode: str = "graph"
    device: str = "cpu"
    threads: int = 1
    rank: int = 0
    ranks: int = 1

    @property
    def whose(self) -> str:
        """What a profile of several is told apart by; empty for the only one."""
        return f"rank {self.rank} of {self.ranks}" if self.ranks > 1 else ""
