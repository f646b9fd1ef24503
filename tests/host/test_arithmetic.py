"""The class of machines with the same numbers: chosen before numpy is loaded, recorded, and compared."""

import json
import os
import sys
from hashlib import sha256
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from other_processors import CHOSEN, needs_emulator, python, started
from ranks import mpirun, needs_mpi
from soak import SOAK, thinned

import runner
from runner import Model, Tensor, cli, context, nn, ops, register
from runner.core.operators import Primitive, primitive
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError
from runner.experiment.resume import resume
from runner.host import arithmetic
from runner.host.arithmetic import AGAIN_VARIABLE, CORE_VARIABLE, EXACT_VARIABLE, FEATURES_VARIABLE, V3, V4

RECORD = "import runner; from runner.host import arithmetic; print(arithmetic.record()['class'])"
FLAGS = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
has_v3 = pytest.mark.skipif("avx2" not in FLAGS or "fma" not in FLAGS, reason="a processor with AVX2 and FMA")
has_v4 = pytest.mark.skipif("avx512f" not in FLAGS, reason="a processor with AVX-512")


def class_of(code: str, **variables: str) -> str:
    """What a new process prints, with warnings as errors, of imports too."""
    return python("-W", "error", "-c", code, **variables).strip()


@has_v3
def test_the_class_of_a_new_process():
    assert class_of(RECORD) == V3


@has_v4
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
    assert manifest["arithmetic"] == arithmetic.record() | {"depends_on_libc": []}
    assert cli.main(["resume", "r", "epochs=3"]) == 0
    assert caplog.text == ""
    manifest["arithmetic"]["class"] = "aarch64"
    Path("r/manifest.json").write_text(json.dumps(manifest))
    assert cli.main(["resume", "r", "epochs=4"]) == 0
    assert f"class aarch64 there and {arithmetic.record()['class']} here" in caplog.text


def test_golden_values_of_a_class(tmp_path, monkeypatch, capsys):
    """On another processor of the class every bit counts; on another class, or of an unknown one, the tolerance."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arithmetic, "record", lambda: {"class": V3, "blas": "openblas", "libc": "glibc 2.36"})
    assert cli.main([*TINY, "mode=pynative", "hydra.run.dir=r"]) == 0
    assert cli.main(["golden", "--update", "g.json", "r"]) == 0
    golden = json.loads(Path("g.json").read_text())
    assert golden["key"]["arithmetic.class"] == V3

    def checked(**changes: Any) -> str:
        write_golden(golden, **changes)
        capsys.readouterr()
        assert cli.main(["golden", "--check", "g.json", "r"]) == 0
        return capsys.readouterr().out

    assert "unchanged, bit for bit" in checked(cpu="another processor")
    assert f"within tolerance (arithmetic.class was aarch64, is {V3})" in checked(**{"arithmetic.class": "aarch64"})
    older = dict.fromkeys(("arithmetic.class", "arithmetic.blas", "arithmetic.libc"))
    assert "unchanged, bit for bit" in checked(**older)
    assert "unchanged, within tolerance (cpu was another processor, is " in checked(**older, cpu="another processor")


def write_golden(golden: dict[str, Any], **changes: Any) -> None:
    """Write `g.json` with other values in its key; None leaves one out."""
    key = {**golden["key"], **changes}
    content = {**golden, "key": {name: value for name, value in key.items() if value is not None}}
    Path("g.json").write_text(json.dumps(content))


# Operators that depend on the C library.


@primitive
class Twice(Primitive):
    def infer(self, x):
        return x

    def kernel(self, x):
        return x + x

    def lower(self, b, x):
        return b.node("Add", (x, x))

    def grad(self, inputs, outputs, douts):
        return (douts[0] * 2.0,)


class Bent(nn.Cell):
    def __init__(self, num_classes: int, own: bool = False, evaluated: bool = False) -> None:
        super().__init__()
        self.flatten, self.dense, self.elu = nn.Flatten(), nn.Dense(1024, 8), nn.ELU()
        self.tan, self.last, self.own, self.evaluated = ops.Tan(), nn.Dense(8, num_classes), own, evaluated

    def construct(self, x):
        x = self.last(self.tan(self.elu(self.dense(self.flatten(x)))))
        x = ops.Sinh()(x) if self.evaluated and not self.training else x
        return Twice()(x) if self.own else x


@pytest.fixture
def bent() -> None:
    """The network is registered, for this test."""
    register.network("bent")(Bent)


MODES = "graph", "pynative"
SAYS = "the last bits of this run are those of the C library"


def train(*words: str, folder: str = "r") -> list[str]:
    """A run; the operators of its manifest."""
    assert cli.main([*TINY, *words, f"hydra.run.dir={folder}"]) == 0
    return dependent(folder)


def dependent(folder: str) -> list[str]:
    found: list[str] = json.loads(Path(folder, "manifest.json").read_text())["arithmetic"]["depends_on_libc"]
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sinks", ["false", "true"])
def test_lenet_depends_on_no_c_library(tmp_path, monkeypatch, caplog, mode, sinks):
    monkeypatch.chdir(tmp_path)
    assert train("network=lenet5", f"mode={mode}", f"dataset_sink_mode={sinks}") == []
    assert SAYS not in caplog.text


def test_a_run_names_the_operators_that_depend_on_the_c_library(bent, tmp_path, monkeypatch, caplog):
    """Those of the mode that it is in: graph mode computes Elu of other functions."""
    for number, (mode, expected) in enumerate({"graph": ["Tan"], "pynative": ["Elu", "Tan"]}.items()):
        (tmp_path / mode).mkdir()
        monkeypatch.chdir(tmp_path / mode)
        assert train("network=bent", f"mode={mode}") == expected
        assert caplog.text.count(SAYS) == number + 1
        verb = "depends" if mode == "graph" else "depend"
        assert f"{SAYS} {arithmetic.record()['libc']}: {', '.join(expected)} {verb} on it\n" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_an_own_operator_is_named_as_such(bent, tmp_path, monkeypatch, caplog, mode):
    monkeypatch.chdir(tmp_path)
    assert train("network=bent", f"mode={mode}", "network.own=true")[-2:] == ["Tan", "own operator Twice"]
    assert "on it; own operator Twice: its kernel may depend on anything" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_an_operator_of_the_evaluation_is_named(bent, tmp_path, monkeypatch, mode):
    """The manifest, which is written after the first step, is written again."""
    monkeypatch.chdir(tmp_path)
    assert "Sinh" in train("network=bent", f"mode={mode}", "network.evaluated=true")
    assert "Sinh" not in train("network=bent", f"mode={mode}", "eval.every=never", folder="without")


def test_golden_values_of_another_c_library(bent, tmp_path, monkeypatch, capsys):
    """They are those of LeNet, bit for bit; a network with Elu is compared within the tolerance."""
    other = {"arithmetic.libc": "glibc 2.17"}
    for name, is_equal in {"lenet5": True, "bent": False}.items():
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        train(f"network={name}", "mode=pynative")
        assert cli.main(["golden", "--update", "g.json", "r"]) == 0
        golden = json.loads(Path("g.json").read_text())

        def check(code: int, expected: str, golden: Any = golden, **changes: Any) -> None:
            write_golden(golden, **changes)
            capsys.readouterr()
            assert cli.main(["golden", "--check", "g.json", "r"]) == code
            captured = capsys.readouterr()
            assert expected in captured.out + captured.err

        tolerant = f"within tolerance (arithmetic.libc was glibc 2.17, is {arithmetic.record()['libc']})"
        check(0, "unchanged, bit for bit" if is_equal else tolerant, **other)
        check(0, tolerant, **other, **{"arithmetic.depends_on_libc": None})  # an older file
        check(0, "within tolerance", **{"arithmetic.libc": "musl 1.2"})
        tensor = next(iter(golden["tensors"]))
        changed = {**golden["tensors"][tensor], "sha256": "0" * 64}
        golden["tensors"][tensor] = changed  # its norm stays
        check(6 if is_equal else 0, f"tensor {tensor}" if is_equal else tolerant, **other)
        check(6, f"tensor {tensor}")
        check(6, f"tensor {tensor}", **{"arithmetic.depends_on_libc": ["Erf"]})  # another code


def test_a_resumed_run_keeps_the_operators_of_its_first_process(tmp_path, monkeypatch, caplog):
    """Such as one of a branch that no later step takes."""
    monkeypatch.chdir(tmp_path)
    train("network=lenet5", "mode=pynative")
    manifest = json.loads(Path("r/manifest.json").read_text())
    manifest["arithmetic"]["depends_on_libc"] = ["Erf"]
    Path("r/manifest.json").write_text(json.dumps(manifest))
    assert cli.main(["resume", "r", "epochs=3"]) == 0
    assert dependent("r") == ["Erf"]
    assert SAYS not in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_the_run_of_a_script_names_its_operators(tmp_path, monkeypatch, caplog, mode):
    monkeypatch.chdir(tmp_path)
    context.set_context(mode={"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}[mode])
    ops.Sinh()(Tensor(np.ones(3, np.float32)))  # before the run
    columns = {"x": np.ones((8, 1024), np.float32), "y": np.zeros(8, np.int32)}
    data = NumpySlicesDataset(columns, shuffle=False).batch(4)
    network = Bent(3)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    with runner.record("r", {}) as run:
        run.train(Model(network, loss, nn.SGD(network.trainable_params(), 0.1)), 1, data, dataset_sink_mode=False)
    assert dependent("r") == {"graph": ["Tan"], "pynative": ["Elu", "Tan"]}[mode]
    assert SAYS in caplog.text


def test_a_resume_with_another_c_library_says_so_where_it_counts(bent, tmp_path, monkeypatch, caplog):
    for name, counts in {"lenet5": False, "bent": True}.items():
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        expected = train(f"network={name}", "mode=pynative")
        manifest = json.loads(Path("r/manifest.json").read_text())
        manifest["arithmetic"]["libc"] = "glibc 2.17"
        Path("r/manifest.json").write_text(json.dumps(manifest))
        caplog.clear()
        assert cli.main(["resume", "r", "epochs=3"]) == 0
        assert ("libc glibc 2.17 there and" in caplog.text) is counts
        assert dependent("r") == expected
        del manifest["arithmetic"]["depends_on_libc"]  # an older run
        Path("r/manifest.json").write_text(json.dumps(manifest))
        assert cli.main(["resume", "r", "epochs=4"]) == 0
        assert "libc glibc 2.17 there and" in caplog.text


SYNTHETIC = ("dataset=synthetic", "dataset.num_samples=512", "callbacks=quiet", "device.threads=2")
UNSUNK = "dataset_sink_mode=false"
RESNET = ("+experiment=resnet50_tiny", "~expect", "max_steps=1")
RUNS = {
    "100 classes": ("mode=graph", "network.num_classes=100", "dataset.batch_size=64", UNSUNK),  # in four parts
    "large batches": ("mode=graph", "dataset.batch_size=256", UNSUNK),
    "sunk": ("mode=graph", "sink_size=2", "optimizer=adam"),
    "sgd": ("mode=graph", "optimizer=sgd", UNSUNK),
    "loss scale": ("mode=graph", "session.precision_mode=allow_mix_precision", UNSUNK),
    "lenet": ("mode=pynative", UNSUNK),
    "mlp": ("mode=pynative", "network=mlp", UNSUNK, "optimizer=adam"),
    "resnet": (*RESNET, "mode=graph"),
    "resnet, pynative": (*RESNET, "mode=pynative"),
}
PROCESSORS = (None, "Haswell", *(("EPYC-v2",) if SOAK else ()))


@has_v3
@needs_emulator
@pytest.mark.parametrize("name", [*thinned(RUNS, every=5)])
def test_whole_runs_on_other_processors(tmp_path, name):
    """With default settings, whatever processor this machine has."""
    words = (*RUNS[name], *SYNTHETIC)
    words = words if "max_steps=1" in words else (*words, "max_steps=2")
    found = {}
    for processor in PROCESSORS:
        folder = tmp_path / str(processor)
        warnings = "-Werror::ImportWarning"  # what numpy says of unknown names
        python(warnings, "-m", "runner", *words, f"hydra.run.dir={folder}", processor=processor, cwd=tmp_path)
        (tensors,) = folder.glob("checkpoints/*/state.safetensors")
        found[processor] = [sha256(path.read_bytes()).hexdigest() for path in (folder / "metrics.jsonl", tensors)]
    assert len({tuple(digests) for digests in found.values()}) == 1, found


OWN = """
from hashlib import sha256
from test_equal_threads import MAKES, context, steps
import runner.compile.parts as parts
parts.PART_FLOPS = 1000
for name in MAKES:
    for mode in (context.GRAPH_MODE, context.PYNATIVE_MODE):
        print(name, mode, sha256(b"".join(steps(name, 2, mode, count=2)[0])).hexdigest())
"""


@has_v3
@needs_emulator
@pytest.mark.skipif(not SOAK, reason="make soak")
def test_networks_that_runner_never_saw_on_other_processors(tmp_path):
    """With dropout, ELU and attention, one that mixes its rows, and an imported transformer, in parts."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1] / 'end_to_end')!r})\n{OWN}"
    done = [started("-c", code, processor=processor, cwd=tmp_path) for processor in PROCESSORS]
    assert [one.returncode for one in done] == [0] * len(PROCESSORS), done[0].stderr
    assert len({one.stdout for one in done}) == 1
    assert len(done[0].stdout.splitlines()) == 6


# The key `exact`. What is asserted is what numpy and its BLAS say of themselves in the manifest of a real run.

SHORT = ("mode=pynative", "network=lenet5", "dataset=synthetic", "dataset.num_samples=256", "max_steps=2")
QUIET = ("callbacks=quiet", "eval.every=never")


def arithmetic_of(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "manifest.json").read_text())["arithmetic"]
    return found


def test_without_exactness_threads_are_of_the_class(tmp_path, monkeypatch):
    """Graph mode computes whole batches then, with all threads at once: of parts there is no trace."""
    monkeypatch.chdir(tmp_path)
    words = ("mode=graph", *SHORT[1:-1], *QUIET, "dataset.batch_size=64", "dataset_sink_mode=false", "device.threads=2")
    for name, exact, steps in (("exact", "true", 2), ("fast", "false", 2), ("whole", "false", 3)):
        assert cli.main([*words, f"exact={exact}", f"max_steps={steps}", f"hydra.run.dir={name}"]) == 0
    assert arithmetic_of(Path("exact"))["class"] == arithmetic.record()["class"]
    assert arithmetic_of(Path("fast"))["class"] == f"{arithmetic.record()['class']}, 2 threads"
    assert cli.main(["resume", "exact", "max_steps=3", "device.threads=1"]) == 0
    with pytest.raises(ConfigError, match="the config of the run has changed"):
        resume("fast", ["max_steps=3", "device.threads=1"])
    resume("fast", ["max_steps=3", "device.threads=2"])
    assert Path("fast/metrics.jsonl").read_bytes() == Path("whole/metrics.jsonl").read_bytes()


def class_in(folder: Path, *words: str, **variables: str) -> str:
    """The class of machines in the manifest of a run that a new process makes."""
    python("-m", "runner", *words, *QUIET, f"hydra.run.dir={folder}", **variables)
    return arithmetic_of(folder)["class"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """The flag of a folder with the experiments `fast` and `exact`."""
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    for name, value in {"fast": "false", "exact": "true"}.items():
        lines = "# @package _global_", "defaults:", "  - override /network: lenet5", f"exact: {value}"
        (tmp_path / "conf" / "experiment" / f"{name}.yaml").write_text("\n".join(lines))
    return "-cd", str(tmp_path / "conf")


@has_v4
def test_the_fastest_kernels_of_a_machine(tmp_path, files):
    """A word acts before numpy is loaded; for a file the command starts again, once, before it has written anything."""
    starts, own = tmp_path / "starts", tmp_path / "own.py"
    own.write_text(f"open({str(starts)!r}, 'a').write('x')")

    def ran(name: str, *words: str) -> tuple[str, int]:
        starts.unlink(missing_ok=True)
        return class_in(tmp_path / name, *SHORT, *words, RUNNER_CODE=str(own)), len(starts.read_text())

    assert ran("default") == (V3, 1)
    assert ran("exact", "exact=true") == (V3, 1)
    assert ran("word", "exact=false") == (V4, 1)
    assert ran("another spelling", "exact=False") == (V4, 2)
    assert ran("file", *files, "+experiment=fast") == (V4, 2)
    assert ran("word over file", *files, "+experiment=fast", "exact=true") == (V3, 1)
    (tmp_path / "conf" / "mine.yaml").write_text("defaults:\n  - config\n  - _self_\nexact: false\n")
    assert ran("main config", *files, "-cn", "mine") == (V4, 2)


@has_v4
def test_a_run_with_the_fastest_kernels_is_resumed_and_evaluated_with_them(tmp_path):
    """Nothing says it but the config of the run."""
    run = tmp_path / "run"
    assert class_in(run, *SHORT, "exact=false") == V4
    python("-m", "runner", "resume", str(run), "max_steps=4")
    assert arithmetic_of(run)["class"] == V4
    assert json.loads((run / "summary.json").read_text())["steps"] == 4
    python("-m", "runner", "eval", str(run), f"hydra.run.dir={tmp_path / 'eval'}")
    assert arithmetic_of(tmp_path / "eval")["class"] == V4


def test_a_resumed_run_keeps_the_key(tmp_path, capsys):
    assert cli.main([*SHORT, *QUIET, f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    assert cli.main(["resume", str(tmp_path / "run"), "max_steps=4", "exact=false"]) == 2
    assert "exact" in capsys.readouterr().err


@has_v4
def test_variables_of_the_user_stay(tmp_path, files):
    """Also where the command starts again, and in a process whose parent has imported runner."""
    narrow = python("-c", f"import runner, os; print(os.environ[{FEATURES_VARIABLE!r}])").strip()
    for number, words in enumerate([["exact=false"], [*files, "+experiment=fast"]]):
        core, features = tmp_path / f"core{number}", tmp_path / f"features{number}"
        assert class_in(core, *SHORT, *words, **{CORE_VARIABLE: "Haswell"}) == V4
        assert arithmetic_of(core)["blas"].endswith(" Haswell")
        assert class_in(features, *SHORT, *words, **{FEATURES_VARIABLE: narrow}) == f"{V3} with another BLAS"
    words = ["-m", "runner", *SHORT, *QUIET, "exact=false"]
    sets = f"os.environ[{CORE_VARIABLE!r}] = 'Sandybridge'; "
    for name, before in {"of the parent": "", "of the user": sets}.items():
        command = [*words, f"hydra.run.dir={tmp_path / name}"]
        code = f"import os, subprocess, sys, runner; {before}subprocess.run([sys.executable, *{command!r}], check=True)"
        python("-c", code)
    assert arithmetic_of(tmp_path / "of the parent")["blas"] != arithmetic.record()["blas"]
    assert arithmetic_of(tmp_path / "of the parent")["class"] == V4
    assert arithmetic_of(tmp_path / "of the user")["blas"].endswith(" Sandybridge")


@has_v4
def test_a_command_starts_again_only_once(tmp_path, files):
    """Where that has not helped, it runs and says so."""
    words = ("-m", "runner", *SHORT, *QUIET, *files, "+experiment=fast", f"hydra.run.dir={tmp_path / 'run'}")
    done = started(*words, **{AGAIN_VARIABLE: "1"})
    assert done.returncode == 0
    assert done.stderr.startswith("exact=false has no effect in this process")
    assert arithmetic_of(tmp_path / "run")["class"] == V3


@has_v4
def test_a_command_of_a_process_with_the_fastest_kernels_is_exact(tmp_path):
    """The config decides, not a variable that is inherited."""
    assert class_in(tmp_path / "run", *SHORT, **{EXACT_VARIABLE: "0"}) == V3


@has_v4
@pytest.mark.parametrize(
    ("first", "exact", "found", "repair"),
    [
        ("runner", "false", V3, f"start Python with {EXACT_VARIABLE}=0"),
        ("runner", "true", V3, None),
        ("numpy", "true", V4, "import runner before numpy"),
        ("numpy", "false", V4, None),
    ],
)
def test_python_says_when_its_numbers_are_others(tmp_path, first, exact, found, repair):
    """It has loaded numpy, and does not start again, whatever its words are. What the remark names helps."""
    words = [*SHORT, *QUIET, f"exact={exact}"]

    def ran(first: str, folder: Path, **variables: str) -> tuple[str, str]:
        code = f"import {first}, runner; runner.run({[*words, f'hydra.run.dir={folder}']!r})"
        done = started("-c", code, "exact=false", **variables)
        assert done.returncode == 0, done.stderr
        return arithmetic_of(folder)["class"], done.stderr

    name, said = ran(first, tmp_path / "run")
    assert name == found
    if repair is None:
        assert said == ""
    else:
        assert said.startswith(f"exact={exact} has no effect in this process")
        assert f"its numbers are those of {found} (" in said
        assert repair in said
        assert said.count("\n") == 1
        wanted = {"true": V3, "false": V4}[exact]
        variables = {EXACT_VARIABLE: "0"} if exact == "false" else {}
        assert ran("runner", tmp_path / "other", **variables) == (wanted, "")


def classes_of(sweep: Path) -> list[str]:
    return [arithmetic_of(sweep / str(number))["class"] for number in range(2)]


@has_v4
@pytest.mark.parametrize("launcher", ["basic", "pool"])
def test_a_sweep_with_the_fastest_kernels(tmp_path, launcher):
    words = ("-m", "runner", "-m", *SHORT, *QUIET, "seed=1,2", f"hydra/launcher={launcher}")
    for name, word in {"word": "exact=false", "again": "exact=False"}.items():
        python(*words, word, f"hydra.sweep.dir={tmp_path / name}")
        assert classes_of(tmp_path / name) == [V4, V4]


@has_v4
def test_a_resumed_sweep_has_the_kernels_of_its_journal(tmp_path, monkeypatch):
    """The word is only there; the second job is the one that is resumed."""
    own, mark, sweep = tmp_path / "own.py", tmp_path / "mark", tmp_path / "sweep"
    own.write_text(FRAGILE.format(mark=str(mark)))
    words = (*SHORT, *QUIET, "network=fragile", "+network.limit=1,9", "exact=false", f"hydra.sweep.dir={sweep}")
    words = tuple(word for word in words if word != "network=lenet5")
    assert started("-m", "runner", "-m", *words, RUNNER_CODE=str(own)).returncode == 8
    mark.touch()
    assert not (sweep / "1" / "summary.json").exists()
    python("-m", "runner", "resume", str(sweep), RUNNER_CODE=str(own))
    assert classes_of(sweep) == [V4, V4]
    assert (sweep / "1" / "summary.json").exists()


FRAGILE = """
from pathlib import Path
from runner import nn, register

@register.network("fragile")
def fragile(num_classes: int, limit: int = 1) -> nn.Cell:
    if limit > 1 and not Path({mark!r}).exists():
        raise RuntimeError("not yet")
    return nn.SequentialCell(nn.Flatten(), nn.Dense(1024, num_classes))
"""


def test_the_jobs_of_a_sweep_have_one_value(tmp_path, files, capsys):
    """Swept values are refused before anything is written; a job with another value fails and says why."""
    sweep = tmp_path / "sweep"
    assert cli.main(["-m", *SHORT, *QUIET, "exact=true,false", f"hydra.sweep.dir={sweep}"]) == 2
    found = capsys.readouterr().err
    assert "exact\n  value   true,false\n  repair  a sweep for each: runner -m exact=true ..." in found
    assert not sweep.exists()
    words = (*SHORT[2:], *QUIET, *files, "+experiment=exact,fast")
    assert cli.main(["-m", *words, f"hydra.sweep.dir={sweep}"]) == 8
    assert "value   false\n" in capsys.readouterr().err
    statuses = [json.loads((sweep / str(n) / "status.json").read_text())["status"] for n in range(2)]
    assert statuses == ["ok", "failed"]


@has_v4
@needs_mpi
def test_ranks_with_the_fastest_kernels(tmp_path, files):
    """Each starts again before it joins the others."""
    words = (*SHORT, *QUIET, "parallel=data_parallel", *files, "+experiment=fast")
    code, _, errors = mpirun(2, "-m", "runner", *words, f"hydra.run.dir={tmp_path / 'run'}")
    assert (code, errors) == (0, "")
    assert arithmetic_of(tmp_path / "run")["class"] == V4


def test_golden_values_with_the_fastest_kernels(tmp_path, monkeypatch, capsys):
    """Bit for bit on one processor; on another one the tolerance, and a line. Values of exact runs are others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arithmetic, "record", lambda: {"class": V4, "blas": "openblas SkylakeX", "libc": "glibc 2.36"})
    for name in ("false", "true"):
        assert cli.main([*SHORT, *QUIET, f"exact={name}", f"hydra.run.dir=run-{name}"]) == 0
    assert cli.main(["golden", "--update", "g.json", "run-false"]) == 0
    golden = json.loads(Path("g.json").read_text())
    assert (golden["key"]["exact"], golden["key"]["arithmetic.class"]) == (False, V4)
    capsys.readouterr()
    assert cli.main(["golden", "--check", "g.json", "run-false"]) == 0
    assert "unchanged, bit for bit" in capsys.readouterr().out
    assert cli.main(["golden", "--check", "g.json", "run-true"]) == 6
    assert "key.exact" in capsys.readouterr().err
    write_golden(golden, cpu="another processor")
    assert cli.main(["golden", "--check", "g.json", "run-false"]) == 0
    assert "unchanged, within tolerance (cpu was another processor, is " in capsys.readouterr().out
