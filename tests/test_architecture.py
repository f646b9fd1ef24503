"""The house rules, read from the syntax trees: floors, cycles, forbidden calls, sizes. Nothing is imported or run.

`ARCHITECTURE.md` has the floors with their reasons.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A module belongs to the longest prefix that fits, and imports from its own floor and from lower ones.
FLOORS = {
    **dict.fromkeys(("errors", "dtype", "types", "files", "seed", "machine", "device", "interrupt", "wire"), 0),
    **dict.fromkeys(("startup", "frozen", "resources", "registry", "rules", "judging", "jsonfile"), 0),
    **dict.fromkeys(("communication", "dataset"), 0),
    **dict.fromkeys(("core", "prints", "tracking"), 1),
    "ops": 2,
    **dict.fromkeys(("ir", "dumps", "profiling"), 2),
    "engine": 3,
    **dict.fromkeys(("nn", "common", "context", "auto_parallel"), 4),
    **dict.fromkeys(("compile", "checkpoint"), 5),
    **dict.fromkeys(("train", "observe", "system", "tuning"), 6),
    **dict.fromkeys(("config", "build", "dumping", "profiled", "tuned", "facts"), 7),
    **dict.fromkeys(("experiment", "expectations", "inference", "weights", "launch", "resume"), 7),
    **dict.fromkeys(("runs", "report", "ci", "sweeping"), 7),
    **dict.fromkeys(("ranks", "together", "following", "agreement", "tracked"), 7),
    **dict.fromkeys(("cli", "completion", "history", "doctor", "__init__", "__main__"), 7),
}
# Beyond the floors: who must not see whom, and why.
STRANGERS = {
    ("compile", "ops"): "an operator lowers itself: a new one needs no change in the compiler",
    ("compile", "nn"): "the compiler knows graphs, not layers",
    ("compile", "common"): "the compiler knows graphs, not layers",
    ("compile", "context"): "a device is an argument, not a setting that is read far below",
    ("compile", "dataset"): "a graph has inputs, whatever feeds them",
    ("ops", "ir"): "an operator does not know how it is shown",
    ("engine", "ir"): "modes do not know how their record is shown",
    ("checkpoint", "compile"): "weights do not know how they are run",
    ("compile", "checkpoint"): "the compiler knows no files",
    ("core", "dataset"): "values do not know where data come from",
    ("ops", "dataset"): "operators do not know where data come from",
    ("engine", "dataset"): "modes do not know where data come from",
    ("nn", "dataset"): "layers do not know where data come from",
}
THIRD_PARTIES = {
    "onnx": {f"runner.compile.{name}" for name in ("builder", "described", "fuse", "lower")},
    "onnxruntime": {"runner.compile.ort.session"},
    "hydra": {"runner.config"},
    "omegaconf": {"runner.config"},
    "safetensors": {"runner.train.checkpoint.arrays"},
    "mpi4py": {"runner.communication.mpi"},
    "tensorboardX": {"runner.experiment.tracking.tensorboard"},
    "mlflow": {"runner.experiment.tracking.mlflow"},
    "optuna": {"runner.experiment.sweep.optuna_study"},
    "torch": set(),
    "sklearn": set(),  # its import takes a second
}
MODELS_MAY_IMPORT = "runner.nn", "runner.ops", "runner.common", "runner.core.value"
RUNS_WHAT_IT_READS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc"}
PUBLIC_ADDRESSES = {"runner.common"}  # of the reference
LATE_IMPORTS = {"runner.run": "Hydra comes along with it, and scripts that use only the language need not wait for it"}
FILE_LINES, FUNCTION_LINES = 300, 40
# What is longer, and why it is better so.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}


@dataclass(frozen=True)
class Module:
    """A source file: its dotted name and its tree."""

    name: str
    text: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def place(self) -> str:
        """Its key in FLOORS."""
        return [*self.name.split("."), "__init__"][1]

    def imports(self, tree: ast.AST | None = None) -> Iterator[str]:
        """Dotted names of what is imported, also lazily; `from a import b` gives `a.b`."""
        for node in ast.walk(tree or self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name} imports relatively"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("lazy_import", "importlib.import_module"):
                yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def read(folder: str) -> dict[str, Module]:
    modules = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, path.read_text(encoding="utf-8"), is_package)
    return modules


RUNNER, MODELS = read("runner"), read("models")
EVERYTHING = [*RUNNER.values(), *MODELS.values()]


def module_of(imported: str, known: dict[str, Module]) -> str | None:
    """The module of ours that an imported name stands in."""
    while imported and imported not in known:
        imported = imported.rpartition(".")[0]
    return imported or None


def needed(module: Module, known: dict[str, Module]) -> set[str]:
    """The modules of ours that a module imports; the root package is the public face and asks nothing of them."""
    found = {module_of(name, known) for name in module.imports()}
    return {name for name in found if name not in (None, "runner", module.name)}


# The rules: each gives its complaints about a module.


def floor_complaints(module: Module, known: dict[str, Module]) -> Iterator[str]:
    for name in sorted(needed(module, known)):
        other = known[name]
        if FLOORS[other.place] > FLOORS[module.place]:
            yield f"{module.name} (floor {FLOORS[module.place]}) imports {name} (floor {FLOORS[other.place]})"
        if module.place == "dataset" and FLOORS[other.place] > 0:
            yield f"{module.name} imports {name}, and datasets need words only"
        if reason := STRANGERS.get((module.place, other.place)):
            yield f"{module.name} imports {name}: {reason}"


def late_import_complaints(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef) and f"{module.name}.{node.name}" not in LATE_IMPORTS:
            for name in module.imports(node):
                if name.split(".")[0] in ("runner", "models"):
                    yield f"{module.name}.{node.name} imports {name} when it is called"


def late_name_complaints(module: Module) -> Iterator[str]:
    """What a package loads late is what type checkers are told (and what `imports` sees), and is public."""
    late: set[str] = set()
    places: set[str] = set()  # modules are late names themselves
    told: set[str] = set()
    public: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "late_names":
            table = ast.literal_eval(node.args[1])
            late |= {f"{module.name}.{place}.{name}" for place, names in table.items() for name in names.split()}
            places |= {f"{module.name}.{place}" for place in table}
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            told |= {name for branch in node.body for name in module.imports(branch)}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            public |= {getattr(name, "value", "") for name in getattr(node.value, "elts", ())}
    if late:
        yield from (f"{name} is not both late and told to type checkers" for name in sorted(late ^ (told - places)))
        yield from (f"{name} is not both late and public" for name in sorted({n.split(".")[-1] for n in late} - public))


def name_complaints(module: Module) -> Iterator[str]:
    if module.name.rpartition(".")[2] in NAMELESS and module.name not in PUBLIC_ADDRESSES:
        yield f"{module.name} says nothing of what is in it"


def third_party_complaints(module: Module) -> Iterator[str]:
    for name in module.imports():
        allowed = THIRD_PARTIES.get(name.split(".")[0])
        if allowed is not None and not any(f"{module.name}.".startswith(f"{a}.") for a in allowed):
            yield f"{module.name} imports {name}"


def execution_complaints(module: Module) -> Iterator[str]:
    for name in module.imports():
        if name.split(".")[0] in RUNS_WHAT_IT_READS:
            yield f"{module.name} imports {name}, which executes what a file says"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in ("eval", "exec", "builtins.eval", "builtins.exec", "__import__"):
            yield f"{module.name}:{node.lineno} calls {called}"
        if called in ("np.load", "numpy.load"):
            safe = [ast.unparse(k.value) for k in node.keywords if k.arg == "allow_pickle"]
            if safe != ["False"]:
                yield f"{module.name}:{node.lineno} calls np.load without allow_pickle=False"


def size_complaints(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > FILE_LINES and module.name not in LONG_FILES:
        yield f"{module.name} has {lines} lines"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES and f"{module.name}.{node.name}" not in LONG_FUNCTIONS:
                yield f"{module.name}.{node.name} has {length} lines"


def model_complaints(module: Module) -> Iterator[str]:
    for name in module.imports():
        ours = name.split(".")[0] in ("runner", "models")
        if ours and not any(f"{name}.".startswith(f"{allowed}.") for allowed in MODELS_MAY_IMPORT):
            yield f"{module.name} imports {name}"


def cycles(known: dict[str, Module]) -> list[list[str]]:
    """The modules that stand in a cycle of imports, or lead to one."""
    graph = {name: needed(module, known) for name, module in known.items()}
    while leaves := {name for name, others in graph.items() if not others}:
        graph = {name: others - leaves for name, others in graph.items() if name not in leaves}
    return [sorted(graph)] if graph else []


def everything(complaints) -> list[str]:
    return [text for module in EVERYTHING for text in complaints(module)]


# The tests


def test_there_is_something_to_read():
    assert {"runner", "runner.core.value", "runner.ops.conv", "runner.compile.onnx.lower"} <= set(RUNNER)
    assert "models.lenet" in MODELS


def test_every_module_has_a_floor():
    assert {m.place for m in RUNNER.values()} <= set(FLOORS)
    assert set(FLOORS) <= {m.place for m in RUNNER.values()}


def test_floors():
    assert [text for module in RUNNER.values() for text in floor_complaints(module, RUNNER)] == []


def test_no_import_cycles():
    assert cycles({name: m for name, m in RUNNER.items() if name != "runner"}) == []


def test_no_imports_of_our_own_inside_functions():
    assert everything(late_import_complaints) == []


def test_late_names_are_told_to_type_checkers():
    assert sum("late_names(" in module.text for module in RUNNER.values()) == 7  # where it is, and six packages
    assert everything(late_name_complaints) == []


def test_modules_say_what_is_in_them():
    assert everything(name_complaints) == []


def test_third_parties_have_their_places():
    assert everything(third_party_complaints) == []


def test_nothing_that_is_read_is_executed():
    assert everything(execution_complaints) == []


def test_models_speak_the_language_of_networks_only():
    assert [text for module in MODELS.values() for text in model_complaints(module)] == []


def test_nothing_imports_models():
    """A config names them."""
    assert [m.name for m in RUNNER.values() if any(n.split(".")[0] == "models" for n in m.imports())] == []


def test_sizes():
    assert everything(size_complaints) == []


def test_exceptions_are_still_needed():
    names = {m.name for m in EVERYTHING}
    assert set(LONG_FILES) <= names
    assert {name.rpartition(".")[0] for name in (*LONG_FUNCTIONS, *LATE_IMPORTS)} <= names


# The rules can fail


@pytest.mark.parametrize(
    ("rule", "name", "text", "complaint"),
    [
        (
            late_import_complaints,
            "runner.x",
            "def f():\n    from runner import ops",
            "runner.x.f imports runner.ops when it is called",
        ),
        (
            late_name_complaints,
            "runner.x",
            "if TYPE_CHECKING:\n    from runner.x.a import A, B\nelse:\n    g, d = late_names(__name__, {'a': 'A'})\n"
            "__all__ = ['A']",
            "runner.x.a.B is not both late and told to type checkers",
        ),
        (
            late_name_complaints,
            "runner.x",
            "if TYPE_CHECKING:\n    from runner.x.a import A\nelse:\n    g, d = late_names(__name__, {'a': 'A'})\n"
            "__all__ = ['C']",
            "A is not both late and public",
        ),
        (name_complaints, "runner.ops.utils", "", "runner.ops.utils says nothing of what is in it"),
        (third_party_complaints, "runner.ops.conv", "import onnx.helper", "runner.ops.conv imports onnx.helper"),
        (third_party_complaints, "runner.nn.cell", "onnx = lazy_import('onnx')", "runner.nn.cell imports onnx"),
        (execution_complaints, "runner.x", "from pickle import load", None),
        (execution_complaints, "runner.x", "y = eval('1')", "runner.x:1 calls eval"),
        (
            execution_complaints,
            "runner.x",
            "\nnp.load(file, allow_pickle=True)",
            "runner.x:2 calls np.load without allow_pickle=False",
        ),
        (execution_complaints, "runner.x", "np.load(file)", "runner.x:1 calls np.load without allow_pickle=False"),
        (size_complaints, "runner.x", "\n" * 301, "runner.x has 301 lines"),
        (size_complaints, "runner.x", "def f():\n" + "    pass\n" * 40, "runner.x.f has 41 lines"),
        (model_complaints, "models.x", "from runner.core import eager", "models.x imports runner.core.eager"),
    ],
)
def test_a_rule_finds_what_it_forbids(rule, name, text, complaint):
    found = list(rule(Module(name, text)))
    assert len(found) == 1
    assert complaint in (None, found[0])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("runner.errors", "from runner.core.value import Tensor"),
        ("runner.ops.conv", "from runner.compile import lower"),
        ("runner.compile.onnx.lower", "from runner import ops"),
        ("runner.dataset.formats.idx", "import runner.core.value"),
        ("runner.nn.cell", "from runner.train import model"),
    ],
)
def test_a_wrong_floor_is_found(name, text):
    assert list(floor_complaints(Module(name, text), RUNNER)) != []


def test_a_cycle_is_found():
    a = Module("runner.a", "from runner.b import x")
    b = Module("runner.b", "import runner.a")
    c = Module("runner.c", "import runner.a")
    assert cycles({"runner.a": a, "runner.b": b, "runner.c": c}) == [["runner.a", "runner.b", "runner.c"]]
    assert cycles({"runner.a": a, "runner.b": Module("runner.b", ""), "runner.c": c}) == []
