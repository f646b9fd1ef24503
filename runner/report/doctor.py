"""`runner doctor`: checks packages, machine, devices and the output folder, and suggests repairs.

It has a file of its own because it must load where packages are missing: this is what it reports.
"""

import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runner.compile.session import device_problem
from runner.device import BACKENDS, describe_runtimes
from runner.errors import DeviceError
from runner.host import arithmetic
from runner.host.machine import PACKAGES, cpu_model, memory_bytes, packages, runtimes, usable_cores

_MODULES = {"hydra-core": "hydra"}  # packages whose module has a different name
_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True)
class Finding:
    """One line of the report. `state` is ok, warning or failed; exit code 3 if any has failed."""

    part: str
    name: str
    value: str
    state: str = "ok"


def doctor(args: Namespace) -> int:
    """Print the report. Returns 0 if the CPU works and all packages are installed, otherwise 3."""
    findings = [*_packages(), *_machine(), *_devices(), _outputs(Path("outputs"))]
    console = Console()
    if console.is_terminal:
        console.print(_table(findings))
    else:
        for finding in findings:
            mark = "" if finding.state == "ok" else f"{finding.state}: "
            margin = "\n" + " " * 25
            text = f"{finding.part:<9}{finding.name:<16}{(mark + finding.value).replace(chr(10), margin)}"
            console.print(text, soft_wrap=True, markup=False, highlight=False)
    return DeviceError.exit_code if any(finding.state == "failed" for finding in findings) else 0


def _table(findings: list[Finding]) -> Table:
    table = Table("", "", "", "", box=None, show_header=False)
    before = ""
    for finding in findings:
        part, before = finding.part if finding.part != before else "", finding.part
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(part, finding.name, state, Text(finding.value))  # Text: pip's extras look like markup
    return table


def _packages() -> Iterator[Finding]:
    versions = packages()
    yield from (Finding("package", name, versions[name]) for name in ("python", "runner"))
    for name in PACKAGES:
        if find_spec(_MODULES.get(name, name)) is None:
            yield Finding("package", name, f"not installed: pip install {name}", "failed")
        else:
            note = f", {_blas()}" if name == "numpy" else ""
            yield Finding("package", name, versions.get(name, "not installed, imported from its folder") + note)
    installed = runtimes()
    state = {0: "failed", 1: "ok"}.get(len(installed), "warning")
    yield Finding("package", "onnxruntime", describe_runtimes(installed), state)


def _blas() -> str:
    described = (
        f"{pool['internal_api']} {pool['version']} with {pool['num_threads']} threads" for pool in arithmetic.blas()
    )
    return " and ".join(described) or "no BLAS recognised by threadpoolctl"


def _class() -> tuple[str, str]:
    """The class of machines with the same numbers, and whether it is the usual one of this processor."""
    found = arithmetic.record()
    text = f"{found['class']} ({found['blas']}, {found['libc']})"
    if found["class"] == arithmetic.V3:
        faster = f"; {arithmetic.FASTEST} has faster kernels of this one" * arithmetic.is_wide()
        return f"{text}: the same bits on every x86-64 processor with AVX2 and FMA{faster}", "ok"
    variables = f"{arithmetic.CORE_VARIABLE}, {arithmetic.FEATURES_VARIABLE} and {arithmetic.EXACT_VARIABLE}"
    repair = f"\nrepair: without {variables}, and numpy of PyPI"
    is_x86 = found["class"].startswith("x86-64") and found["class"] != arithmetic.V2
    return f"{text}: other bits than {arithmetic.V3}{repair * is_x86}", "warning"


def _machine() -> Iterator[Finding]:
    yield Finding("machine", "processor", cpu_model())
    yield Finding("machine", "class", *_class())
    yield Finding("machine", "cores", f"{usable_cores()} usable of {os.cpu_count()}")
    yield Finding("machine", "memory", f"{memory_bytes() / 2**30:.1f} GiB")


def _devices() -> Iterator[Finding]:
    for target, backend in BACKENDS.items():
        problem = device_problem(target)
        if problem is None:
            yield Finding("device", target, f"usable ({backend.provider} ran a convolution)")
            continue
        repair = problem.rows.get("repair")
        text = f"not usable: {problem.rows.get('reason', problem.what)}" + (f"\nrepair: {repair}" if repair else "")
        yield Finding("device", target, text, "failed" if target == "CPU" else "warning")


def _outputs(folder: Path) -> Finding:
    """Whether run directories can be created, judged by permissions: nothing is created."""
    absolute = folder.absolute()
    existing = next(path for path in (absolute, *absolute.parents) if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return Finding("folder", "outputs", f"{absolute} is writable")
    return Finding("folder", "outputs", f"{absolute} cannot be written: no permission in {existing}", "failed")
