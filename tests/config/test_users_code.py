"""The user's code: where it is loaded from, that nothing else is, and the errors of what cannot be loaded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE
from tables import table

NETWORK = '''
import runner
from runner import nn

@runner.register.network("{name}")
class Net(nn.Cell):
    """A small network."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...], hidden: int = 8) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.first = nn.Dense(input_shape[0] * input_shape[1] * input_shape[2], hidden)
        self.last = nn.Dense(hidden, num_classes)

    def construct(self, x):
        return self.last(self.first(self.flatten(x)))
'''
SHORT = (
    "max_steps=2",
    "network=mlp",
    "callbacks=quiet",
    "eval.every=never",
    "dataset=synthetic",
    "dataset.image_size=4",
)
PROJECT = '[tool.runner]\ncode = ["{code}"]\n'


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def run(place):
    def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        from os import environ

        known = {name: value for name, value in environ.items() if not name.startswith("RUNNER_")}
        line = [sys.executable, "-m", "runner", *words]
        return subprocess.run(
            line, cwd=place, env=known | variables, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    return command


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_code_of_a_project_and_of_a_package_in_it(place, run):
    write(place / "pyproject.toml", PROJECT.format(code="orchard"))
    write(place / "orchard" / "deep" / "networks.py", NETWORK.format(name="mixer"))
    write(place / "orchard" / "__init__.py", "")
    write(place / "orchard" / "deep" / "data files" / "x.py", "raise SystemExit('no module')")
    write(place / "orchard" / "test_it.py", "raise SystemExit('tests are not loaded')")
    done = run(*SHORT, "network=mixer", "network.hidden=5", "hydra.run.dir=r")
    assert done.returncode == 0, done.stderr
    assert json.loads((place / "r" / "config.json").read_text())["network"] == {
        "name": "mixer",
        "num_classes": None,
        "input_shape": None,
        "hidden": 5,
        "freeze": [],
        "head": "keep",
    }
    names = {path.relative_to(place / "r" / "code").as_posix() for path in (place / "r" / "code").rglob("*.py")}
    assert names == {"orchard/__init__.py", "orchard/deep/networks.py"}
    hashes = json.loads((place / "r" / "manifest.json").read_text())["code_sha256"]
    assert set(hashes) == names


@pytest.mark.parametrize("way", ["flag", "variable", "runner.toml", "module"])
def test_the_other_ways(way, place, run):
    write(place / "own" / "nets.py", NETWORK.format(name="mine"))
    words, variables = {
        "flag": (["--code", "own/nets.py"], {}),
        "variable": ([], {"RUNNER_CODE": "own/nets.py"}),
        "runner.toml": ([], {}),
        "module": (["--code", "own.nets"], {}),
    }[way]
    if way == "runner.toml":
        write(place / "runner.toml", 'code = ["own/nets.py"]\n')
    done = run(*SHORT, "network=mine", *words, **variables)
    assert done.returncode == 0, done.stderr


def test_a_folder_without_a_project_file_loads_nothing(place, run):
    write(place / "networks.py", "open('MARKER', 'w')")
    write(place / "pyproject.toml", "[tool.other]\nrunner = ['networks.py']\n")
    write(place.parent / "pyproject.toml", PROJECT.format(code="here/networks.py"))
    for words in (("seed=2", *SHORT), ("ls", "networks"), ("--cfg", "job"), ("doctor",)):
        assert run(*words).returncode == 0
    assert not (place / "MARKER").exists()


def test_commands_that_only_read_load_nothing(place, run):
    assert run("hydra.run.dir=r", *SHORT).returncode == 0
    write(place / "pyproject.toml", PROJECT.format(code="evil.py"))
    write(place / "evil.py", "open('MARKER', 'w')")
    reading = (("ls",), ("report", "r"), ("compare", "r", "r"), ("golden", "--update", "g.json", "r"), ("doctor",))
    for words in (*reading, ("golden", "--check", "g.json", "r")):
        assert run(*words).returncode == 0, words
    assert run("-sc", "query=bash", COMP_LINE="runner network=").returncode == 0
    assert not (place / "MARKER").exists()
    assert run("--cfg", "job").returncode == 0
    assert (place / "MARKER").exists()


def test_a_config_never_names_code(place, run):
    write(place / "evil.py", "open('MARKER', 'w')")
    files = (
        "code: [evil.py]",
        "tool: {runner: {code: [evil.py]}}",
        "network: {name: evil.py}",
        "network: {code: evil}",
    )
    for number, text in enumerate(files):
        write(place / "conf" / "experiment" / f"e{number}.yaml", f"# @package _global_\n{text}\n")
        assert run(f"+experiment=e{number}", "-cd", "conf", *SHORT).returncode == 2
    assert not (place / "MARKER").exists()


ERRORS = [
    ("missing", "import not_there_at_all", "ModuleNotFoundError: No module named 'not_there_at_all'"),
    ("syntax", "def f(:\n  pass", "own.py:1"),
    ("raises", "x = 1\nraise ValueError('bad value')", "own.py:2 in <module>"),
    (
        "twice",
        NETWORK.format(name="a") + NETWORK.format(name="a").replace("Net(", "Other("),
        "two networks of one name",
    ),
    ("built_in", NETWORK.format(name="lenet5"), "runner has a network of this name"),
    ("name", NETWORK.format(name="No Name"), "not a name for a network"),
    ("exit", "raise SystemExit(3)", "own.py:1 in <module>"),
    ("no_annotation", NETWORK.format(name="a").replace("hidden: int = 8", "hidden=8"), "  value      hidden=8\n"),
    ("default", NETWORK.format(name="a").replace("int = 8", "int = '8'"), "  value      hidden: int = '8'\n"),
    ("no_split", "import runner\n@runner.register.dataset('a')\ndef a(): pass", "allowed  split\n"),
    (
        "no_parameters",
        "import runner\n@runner.register.optimizer('a')\ndef a(): pass",
        "allowed    params or parameters\n",
    ),
    ("annotation", NETWORK.format(name="a").replace("hidden: int = 8", "hidden: dict = None"), "own.py:5"),
]


@table(("name", "text", "expected"), ERRORS)
def test_code_that_cannot_be_loaded(name, text, expected, place, run):
    write(place / "runner.toml", 'code = ["own.py"]\n')
    write(place / "own.py", text)
    done = run(*SHORT)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "outputs").exists()


def test_a_network_that_is_no_cell_and_a_shape_error_name_the_lines_of_the_user(place, run):
    text = NETWORK.format(name="mine").replace("(nn.Cell)", "").replace("super().__init__()", "")
    write(place / "own.py", text.replace("self.flatten = nn.Flatten()", "return").split("    def construct")[0])
    done = run(*SHORT, "--code", "own.py", "network=mine")
    assert (done.returncode, "makes something else" in done.stderr) == (2, True), done.stderr
    write(place / "own.py", NETWORK.format(name="mine").replace("Dense(hidden,", "Dense(hidden + 1,"))
    done = run(*SHORT, "--code", "own.py", "network=mine")
    assert (done.returncode, f"{place}/own.py:16" in done.stderr) == (2, True), done.stderr
    write(place / "own.py", NETWORK.format(name="mine").replace("return self.last", "return self.lost"))
    done = run(*SHORT, "--code", "own.py", "network=mine")
    assert (done.returncode, f"{place}/own.py:16" in done.stderr) == (1, True), done.stderr
    assert f"{Path(__file__).parents[2] / 'runner'}" not in done.stderr


def test_a_missing_file_is_named_with_the_host(place, run):
    import platform

    done = run("--code", "gone.py", *SHORT)
    assert done.returncode == 2
    assert str(place / "gone.py") in done.stderr
    assert platform.node() in done.stderr


def test_a_changed_line_is_noticed_when_a_run_is_resumed(place, run):
    write(place / "runner.toml", 'code = ["own.py"]\n')
    write(place / "own.py", NETWORK.format(name="mine"))
    line = (*SHORT, "network=mine", "hydra.run.dir=r")
    assert run(*line, "checkpoint.every_steps=1").returncode == 0
    before = (place / "r" / "summary.json").read_bytes()
    write(place / "own.py", NETWORK.format(name="mine") + "# changed\n")
    done = run("resume", "r", "max_steps=3")
    assert (done.returncode, "code.own.py" in done.stderr) == (2, True), done.stderr
    assert (place / "r" / "summary.json").read_bytes() == before
    assert run("resume", "r", "max_steps=3", "--force").returncode == 0
    assert (place / "r" / "code" / "own.py").read_text().endswith("# changed\n")


def test_a_plugin_that_fails_is_named_and_the_others_work(place, run):
    packages = place.parent / "packages"
    for name, text in (("good", NETWORK.format(name="planted")), ("bad", "raise ValueError('broken')")):
        write(packages / f"{name}_plugin.py", text)
        info = packages / f"{name}_plugin-1.0.dist-info"
        write(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.0\n")
        write(info / "entry_points.txt", f"[runner.plugins]\n{name} = {name}_plugin\n")
    done = run(*SHORT, "network=planted", PYTHONPATH=str(packages))
    assert done.returncode == 0, done.stderr
    assert "the plugin bad of bad-plugin cannot be loaded: ValueError: broken" in done.stderr
    assert "planted" in run("ls", "networks", PYTHONPATH=str(packages)).stdout


def test_names_are_listed_with_origin_and_keys_and_completed_without_loading(place, run):
    write(place / "runner.toml", 'code = ["own.py"]\n')
    write(place / "own.py", NETWORK.format(name="mine"))
    lines = run("ls", "networks").stdout.splitlines()
    assert "mine            own.py:5" in lines
    assert "    hidden       int = 8" in lines
    assert run(*SHORT, "network=mine").returncode == 0
    write(place / "own.py", "raise SystemExit(3)")
    assert run("-sc", "query=bash", COMP_LINE="runner network=mi").stdout.split() == ["network=mine"]
    assert run("-sc", "query=bash", COMP_LINE="runner network=mine network.hi").stdout.split() == ["network.hidden="]


def test_the_folder_of_configs_and_the_folder_of_outputs(place, run):
    write(place / "runner.toml", 'code = ["own.py"]\nconf = "conf"\noutputs = "results"\n')
    write(place / "own.py", NETWORK.format(name="mine"))
    write(place / "conf" / "network" / "mine.yaml", "name: mine\nhidden: 3\n")
    write(place / "conf" / "experiment" / "first.yaml", "# @package _global_\ndefaults:\n  - override /network: mine\n")
    done = run(*[word for word in SHORT if word != "network=mlp"], "+experiment=first")
    assert done.returncode == 0, done.stderr
    (config,) = place.glob("results/*/*/config.json")
    assert json.loads(config.read_text())["network"]["hidden"] == 3
    assert "results/" in run("ls").stdout
    assert not (place / "outputs").exists()
