"""What the documents say is so: commands run, outputs are the real ones, files exist."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shown import blocks
from tables import table
from test_architecture import ORDER

from runner import cli, errors, register
from runner.experiment.sweep.sweep import SweepError

ROOT = Path(__file__).parents[1]
HOW_TO, REFERENCE = ROOT / "docs" / "how-to", ROOT / "docs" / "reference"
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "BENCHMARKS.md", "CHANGELOG.md")
FOLDERS = ("runner", "conf", "models", "tests", "examples", "benchmarks", ".ci")


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True)


def spoken(line: str) -> list[str]:
    """The words of a line of the tour, without its comment."""
    return shlex.split(line, comments=True)


TOUR = blocks((HOW_TO / "commands.md").read_text())[0][2].splitlines()
CANNOT = {"dataset.data_dir=": "needs files of data", "dataset.download=true": "needs the network"}
SAID = {"eval": "on the train split", "predict": "probability", "new": "project: demo"}
CODES = {"expect.accuracy.min=0.97": 6, "+experiment=resnet50_tiny": 6}  # two steps are not enough for that


def skipped(line: str) -> str | None:
    return next((reason for word, reason in CANNOT.items() if word in line), None)


@pytest.fixture(scope="module")
def tour(tmp_path_factory) -> dict[str, subprocess.CompletedProcess]:
    """Every command of the tour that needs nothing else, shortened, all in one folder; `ls` comes last."""
    place = tmp_path_factory.mktemp("tour")

    def run(line: str) -> subprocess.CompletedProcess:
        words = spoken(line)
        runs = any("experiment" in word for word in words)
        if "resume" in words:  # the run that it speaks of, in a folder of its own: two lines speak of the same
            here = tmp_path_factory.mktemp("resumed")
            begun = ("+experiment=lenet", "max_steps=1", f"hydra.run.dir={words[2]}")
            assert command("-m", "runner", *begun, cwd=here).returncode == 0
            return command("-m", "runner", *words[1:], "max_steps=2", cwd=here)
        if words[1] in ("eval", "predict"):
            here = tmp_path_factory.mktemp("finished")
            begun = ("+experiment=lenet", "max_steps=1", f"hydra.run.dir={words[2]}")
            assert command("-m", "runner", *begun, cwd=here).returncode == 0
            draw = "from PIL import Image; Image.new('L', (28, 28)).save('digit.png')"
            assert command("-c", draw, cwd=here).returncode == 0
            return command("-m", "runner", *words[1:], cwd=here)
        return command("-m", "runner", *words[1:], *(["max_steps=2"] if runs else []), cwd=place)

    lines = [line for line in TOUR if not skipped(line)]
    return {line: run(line) for line in sorted(lines, key=lambda line: spoken(line) == ["runner", "ls"])}


@table("line", TOUR, ids=[" ".join(spoken(line)) for line in TOUR])
def test_the_tour(tour, line):
    if reason := skipped(line):
        pytest.skip(reason)
    done, words = tour[line], spoken(line)
    assert done.returncode == next((code for word, code in CODES.items() if word in words), 0), done.stderr
    if "--cfg" in words:
        assert re.search(r"^epochs: \d+$", done.stdout, re.MULTILINE)
    elif words[1:] == ["doctor"]:
        assert re.search(r"CPU .*usable", done.stdout)
    elif words[1] in SAID:
        assert SAID[words[1]] in done.stdout
    elif words[1:] == ["ls"]:
        assert len(re.findall(r"outputs/|multirun/", done.stdout)) >= 6
        assert "failed" in done.stdout  # the expectation
    elif "-m" in words:
        assert done.stdout.count("run directory") == 0
        assert re.search(r"^3 jobs finished in multirun/", done.stdout, re.MULTILINE)
    elif done.returncode == 0:
        line = r"^epoch: 1 step: 1, loss is \d" if "callbacks=verbose" in words else r"^epoch 1 of \d+: loss \d\.\d+"
        assert "callbacks=quiet" in words or re.search(line, done.stdout, re.MULTILINE)
        assert "run directory: outputs/" in done.stdout


def test_the_tour_has_runs():
    assert len([line for line in TOUR if not skipped(line)]) >= 8


def test_the_files_of_a_run(tmp_path):
    table = re.findall(r"^\| (`.*?) \|", (REFERENCE / "files.md").read_text(), re.MULTILINE)
    names = [name for cell in table for name in re.findall(r"`(.*?)`", cell)]
    assert len(names) >= 8
    (tmp_path / "runner.toml").write_text('code = ["own.py"]\n')
    (tmp_path / "own.py").touch()
    words = ("mode=graph", "max_steps=1", "hydra.run.dir=r", "dataset=synthetic", "dataset.num_samples=64")
    assert command("-m", "runner", *words, cwd=tmp_path).returncode == 0
    assert [name for name in names if not (tmp_path / "r" / name).exists()] == []


def test_every_exit_code_is_told():
    told = set(map(int, re.findall(r"^\| (\d+) \|", (REFERENCE / "exit-codes.md").read_text(), re.MULTILINE)))
    help_text = cli.help_of().partition("exit codes")[2]
    helped = set(map(int, re.findall(r"(?:^| {2,})(\d+) [a-z]", help_text, re.MULTILINE)))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RunnerError)]
    assert told == helped == {0, 130, 143, *(kind.exit_code for kind in [*kinds, SweepError])}


def test_every_experiment_and_network_is_told():
    text = (REFERENCE / "experiments.md").read_text()
    table = re.findall(r"^\| (`.*?) \|", text.partition("## Networks")[0], re.MULTILINE)
    experiments = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    assert experiments == {file.stem for file in (ROOT / "conf" / "experiment").iterdir()}
    assert [name for name, _ in register.network.items() if f"`{name}`" not in text] == []


def test_every_variable_that_is_told_is_read():
    told = re.findall(r"`([A-Z_]+)`", (REFERENCE / "environment.md").read_text())
    read = "\n".join(file.read_text() for file in (ROOT / "runner").rglob("*.py"))
    assert len(told) > 8
    assert [name for name in told if name not in read and name != "NO_COLOR"] == []


def links() -> list[tuple[str, str]]:
    found = []
    for name in DOCUMENTS:
        text = (ROOT / name).read_text()
        targets = re.findall(r"\]\((?!https?:)([^)#]+)", text) + re.findall(r"\b([A-Z]{4,}\.md)\b", text)
        for quoted in re.findall(r"`([\w.{},*/-]+)`", text):
            if quoted.split("/")[0] in FOLDERS and "/" in quoted:
                targets += expanded(quoted)
        found += [(name, target) for target in dict.fromkeys(targets)]
    return found


def expanded(path: str) -> list[str]:
    """`a/{b,c}.py` as two paths."""
    before, _, rest = path.partition("{")
    inside, _, after = rest.partition("}")
    return [before + part + after for part in inside.split(",")] if rest else [path]


@pytest.mark.parametrize(("document", "target"), links())
def test_what_is_named_exists(document, target):
    assert (ROOT / target).exists(), f"{document} names {target}"


def test_there_are_links():
    assert len(links()) > 10


def make(*words: str) -> subprocess.CompletedProcess:
    if shutil.which("make") is None:
        pytest.skip("no make here")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *words], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("words", [(), ("help",)])
def test_make_help(words):
    done = make(*words)
    assert (done.returncode, done.stderr) == (0, "")
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert sorted(listed) == sorted(declared)
    assert all(len(line.split()) > 2 for line in done.stdout.splitlines())


def test_the_recipes_name_files_that_exist():
    done = make("-n", *re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())
    assert done.returncode == 0
    named = set(re.findall(r"\b(?:benchmarks|tests)/\S+|\S+\.txt", done.stdout))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_documents_name_targets_that_exist():
    targets = set(re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())
    named = {word for name in DOCUMENTS for word in re.findall(r"`make (\w+)`", (ROOT / name).read_text())}
    assert named <= targets


def test_the_example_of_switching_modes(tmp_path):
    done = command("-W", "error", str(ROOT / "examples" / "switch_modes.py"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[[[[")
    assert float(done.stdout.split()[-1]) < 1e-6


# The design pages, and the path of a batch

DESIGN = [page for page in sorted((ROOT / "docs" / "design").glob("*.md")) if page.stem != "index"]
PARTS = ["Problem", "Decision", "Measurement", "Rejected", "Files"]
NOT_OURS = {"instantiate", "MPI_Allreduce", "If"}  # rejected alternatives


def sources() -> dict[Path, str]:
    """The text of every file that a page may speak of."""
    folders = [ROOT / folder for folder in (*FOLDERS, "docs")]
    kinds = {".py", ".pyi", ".yaml", ".json"}
    files = [file for folder in folders for file in folder.rglob("*") if file.suffix in kinds]
    return {file: file.read_text(encoding="utf-8", errors="replace") for file in files}


@pytest.mark.parametrize("page", DESIGN, ids=[page.stem for page in DESIGN])
def test_a_design_page_has_all_parts_and_is_in_the_index(page):
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == PARTS
    title = re.match(r"# (.*)\n", text)[1]
    assert f"- [{title}]({page.name})\n" in (page.parent / "index.md").read_text()
    assert f"design/{page.name}\n" in (ROOT / "mkdocs.yml").read_text()
    named = {path for quoted in re.findall(r"`([\w./-]+/[\w./-]*)`", text) for path in [quoted.rstrip("/")]}
    assert [path for path in named if path.split("/")[0] in (*FOLDERS, "docs") and not (ROOT / path).exists()] == []


def test_every_name_in_the_design_pages_is_in_the_code():
    files = sources()
    known = set(re.findall(r"\w+", "\n".join(files.values()))) | {part for file in files for part in file.parts}
    known |= {file.stem for file in files} | NOT_OURS
    for page in (*DESIGN, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        quoted = [words for words in re.findall(r"`([^`\n]+)`", text) if "/" not in words and words[:5] != "make "]
        unknown = {name for words in quoted for name in re.findall(r"[A-Za-z_]\w+", words)} - known
        assert unknown == set(), page


def members(tree: ast.Module) -> dict[str, set[str]]:
    """What the classes of a module define, by class; also attributes that their methods set."""
    found = {}
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        defined = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
        defined |= {node.target.id for node in kind.body if isinstance(node, ast.AnnAssign)}
        attributes = [node for node in ast.walk(kind) if isinstance(node, ast.Attribute)]
        found[kind.name] = defined | {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    return found


def test_every_member_in_the_design_pages_is_one_of_its_class():
    classes: dict[str, set[str]] = {}
    for file in (ROOT / "runner").rglob("*.py"):
        for name, defined in members(ast.parse(file.read_text())).items():
            classes[name] = classes.get(name, set()) | defined
    for page in (*DESIGN, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        quoted = re.findall(r"`([A-Z]\w+)\.(\w+)`", page.read_text())
        assert [(name, member) for name, member in quoted if member not in classes.get(name, {member})] == [], page


def test_the_path_of_a_batch_names_functions_of_those_files():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| \w+ \| .* \| `([\w.]+)` \| `([\w./]+)` \|$", text, re.MULTILINE)
    assert len(rows) > 15
    for name, file in rows:
        body = ast.parse((ROOT / file).read_text()).body
        for part in name.split("."):
            found = [node for node in body if getattr(node, "name", None) == part]
            assert found, f"{file} has no {name}"
            body = getattr(found[0], "body", [])


def test_the_architecture_fits_on_two_screens():
    lines = (ROOT / "ARCHITECTURE.md").read_text().splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 120


def test_the_diagram_of_packages_has_the_order_that_is_tested():
    diagram = re.search(r"^```\n(.*?)^```", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    left = [line[: diagram.index("the table")] for line in reversed(diagram.splitlines())]
    drawn = [name for line in left for name in re.findall(r"(\w+)(?:/|\.py)", line)]
    assert drawn == [name for name in ORDER if name != "__main__"]
