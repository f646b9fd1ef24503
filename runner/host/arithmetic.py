"""The class of machines whose numbers are the same, bit for bit; chosen before numpy is loaded.

On every x86-64 processor with AVX2 and FMA it is `x86-64-v3`, also where the processor has AVX-512: numpy's functions
for it, and OpenBLAS's, round in other ways (docs/design/exactness.md). Both read environment variables, and only once.
"""

import os
import sys
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

X86 = "x86_64"
V2, V3, V4 = "x86-64-v2", "x86-64-v3", "x86-64-v4"  # as the System V ABI names them
# Of OpenBLAS: Zen has the kernels of Haswell, and Haswell's are the fastest ones without AVX-512.
CORE, CORES = "Haswell", ("Haswell", "Zen")
CORE_VARIABLE, FEATURES_VARIABLE = "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"
# What numpy has for AVX-512, by its version. It warns of names that it does not know, and where warnings are errors it
# cannot be imported; those that the processor lacks it accepts.
FEATURES = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
NAMES = {(2, 4): "X86_V4 AVX512_ICL AVX512_SPR", (2, 3): f"{FEATURES} AVX512_SPR", (): FEATURES}  # since
_CHOSEN: dict[str, str] = {}
FIRST_BYTES = 4096  # of the system's list of processors: the flags of the first one


def choose() -> None:
    """Let numpy compute as every machine of the class, unless it is loaded or the user has chosen otherwise."""
    if "numpy" in sys.modules or not _has_v3():
        return
    version = _numpy_version()
    names = next(names for since, names in NAMES.items() if version >= since)
    wanted = {CORE_VARIABLE: CORE, FEATURES_VARIABLE: names}
    _CHOSEN.update({name: value for name, value in wanted.items() if name not in os.environ})
    os.environ.update(_CHOSEN)


def environment() -> dict[str, str]:
    """The variables of this process without what was chosen here: a script that loads numpy first did not have it."""
    return {name: value for name, value in os.environ.items() if _CHOSEN.get(name) != value}


def _has_v3() -> bool:
    if os.uname().machine != X86:
        return False
    try:
        with open("/proc/cpuinfo", "rb") as file:
            flags = file.read(FIRST_BYTES).split()
    except OSError:
        return False
    return b"avx2" in flags and b"fma" in flags


def _numpy_version() -> tuple[int, ...]:
    """Of the numpy that would be loaded, without loading it."""
    spec = PathFinder.find_spec("numpy")
    try:
        with open(os.path.join(os.path.dirname(str(spec and spec.origin)), "version.py")) as file:
            text = file.read(FIRST_BYTES)
    except OSError:
        return ()
    version = text.partition('version = "')[2].partition('"')[0]
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


@cache
def record() -> dict[str, str]:
    """The class of this process, as its numpy was loaded; the BLAS with its kernels; the C library."""
    pools = blas()
    return {"class": _class(pools), "blas": " and ".join(map(_described, pools)) or "unknown", "libc": _libc()}


def differences(before: dict[str, str]) -> str:
    """What computes in another way than a recorded process did, on one line; empty if nothing does."""
    pairs = ((name, before.get(name), now) for name, now in record().items())
    return ", ".join(f"{name} {was} there and {now} here" for name, was, now in pairs if was not in (None, now))


def _class(pools: list[dict[str, Any]]) -> str:
    machine = os.uname().machine
    if machine != X86:
        return machine
    features, dispatched = _features()
    if not (features.get("AVX2") and features.get("FMA3")):
        return V2
    is_wide = any(features.get(name) for name in dispatched if "512" in name or name == "X86_V4")
    kernels = [pool.get("architecture") for pool in pools]
    has_kernels = bool(kernels) and all(kernel in CORES for kernel in kernels)
    return V4 if is_wide else V3 if has_kernels else f"{V3} with another BLAS"


def _features() -> tuple[dict[str, bool], list[str]]:
    """What numpy uses of the processor, and the names for which it has functions of their own."""
    import numpy

    core = getattr(numpy, "_core", None) or numpy.core
    known = core._multiarray_umath
    return known.__cpu_features__, known.__cpu_dispatch__


def blas() -> list[dict[str, Any]]:
    """The libraries of numpy's matrix products, as threadpoolctl describes them."""
    import numpy  # noqa: F401  loads the BLAS
    from threadpoolctl import threadpool_info

    return [pool for pool in threadpool_info() if pool["user_api"] == "blas"]


def _described(pool: dict[str, Any]) -> str:
    return f"{pool['internal_api']} {pool['version']} {pool.get('architecture') or ''}".strip()


def _libc() -> str:
    import platform  # here: it takes longer than all of `choose`

    return " ".join(platform.libc_ver()).strip() or platform.platform(terse=True)
