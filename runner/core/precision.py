"""Element types of floats: what operators need of them, and the policy that a user chose (`session.precision_mode`).

The walk of a value under a policy:

1. An operator says what it needs (`Primitive.needs`): Float16 pays, Float32 it must be, or it follows its operands.
2. `Interpreter.bind`, which every operator of both modes passes, asks the policy in force which operands have another
   type, and binds a `Cast` for each of them: an ordinary operator with a number, a full name and a gradient.
3. So parameters stay Float32 (the master copy) and their gradients, which come back through that Cast, are Float32.
4. Optimizers and loss scaling work outside of the policy (`Interpreter.use_precision`).
5. A kernel that gets Float16 computes in Float32 and rounds its results once (`Rounded`), in numpy as in the graphs for
   the CPU: sums never accumulate in Float16. Cards have kernels of their own that do the same.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np

from runner import dtype as dt
from runner.core.value import OPERATORS, Operand, Value
from runner.errors import ConfigError, nearest
from runner.types import TensorType

HALF, SINGLE = dt.float16, dt.float32


class Needs(Enum):
    """What an operator asks of the element type of its float operands."""

    HALF = "gains from Float16: convolutions, matrix products"
    WIDEST = "follows its operands, the widest of them"
    FIRST = "follows its first operand: a bias that is added"
    SINGLE = "needs Float32: sums, logarithms, losses"
    MASTER = "needs Float32 even when Float16 is forced: updates of parameters"
    NOTHING = "takes each operand as it is: casts, prints"


class PrecisionTraits(Protocol):
    """The part of an operator that a policy looks at."""

    needs: ClassVar[Needs]
    masters: ClassVar[tuple[int, ...]]

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Policy:
    """One of the `MODES` that change something; `forced` is the type that all operands take which can."""

    name: str
    forced: dt.DType | None = None

    def casts(self, op: PrecisionTraits, types: tuple[TensorType, ...]) -> tuple[dt.DType | None, ...] | None:
        """For each operand the element type that it is cast to, or None; None when nothing is cast.

        Only Float16 and Float32 are cast; an operator that has a Float64 operand is left alone.
        """
        return _casts(self, op, types)

    def target(self, needs: Needs, kinds: Sequence[dt.DType]) -> dt.DType | None:
        """The type for operands of these types, of an operator with these needs."""
        if needs is Needs.NOTHING:
            return None
        if needs is Needs.MASTER:
            return SINGLE
        if self.forced is not None:
            return self.forced
        if needs is Needs.WIDEST:
            return SINGLE if SINGLE in kinds else None
        return {Needs.HALF: HALF, Needs.SINGLE: SINGLE, Needs.FIRST: kinds[0]}[needs]


@lru_cache(maxsize=8192)
def _casts(policy: Policy, op: PrecisionTraits, types: tuple[TensorType, ...]) -> tuple[dt.DType | None, ...] | None:
    kinds = [t.dtype for k, t in enumerate(types) if t.dtype.is_float and k not in op.masters]
    if not kinds or dt.float64 in [t.dtype for t in types]:
        return None
    target = policy.target(op.needs, kinds)
    wanted = [SINGLE if k in op.masters else target for k in range(len(types))]
    made = [w if t.dtype in (HALF, SINGLE) and w is not t.dtype else None for t, w in zip(types, wanted, strict=True)]
    return tuple(made) if any(made) else None


# By name; None leaves every operator with the types that it is given. Our operators all take Float32, so the default,
# which takes Float16 where an operator has no Float32, changes nothing.
MODES: dict[str, Policy | None] = {
    "allow_fp32_to_fp16": None,
    "force_fp16": Policy("force_fp16", HALF),
    "force_fp32": Policy("force_fp32", SINGLE),
    "must_keep_origin_dtype": None,
    "allow_mix_precision": Policy("allow_mix_precision"),
}
DEFAULT = "allow_fp32_to_fp16"
_in_force: list[Policy | None] = [None]


def policy(mode: str) -> Policy | None:
    """The policy of a `precision_mode`. Raises ConfigError for an unknown one."""
    if mode not in MODES:
        allowed = ", ".join(MODES)
        raise ConfigError("unknown precision_mode", given=mode, allowed=allowed, nearest=nearest(str(mode), MODES))
    return MODES[mode]


def current_policy() -> Policy | None:
    """The policy that interpreters begin with now."""
    return _in_force[-1]


@contextmanager
def use_precision(chosen: Policy | None) -> Iterator[None]:
    """Interpreters that are made inside begin with this policy."""
    _in_force.append(chosen)
    try:
        yield
    finally:
        _in_force.pop()


class OperandCasting:
    """The part of an interpreter that casts operands; `precision` is the policy in force, None casts nothing."""

    def __init__(self) -> None:
        self.precision = current_policy()

    def bind(self, op: Any, operands: tuple[Operand, ...]) -> tuple[Value, ...]:
        """Apply an operator."""
        raise NotImplementedError

    def cast(self, policy: Policy, op: PrecisionTraits, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """The operands in the types in which a policy wants this operator to have them."""
        wanted = policy.casts(op, tuple([x.type for x in inputs]))
        if wanted is None:
            return inputs
        return tuple([self.with_dtype(x, dtype or x.dtype) for x, dtype in zip(inputs, wanted, strict=True)])

    def with_dtype(self, value: Value, dtype: dt.DType) -> Value:
        """The value with an element type, cast if it has another."""
        return value if value.dtype is dtype else self.bind(_cast_to(dtype), (value,))[0]

    @contextmanager
    def use_precision(self, policy: Policy | None) -> Iterator[None]:
        """Inside, operands are cast by another policy."""
        before, self.precision = self.precision, policy
        try:
            yield
        finally:
            self.precision = before


@cache
def _cast_to(dtype: dt.DType) -> Any:
    kind: Any = type(OPERATORS["Cast"])
    return kind(dtype)


class RoundedTypes(tuple[TensorType, ...]):
    """Types of results that are computed in Float32 and rounded once, because operands are Float16."""

    __slots__ = ()


def as_single(types: Iterable[TensorType]) -> tuple[TensorType, ...]:
    """Types with Float32 for Float16."""
    return tuple([t.with_dtype(SINGLE) if t.dtype is HALF else t for t in types])


def compute_rounded(
    kernel: Callable[..., Any], arrays: Iterable[np.ndarray], types: RoundedTypes
) -> tuple[np.ndarray, ...]:
    """What a kernel makes of arrays, computed in float32 and rounded to the types."""
    made = kernel(*[a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays])
    results = made if isinstance(made, tuple) else (made,)
    return tuple([np.asarray(a).astype(t.dtype.numpy, copy=False) for a, t in zip(results, types, strict=True)])
