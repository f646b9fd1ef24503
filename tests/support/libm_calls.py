"""Which functions of the C library an operator calls, in its numpy kernel and in its lowerings.

A script for a process with a shared library before libm (`LD_PRELOAD`) that counts the calls of each function, and JSON
on standard output: the operator, the rule that computes, the functions. `shim` writes the source of that library.
"""

import runner  # noqa: F401, I001  before numpy: it chooses the class of machines

import ctypes
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
from contract import computed, in_float64, run_lowering
from operands import Sample
from samples import SAMPLES, WIDE
from soak import SOAK

from runner.core.operators import KERNEL, LOWERING, infer
from runner.errors import RunnerError
from runner.types import TensorType

ONE = """acos acosh asin asinh atan atanh cbrt cos cosh erf erfc exp exp2 expm1 lgamma log log10 log1p log2 sin sinh tan
tanh tgamma"""
TWO = "atan2 hypot pow"
NAMES = [f"{name}{suffix}" for name in f"{ONE} {TWO}".split() for suffix in ("", "f")]
# Whose results differ between versions of glibc: 2 million arguments for each function of NAMES, in 2.36, 2.41, 2.43.
CHANGED = """acosf acosh acoshf asinf asinh asinhf atan atan2f atanf atanh atanhf cbrtf coshf erf erfc erfcf erff expm1f
lgamma lgammaf log10f log1pf sinhf tanf tanhf tgamma tgammaf"""
FEW = 3  # rows of an operator that are lowered in CI


def shim() -> str:
    """The library in C: each function counts its calls in `counts`, in the order of NAMES, and calls the real one."""
    made = ["#define _GNU_SOURCE", "#include <dlfcn.h>", f"long counts[{len(NAMES)}];"]
    for k, name in enumerate(NAMES):
        kind = "float" if name.endswith("f") and name != "erf" else "double"
        operands = "x, y" if name.removesuffix("f") in TWO.split() else "x"
        typed = operands.replace("x", f"{kind} x").replace("y", f"{kind} y")
        real = f'static {kind} (*real)({typed}); if (!real) real = dlsym(RTLD_NEXT, "{name}");'
        made.append(f"{kind} {name}({typed}) {{ {real} counts[{k}]++; return real({operands}); }}")
    return "\n".join(made)


def called(counts: ctypes.Array[ctypes.c_long], compute: Callable[[], object]) -> set[str]:
    before = list(counts)
    with np.errstate(all="ignore"):
        compute()
    return {name for name, a, b in zip(NAMES, before, counts, strict=True) if b > a}


def run_forms(sample: Sample) -> None:
    types = tuple(map(TensorType.of, sample.arrays))
    for form in (None, *sample.op.lowerings(*types)):
        run_lowering(sample.op, types, form)(sample.arrays)


def compute_wide(sample: Sample) -> None:
    """In Float64, where the operator has it."""
    op, arrays = in_float64(sample.op, sample.arrays)
    try:
        infer(op, tuple(map(TensorType.of, arrays)))
    except RunnerError:
        return
    computed(op, arrays)


if __name__ == "__main__":
    counts = (ctypes.c_long * len(NAMES)).in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "counts")
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: {KERNEL: set(), LOWERING: set()})
    seen: Counter[str] = Counter()
    for sample in (*SAMPLES, *WIDE):
        of_operator = found[sample.op.name]
        of_operator[KERNEL] |= called(counts, lambda: computed(sample.op, sample.arrays))  # noqa: B023
        of_operator[KERNEL] |= called(counts, lambda: compute_wide(sample))  # noqa: B023
        seen[sample.op.name] += 1
        if SOAK or seen[sample.op.name] <= FEW:
            of_operator[LOWERING] |= called(counts, lambda: run_forms(sample))  # noqa: B023
    print(json.dumps({name: {rule: sorted(x) for rule, x in rules.items()} for name, rules in found.items()}))
