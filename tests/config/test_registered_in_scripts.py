"""Networks that a script or the cell of a notebook registers, for `runner.run` in the same process."""

import json
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE

CELL = """
import runner
from runner import nn

@runner.register.network("own")
class Own(nn.Cell):
    def __init__(self, input_shape: tuple[int, ...], hidden: int = {hidden}) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.last = nn.Dense(16, 10)

    def construct(self, x):
        {before}
        return self.last(self.flatten(x))

@runner.register.metric("count")
def count():
    return Count()

class Count:
    direction = "maximize"
    def clear(self): self.n = 0
    def update(self, output, target): self.n += len(target)
    def eval(self): return self.n

words = ["network=own", "dataset=synthetic", "dataset.image_size=4", "dataset.num_samples=64", "max_steps=2"]
words += ["callbacks=quiet", "eval.metrics=[count]", "dataset_sink_mode=false"]
"""
RUN = 'print(runner.run([*words, "hydra.run.dir={folder}"])["metrics"])\n'
OTHER = """
try:
    @runner.register.network("own")
    class Different(nn.Cell):
        pass
except runner.RunnerError as error:
    print(error)
"""
# A cell has a file name of its own, which no file has, and its lines are known to `linecache`.
NOTEBOOK = """
import json, linecache, sys
scope = {"__name__": "__main__"}
del __file__
for number, text in enumerate(json.load(sys.stdin)):
    name = sys.argv[1].format(number)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)
"""


def python(folder: Path, file: Path, *words: str, text: str = "") -> tuple[str, str]:
    command = [sys.executable, str(file), *words]
    done = subprocess.run(
        command, cwd=folder, input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stdout, done.stderr


def cell(hidden: int = 4, before: str = "") -> str:
    return CELL.format(hidden=hidden, before=before)


def test_a_script_registers_and_runs(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(cell() + 'if __name__ == "__main__":\n    ' + RUN.format(folder="r") + OTHER)
    out, err = python(tmp_path, script)
    assert out.startswith("{'count': 64"), err
    assert "ConfigError: two networks of one name" in out
    assert (tmp_path / "r/code/script.py").read_bytes() == script.read_bytes()
    assert list(json.loads((tmp_path / "r/manifest.json").read_text())["code_sha256"]) == ["script.py"]
    command = [sys.executable, "-m", "runner", "resume", "r", "max_steps=4"]
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": PATIENCE, "check": False}
    done = subprocess.run(command, **options)
    assert "script.py: not loaded here" in done.stderr
    done = subprocess.run([*command, "--code", "script.py"], **options)
    assert done.returncode == 0, done.stderr


def test_a_cell_that_is_executed_again(tmp_path):
    """Edited, too: its file name is another one then. A class of another name is refused."""
    file = tmp_path / "notebook.py"
    file.write_text(NOTEBOOK)
    for number, name in enumerate(("/tmp/ipykernel_1/{}.py", "<ipython-input-{}>")):
        runs = [RUN.format(folder=f"{number}-{k}") for k in range(3)]
        text = json.dumps([cell() + runs[0], runs[1], cell(hidden=9) + runs[2], OTHER])
        out, err = python(tmp_path, file, name, text=text)
        assert out.count("'count': 64") == 3, err
        assert "ConfigError: two networks of one name" in out
        found = [json.loads((tmp_path / f"{number}-{k}/config.json").read_text())["network"] for k in range(3)]
        assert [values["hidden"] for values in found] == [4, 4, 9]


def test_an_exception_in_a_cell_has_its_line(tmp_path):
    file = tmp_path / "notebook.py"
    file.write_text(NOTEBOOK)
    for folder, name in (("a", "/tmp/ipykernel_1/{}.py"), ("b", "<ipython-input-{}>")):
        text = json.dumps([cell(before="raise KeyError('gone')") + RUN.format(folder=folder)])
        _, err = python(tmp_path, file, name, text=text)
        assert f"{name.format(0)}:13  raise KeyError('gone')" in err.replace(" in construct:", " "), err
        assert "InternalError" not in err


def test_a_module_that_is_reloaded_is_recorded_again(tmp_path):
    (tmp_path / "parts.py").write_text(cell())
    again = cell(hidden=7)
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib, pathlib, parts, runner\nfrom parts import words\n"
        + RUN.format(folder="a")
        + f"pathlib.Path('parts.py').write_text({again!r})\n"
        + RUN.format(folder="b")
        + "importlib.invalidate_caches(); importlib.reload(parts)\n"
        + RUN.format(folder="c")
    )
    out, err = python(tmp_path, script)
    assert out.count("'count': 64") == 3, err
    copies = [(tmp_path / name / "code/parts.py").read_text() for name in "abc"]
    assert copies == [cell(), cell(), again]
