"""The class of machines whose numbers are the same, bit for bit; chosen before numpy is loaded.

On every x86-64 processor with AVX2 and FMA it is `x86-64-v3`, also where the processor has AVX-512: numpy's functions
for it, and OpenBLAS's, round in other ways (docs/design/exactness.md). Both read environment variables, and only once.
"""

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

X86 = "x86_64"
V2, V3, V4 = "x86-64-v2", "x86-64-v3", "x86-64-v4"  # as the System V ABI names them
# Of OpenBLAS: Zen has the kernels of Haswell, and Haswell's are the fastest ones without AVX-512.
CORE, CORES = "Haswell", ("Haswell", "Zen")
LIBC = "libc"  # its key in the record
CORE_VARIABLE, FEATURES_VARIABLE = "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"
# What numpy has for AVX-512, by its version. It warns of names that it does not know, and where warnings are errors it
# cannot be imported; those that the processor lacks it accepts.
FEATURES = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
NAMES = {(2, 4): "X86_V4 AVX512_ICL AVX512_SPR", (2, 3): f"{FEATURES} AVX512_SPR", (): FEATURES}  # since
# 0 for the fastest kernels; otherwise what was chosen here, which a process that this one starts may take back.
EXACT_VARIABLE = "RUNNER_EXACT"
AGAIN_VARIABLE = "RUNNER_STARTED_AGAIN"  # in a command that has started itself again: it does so once
FASTEST = "exact=false"
_CHOSEN: dict[str, str] = {}
_COMMAND: list[str] = []  # the words of this process, where it is the command and may start again
OTHERS = ", "  # behind the class, in manifests of runs whose bits depend on more
DEPENDS = "depends_on_libc"  # beside what `record` gives, in manifests: the operators that the C library counts for
FIRST_BYTES = 4096  # of the system's list of processors: the flags of the first one


def choose() -> None:
    """Let numpy compute as every machine of the class, unless it is loaded or the user has chosen otherwise."""
    if "numpy" in sys.modules or not is_exact() or not _has_v3():
        return
    version = _numpy_version()
    names = next(names for since, names in NAMES.items() if version >= since)
    before = dict(pair.split("=", 1) for pair in os.environ.get(EXACT_VARIABLE, "").split(";") if "=" in pair)
    wanted = {CORE_VARIABLE: CORE, FEATURES_VARIABLE: names}
    _CHOSEN.update({name: value for name, value in wanted.items() if os.environ.get(name) in (None, before.get(name))})
    os.environ.update(_CHOSEN)
    os.environ[EXACT_VARIABLE] = ";".join(f"{name}={value}" for name, value in _CHOSEN.items())


def is_exact() -> bool:
    """Whether this process was started to compute as every machine of the class."""
    return os.environ.get(EXACT_VARIABLE) != "0"


def is_command(words: Sequence[str]) -> None:
    """This process is the command `runner` with these words: `require` may start it again.

    Where `exact=false` is one of them it need not, as long as numpy is not loaded. The config decides, later.
    """
    if os.environ.pop(AGAIN_VARIABLE, None) is not None or not sys.executable:
        return
    _COMMAND[:] = [sys.executable, *sys.orig_argv[1:]]
    if FASTEST in words and "numpy" not in sys.modules:
        kept = environment()
        for name in [*_CHOSEN]:
            if name not in kept:
                del os.environ[name]
        _CHOSEN.clear()
        os.environ[EXACT_VARIABLE] = "0"


def require(exact: bool) -> None:
    """Start the command again, once, where it has to compute otherwise: numpy reads its variables when it is loaded,
    and the config is known later. To be called before anything is written, and before other processes are started. No
    effect in processes that are not the command, such as a notebook.
    """
    if _COMMAND and _computes_otherwise(exact):
        sys.stdout.flush()
        sys.stderr.flush()
        variables = {**environment(), EXACT_VARIABLE: "" if exact else "0", AGAIN_VARIABLE: "1"}
        os.execve(_COMMAND[0], _COMMAND, variables)


def _computes_otherwise(exact: bool) -> bool:
    """Whether this process was started for the other value of the key, on a processor that makes a difference."""
    return is_wide() and (not is_exact() if exact else bool(_CHOSEN))


def remark(exact: bool) -> str | None:
    """What is to say where the numbers are not those of this value of the key; None where they are.

    With `exact` that is another class, unless the user has chosen it by variables.
    """
    found = record()
    if exact:
        is_own = {CORE_VARIABLE, FEATURES_VARIABLE} <= os.environ.keys()
        if not is_wide() or found["class"] == V3 or is_own:
            return None
        repair = "import runner before numpy" if is_exact() else f"start Python without {EXACT_VARIABLE}"
    elif _computes_otherwise(exact):
        repair = f"start Python with {EXACT_VARIABLE}=0, or the command: runner {FASTEST} ..."
    else:
        return None
    what = f"exact={str(exact).lower()} has no effect in this process, which has loaded numpy before"
    return f"{what}: its numbers are those of {found['class']} ({found['blas']}); {repair}"


def is_wide() -> bool:
    """Whether the processor has AVX-512, so that `exact=false` makes a difference."""
    return b"avx512f" in _flags()


def environment() -> dict[str, str]:
    """The variables of this process without what was chosen here: a script that loads numpy first did not have it."""
    return {name: value for name, value in os.environ.items() if _CHOSEN.get(name) != value}


@cache
def _flags() -> frozenset[bytes]:
    """What the processor can do, in the words of Linux; empty where it is no x86-64, and on other systems."""
    if os.uname().machine != X86:
        return frozenset()
    try:
        with open("/proc/cpuinfo", "rb") as file:
            return frozenset(file.read(FIRST_BYTES).split())
    except OSError:
        return frozenset()


def _has_v3() -> bool:
    return _flags() >= {b"avx2", b"fma"}


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
    return {"class": _class(pools), "blas": " and ".join(map(_described, pools)) or "unknown", LIBC: _libc()}


def differences(before: dict[str, Any]) -> str:
    """What computes in another way than a recorded process did, on one line; empty if nothing does."""
    of_class = str(before.get("class")).partition(OTHERS)[0]
    found = {name: (before.get(name), now) for name, now in record().items()}
    if of_class == record()["class"]:  # what else was recorded is compared by `resume`
        del found["class"]
    if has_same_bits(*found[LIBC], before.get(DEPENDS)):
        del found[LIBC]
    pairs = found.items()
    return ", ".join(f"{name} {was} there and {now} here" for name, (was, now) in pairs if was not in (None, now))


def has_same_bits(was: object, now: object, *operators: object) -> bool:
    """Whether one C library computes what another one does, in runs with these operators that depend on it.

    Without any, versions of one library do. Older records do not have the operators, so they may be there.
    """
    return all(names == [] for names in operators) and str(was).split()[:1] == str(now).split()[:1]


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
