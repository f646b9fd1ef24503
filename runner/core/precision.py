"""Mixed precision: the float types that operators need, and the policy of the user (`session.precision_mode`).

How a policy applies:

1. An operator declares the precision that it needs (`Primitive.precision`): it gains from Float16, requires Float32,
   or follows its operands.
2. `Interpreter.bind`, through which every operator of both modes passes, gets the operands to cast from its
   policy and binds a `Cast` for each of them: an ordinary operator with a number, a full name and a gradient.
3. So parameters stay Float32 (the master copy), and their gradients, which pass back through that Cast, are Float32.
4. Optimizers and loss scaling compute outside of the policy (`Interpreter.use_precision`).
5. A kernel with Float16 operands computes in Float32 and rounds its results once (`RoundedTypes`), in numpy and in the
   graphs for the CPU: sums never accumulate in Float16. GPUs and NPUs have kernels of their own that do the same.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np

from runner import dtype as dt
from runner.core.current import Current
from runner.errors import ConfigError, known_names
from runner.types import TensorType

HALF, SINGLE = dt.float16, dt.float32


class OperandPrecision(Enum):
    """What an operator needs from the element type of its float operands."""

    HALF = "gains from Float16: convolutions, matrix products"
    WIDEST = "follows its operands, the widest of them"
    FIRST = "follows its first operand: a bias that is added"
    SINGLE = "needs Float32: sums, logarithms, losses"
    MASTER = "needs Float32 even when Float16 is forced: updates of parameters"
    NOTHING = "accepts every operand unchanged: casts, prints"


class PrecisionTraits(Protocol):
    """The attributes of an operator that a policy reads."""

    precision: ClassVar[OperandPrecision]
    masters: ClassVar[tuple[int, ...]]

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Policy:
    """A casting policy: one of `MODES`, or that of a cell.

    `forced` is the type for all operands that allow it. The policy of a cell (`of_cell`) is forced on parameters only:
    what its inputs and other cells give stays as it is, and an operator takes the widest of its operands.
    """

    name: str
    forced: dt.DType | None = None
    of_cell: bool = False

    @property
    def is_forced(self) -> bool:
        """Whether all operands have one type, also in cells with a precision of their own."""
        return self.forced is not None and not self.of_cell

    def casts(
        self, op: PrecisionTraits, types: tuple[TensorType, ...], parameters: tuple[bool, ...] = ()
    ) -> tuple[dt.DType | None, ...] | None:
        """For each operand the element type to cast it to, or None; None when nothing is cast.

        `parameters` says which operands are parameters. Only Float16 and Float32 are cast; an operator with a Float64
        operand is not changed.
        """
        return _casts(self, op, types, parameters if self.of_cell else ())

    def target(self, precision: OperandPrecision, kinds: Sequence[dt.DType]) -> dt.DType | None:
        """The type to cast to, for operands of the types `kinds` of an operator with these precision."""
        if precision is OperandPrecision.NOTHING:
            return None
        if precision is OperandPrecision.MASTER:
            return SINGLE
        if self.is_forced:
            return self.forced
        if precision is OperandPrecision.WIDEST or self.of_cell:
            return SINGLE if SINGLE in kinds else None
        types = {OperandPrecision.HALF: HALF, OperandPrecision.SINGLE: SINGLE, OperandPrecision.FIRST: kinds[0]}
        return types[precision]


@lru_cache(maxsize=8192)
def _casts(
    policy: Policy, op: PrecisionTraits, types: tuple[TensorType, ...], parameters: tuple[bool, ...]
) -> tuple[dt.DType | None, ...] | None:
    chosen = [policy.forced if is_parameter else None for is_parameter in parameters or [False] * len(types)]
    floats = [k for k, t in enumerate(types) if t.dtype.is_float and k not in op.masters]
    if not floats or dt.float64 in [t.dtype for t in types]:
        return None
    target = policy.target(op.precision, [chosen[k] or types[k].dtype for k in floats])
    if target is None and policy.of_cell and op.precision is not OperandPrecision.NOTHING:
        target = HALF  # all operands are, once parameters are cast
    wanted = [SINGLE if k in op.masters else target for k in range(len(types))]
    casts = [w if t.dtype in (HALF, SINGLE) and w is not t.dtype else None for t, w in zip(types, wanted, strict=True)]
    return tuple(casts) if any(casts) else None


# By name; None casts nothing. All operators here accept Float32, so the default, which uses Float16 only where an
# operator has no Float32 kernel, casts nothing.
MODES: dict[str, Policy | None] = {
    "allow_fp32_to_fp16": None,
    "force_fp16": Policy("force_fp16", HALF),
    "force_fp32": Policy("force_fp32", SINGLE),
    "must_keep_origin_dtype": None,
    "allow_mix_precision": Policy("allow_mix_precision"),
}
DEFAULT = "allow_fp32_to_fp16"
OF_CELL = {HALF: Policy("cell_fp16", HALF, of_cell=True), SINGLE: Policy("cell_fp32", SINGLE, of_cell=True)}
PRECISION: Current[Policy | None] = Current("precision", None)  # interpreters start with the present policy


def policy(mode: str) -> Policy | None:
    """The policy of a `precision_mode`. Raises ConfigError for an unknown one."""
    if not isinstance(mode, str) or mode not in MODES:
        raise ConfigError("unknown precision_mode", given=mode, **known_names(mode, MODES))
    return MODES[mode]


def use_precision(chosen: Policy | None) -> AbstractContextManager[Policy | None]:
    """Context: interpreters created inside start with this policy."""
    return PRECISION.using(chosen)


class RoundedTypes(tuple[TensorType, ...]):
    """Types of outputs that are computed in Float32 and rounded once, because operands are Float16."""

    __slots__ = ()


def as_single(types: Iterable[TensorType]) -> tuple[TensorType, ...]:
    """The types with Float16 replaced by Float32."""
    return tuple([t.with_dtype(SINGLE) if t.dtype is HALF else t for t in types])


def compute_rounded(
    kernel: Callable[..., Any], arrays: Iterable[np.ndarray], types: RoundedTypes
) -> tuple[np.ndarray, ...]:
    """The outputs of a kernel, computed in float32 and rounded to the types."""
    outputs = kernel(*[a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays])
    results = outputs if isinstance(outputs, tuple) else (outputs,)
    return tuple([np.asarray(a).astype(t.dtype.numpy, copy=False) for a, t in zip(results, types, strict=True)])
