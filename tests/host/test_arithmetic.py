"""The class of machines with the same numbers: chosen before numpy is loaded, recorded, and compared."""

import json
import os
import sys
from hashlib import sha256
from itertools import permutations
from pathlib import Path

import pytest
from other_processors import CHOSEN, needs_emulator, python
from soak import SOAK, thinned

from runner import cli
from runner.host import arithmetic
from runner.host.arithmetic import CORE_VARIABLE, FEATURES_VARIABLE, V3, V4

RECORD = "import runner; from runner.host import arithmetic; print(arithmetic.record()['class'])"
FLAGS = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
has_v3 = pytest.mark.skipif("avx2" not in FLAGS or "fma" not in FLAGS, reason="a processor with AVX2 and FMA")


def class_of(code: str, **variables: str) -> str:
    """What a new process prints, with warnings as errors, of imports too."""
    return python("-W", "error", "-c", code, **variables).strip()


@has_v3
def test_the_class_of_a_new_process():
    assert class_of(RECORD) == V3


@has_v3
@pytest.mark.skipif("avx512f" not in FLAGS, reason="a processor with AVX-512")
def test_what_is_really_used_is_recorded():
    """Where numpy was loaded before runner, or the user has chosen, the class is another one, and it says so."""
    assert class_of("import numpy; " + RECORD) == V4
    assert class_of(RECORD, **{FEATURES_VARIABLE: ""}) == V4
    assert class_of(RECORD, **{CORE_VARIABLE: "SkylakeX"}) == f"{V3} with another BLAS"


@has_v3
def test_a_script_is_started_again_without_what_the_command_has_chosen():
    """It may load numpy first, and then had other kernels than it would have now."""
    code = "import {first}, os, runner.host.arithmetic as a; print({{*os.environ}} - {{*a.environment()}})"
    assert class_of(code.format(first="json")) in (f"{{{a!r}, {b!r}}}" for a, b in permutations(CHOSEN))
    assert class_of(code.format(first="json"), **{CORE_VARIABLE: "Haswell"}) == str({FEATURES_VARIABLE})
    assert class_of(code.format(first="numpy")) == "set()"


def test_each_numpy_is_given_the_names_that_it_knows(tmp_path, monkeypatch):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy/__init__.py").write_text("")
    monkeypatch.setattr(arithmetic, "_has_v3", lambda: True)
    before = {"AVX512F", "AVX512CD", "AVX512_SKX", "AVX512_CLX", "AVX512_CNL", "AVX512_ICL"}
    grouped = {"X86_V4", "AVX512_ICL", "AVX512_SPR"}
    known = dict.fromkeys(("1.26.4", "2.0.2", "2.2.6"), before) | {"2.3.5": {*before, "AVX512_SPR"}, "2.4.6": grouped}
    for version, expected in known.items():
        (tmp_path / "numpy/version.py").write_text(f'"""Versions."""\nversion = "{version}"\n')
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [str(tmp_path)])
            patch.delitem(sys.modules, "numpy")
            patch.delenv(FEATURES_VARIABLE, raising=False)
            arithmetic.choose()
            assert {*os.environ[FEATURES_VARIABLE].split()} == expected, version


TINY = ("dataset=synthetic", "dataset.num_samples=64", "epochs=2", "callbacks=quiet", "dataset_sink_mode=false")


def test_a_run_resumed_on_another_machine_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*TINY, "mode=pynative", "hydra.run.dir=r"]) == 0
    manifest = json.loads(Path("r/manifest.json").read_text())
    assert manifest["arithmetic"] == arithmetic.record()
    assert cli.main(["resume", "r", "epochs=3"]) == 0
    assert caplog.text == ""
    manifest["arithmetic"]["class"] = "aarch64"
    Path("r/manifest.json").write_text(json.dumps(manifest))
    assert cli.main(["resume", "r", "epochs=4"]) == 0
    assert f"class aarch64 there and {arithmetic.record()['class']} here" in caplog.text


def test_golden_values_of_a_class(tmp_path, monkeypatch, capsys):
    """On another processor of the class every bit counts; on another class, or of an unknown one, the tolerance."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arithmetic, "record", lambda: {"class": V3, "blas": "openblas", "libc": "glibc"})
    assert cli.main([*TINY, "mode=pynative", "hydra.run.dir=r"]) == 0
    assert cli.main(["golden", "--update", "g.json", "r"]) == 0
    golden = json.loads(Path("g.json").read_text())
    assert golden["key"]["arithmetic.class"] == V3

    def checked(**changes: str | None) -> str:
        key = {**golden["key"], **changes}
        content = {**golden, "key": {name: value for name, value in key.items() if value is not None}}
        Path("g.json").write_text(json.dumps(content))
        capsys.readouterr()
        assert cli.main(["golden", "--check", "g.json", "r"]) == 0
        return capsys.readouterr().out

    assert "unchanged, bit for bit" in checked(cpu="another processor")
    assert f"within tolerance (arithmetic.class was aarch64, is {V3})" in checked(**{"arithmetic.class": "aarch64"})
    older = dict.fromkeys(("arithmetic.class", "arithmetic.blas", "arithmetic.libc"))
    assert "unchanged, bit for bit" in checked(**older)
    assert "unchanged, within tolerance (cpu was another processor, is " in checked(**older, cpu="another processor")


RUNS = {
    "lenet": ("mode=pynative", "dataset_sink_mode=false"),
    "100 classes": ("mode=graph", "network.num_classes=100", "dataset_sink_mode=false"),
    "sunk": ("mode=graph", "sink_size=2", "optimizer=adam"),
    "mlp": ("mode=pynative", "network=mlp", "dataset_sink_mode=false", "optimizer=adam"),
    "resnet": ("+experiment=resnet50_tiny", "mode=pynative", "max_steps=1", "expect.accuracy.min=0"),
}


@has_v3
@needs_emulator
@pytest.mark.parametrize("name", [*thinned(RUNS, every=9)])
def test_whole_runs_on_other_processors(tmp_path, name):
    """With default settings, whatever processor this machine has."""
    words = (*RUNS[name], "dataset=synthetic", "dataset.num_samples=64", "callbacks=quiet", "device.threads=1")
    words = words if "max_steps=1" in words else (*words, "max_steps=2")
    found = {}
    for processor in (None, "Haswell", *(("EPYC-v2",) if SOAK else ())):
        folder = tmp_path / str(processor)
        warnings = "-Werror::ImportWarning"  # what numpy says of unknown names
        python(warnings, "-m", "runner", *words, f"hydra.run.dir={folder}", processor=processor, cwd=tmp_path)
        (tensors,) = folder.glob("checkpoints/*/state.safetensors")
        found[processor] = [sha256(path.read_bytes()).hexdigest() for path in (folder / "metrics.jsonl", tensors)]
    assert len({tuple(digests) for digests in found.values()}) == 1, found
