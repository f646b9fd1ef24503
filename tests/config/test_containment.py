"""What a config file sets makes a run write below the working directory only, unless the user allows more."""

import dataclasses
import json
import types
import typing
from pathlib import Path

import pytest
from tables import table

from runner.config import schema
from runner.config.check import check
from runner.config.compose import CommandLine, Composition, compose
from runner.config.groups import NAMED
from runner.errors import ConfigError, ConfigErrors
from runner.validation.rules import rule_of

GLOBAL = "# @package _global_\n"
WHAT = "a config file may not make a run write outside of the working directory"
# Keys with text that are not places to write to.
OTHER_TEXT = {
    "network.name": "a name of models.NETWORKS",
    "network.path": "read",
    "network.output": "a name in the file",
    "network.freeze": "patterns of names",
    "network.head": "choices",
    "checkpoint.names": "read",
    "dataset.url": "read",
    **dict.fromkeys(("dataset.data_dir", "dataset.data_file", "dataset.test_file"), "read by the readers of own data"),
    "dataset.delimiter": "one character",
    **dict.fromkeys(("dataset.inputs", "dataset.target"), "names of columns"),
    "checkpoint.prefix": "letters, digits and _",
    "checkpoint.load": "read",
    "dump.config": "of dump=sync, async, ge: an error; that of dump=none is marked",
    "dump.net_name": "letters, digits, - and _",
    "dump.iteration": "numbers",
    "dump.dump_step": "numbers",
    "session.dump_step": "numbers",
    **dict.fromkeys(("profiling.fp_point", "profiling.bp_point", "profiling.op_trace"), "names of operators"),
    **dict.fromkeys(("session.fp_point", "session.bp_point", "session.op_trace"), "names of operators"),
    **dict.fromkeys(("session.precision_mode", "session.loss_scale"), "choices"),
    **dict.fromkeys(("session.auto_tune_mode", "session.optypelist_for_implmode"), "choices"),
    **dict.fromkeys(("tracking.experiment", "tracking.run_name"), "names in MLflow"),
    **dict.fromkeys(("loss.reduction", "device.target", "optimizer.schedule.name"), "choices"),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """The working directory, without a project file above it that allows more; `outside` is beside it."""
    for name in ("here/configs/experiment", "outside", "home"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.delenv("RUNNER_WRITABLE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("runner.config.groups.services._is_installed", lambda name: True)
    return tmp_path / "here"


def composed(text: str, *overrides: str) -> Composition:
    """A composition with a file in which OUT is the folder beside the working directory."""
    out = str(Path.cwd().parent / "outside")
    Path("configs/experiment/x.yaml").write_text(GLOBAL + text.replace("OUT", out))
    typed = (line.replace("OUT", out) for line in overrides)
    return compose(CommandLine(("+experiment=x", *typed), config_dir=Path("configs")))


def errors(text: str, *overrides: str) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        composed(text, *overrides)
    return list(caught.value.errors) if isinstance(caught.value, ConfigErrors) else [caught.value]


def group(name: str, option: str) -> str:
    return f"defaults: [{{override /{name}: {option}}}]\n"


REFUSED = [
    ("hydra.run.dir", "hydra: {run: {dir: '${now:OUT}'}}\n"),
    ("hydra.run.dir", "hydra: {run: {dir: '${dataset.data_dir}'}}\ndataset: {data_dir: OUT}\n"),
    ("hydra.run.dir", "hydra: {run: {dir: '${oc.env:HOME}'}}\n"),
    ("hydra.run.dir", "hydra: {run: {dir: 'x/${dataset.url}'}}\ndataset: {url: ../../outside}\n"),
    ("hydra.run.dir", "hydra: {run: {dir: link}}\n"),
    ("hydra.run.dir", "hydra: {run: {dir: link/x/y}}\n"),
    ("hydra.output_subdir", "hydra: {output_subdir: '${oc.env:HOME}/x'}\n"),
    ("print_file_path", "print_file_path: OUT/x\n"),
    ("print_file_path", "print_file_path: ../x\n"),
    ("print_file_path", "print_file_path: link/x\n"),
    ("print_file_path", "print_file_path: dangling\n"),
    ("print_file_path", "print_file_path: inside/../../x\n"),  # the link is removed from the text, or followed
    ("print_file_path", "print_file_path: ${oc.select:dataset.url}\ndataset: {url: OUT}\n"),
    ("save_graphs_path", "save_graphs_path: OUT\n"),
    ("save_graphs_path", "save_graphs_path: ../../../../x\n"),
    ("dump.path", group("dump", "async") + "dump: {path: OUT}\n"),
    ("dump.path", group("dump", "sync") + "dataset_sink_mode: false\ndump: {path: OUT}\n"),
    ("dump.dump_path", group("dump", "ge") + "dump: {dump_path: ../outside}\n"),
    ("session.dump_path", "session: {enable_dump: true, dump_path: ../outside}\n"),
    ("dump.config", "dump: {config: dump.json}\n"),
    ("profiling.result_path", group("profiling", "trace") + "profiling: {result_path: OUT}\n"),
    ("profiling.output", group("profiling", "trace") + "profiling: {output: link}\n"),
    ("profiling.options", group("profiling", "trace") + "profiling: {options: {result_path: OUT}}\n"),
    ("profiling.options", 'profiling: {options: \'{"output": "OUT"}\'}\n'),
    ("session.profiling_options", "session: {profiling_mode: true, profiling_options: {result_path: OUT}}\n"),
    ("tracking.uri", group("tracking", "mlflow") + "tracking: {uri: 'sqlite:///OUT/x.db'}\n"),
    ("tracking.uri", group("tracking", "mlflow") + "tracking: {uri: 'sqlite:///link/x.db?timeout=9'}\n"),
    ("dataset.data_dir", "dataset: {name: mnist, data_dir: OUT, download: true}\n"),
    ("dataset.data_dir", "dataset: {name: mnist, data_dir: ~/x, download: true}\n"),
]


@table(("key", "text"), REFUSED)
def test_a_place_outside_is_refused(key, text, here):
    links(here)
    found = errors(text)
    assert [(error.what, error.rows["key"]) for error in found] == [(WHAT, key)]
    assert found[0].rows["from"].startswith("configs/experiment/x.yaml:")
    assert Path(found[0].rows["path"]).is_absolute()


@table(("key", "text"), REFUSED)
def test_a_place_that_the_user_allows(key, text, here, monkeypatch):
    links(here)
    with monkeypatch.context() as patch:
        patch.setenv("RUNNER_WRITABLE", f"nowhere:{here.parent}")
        composed(text)
    (here / "pyproject.toml").write_text('[tool.runner]\nwritable = [".."]\n')
    composed(text)
    (here / "pyproject.toml").unlink()


def links(here: Path) -> None:
    """Links in the working directory, and a JSON file of a dump."""
    if not (here / "link").exists():
        (here / "a" / "b").mkdir(parents=True)
        (here / "inside").symlink_to(here / "a" / "b")
        (here / "link").symlink_to(here.parent / "outside")
        (here / "dangling").symlink_to(here.parent / "outside" / "nothing")
        common = {"dump_mode": 0, "path": str(here.parent / "outside"), "net_name": "n", "iteration": "0"}
        common |= {"input_output": 0, "kernels": [], "support_device": [0]}
        (here / "dump.json").write_text(json.dumps({"common_dump_settings": common}))


def test_the_error_says_how_to_allow_it(here):
    (error,) = errors("seed: 2\nprint_file_path: OUT/x\n")
    path = here.parent / "outside" / "x"
    assert str(error) == (
        f"ConfigError: {WHAT}\n"
        "  key      print_file_path\n"
        f'  value    "{path}"\n'
        f"  path     {path}\n"
        f"  allowed  below {here}\n"
        f"  hint     to allow it: print_file_path=... on the command line, RUNNER_WRITABLE={path},\n"
        f'           or in pyproject.toml: [tool.runner] writable = ["{path}"]\n'
        "  from     configs/experiment/x.yaml:3"
    )


def test_all_places_are_reported_with_all_other_errors():
    found = errors("epochs: 0\nprint_file_path: OUT\nsave_graphs_path: OUT\nhydra: {run: {dir: '${now:OUT/y}'}}\n")
    assert {error.rows["key"] for error in found} == {"epochs", "print_file_path", "save_graphs_path", "hydra.run.dir"}


INSIDE = [
    "hydra: {run: {dir: 'runs/${now:%Y}/${dataset.name}'}}\n",
    "hydra: {run: {dir: runs}, output_subdir: records}\n",
    "hydra: {output_subdir: null}\n",
    "print_file_path: prints/x\n",
    "print_file_path: a/../x\n",
    "print_file_path: ${hydra:runtime.output_dir}/prints\n",
    "save_graphs_path: a/b\n",
    group("dump", "async") + "dump: {path: '${oc.env:RUNNER_HERE}/dump'}\n",
    group("tracking", "mlflow") + "tracking: {uri: 'http://localhost:5000'}\n",
    group("tracking", "mlflow") + "tracking: {uri: 'sqlite:///x.db'}\n",
    "dataset: {data_dir: OUT}\n",  # only read
    "checkpoint: {load: OUT}\n",
    "profiling: {options: training_trace}\n",
]


@table("text", INSIDE)
def test_places_inside_pass(text, here, monkeypatch):
    monkeypatch.setenv("RUNNER_HERE", str(here))
    composed(text)


TYPED = [
    ("print_file_path: x\n", "print_file_path=OUT/x"),
    ("print_file_path: x\n", "print_file_path=../x"),
    ("print_file_path: x\n", "print_file_path=${oc.env:HOME}/x"),
    ("hydra: {run: {dir: x}}\n", "hydra.run.dir=OUT/${now:%Y}"),
    ("dataset: {url: a/b}\n", "hydra.run.dir='OUT/${dataset.url}/${seed}'"),
    (group("dump", "async"), "dump.path=OUT"),
    (group("dump", "async"), "++dump={path:OUT}"),
    ("seed: 2\n", "dump.config=dump.json"),
    (group("profiling", "trace"), "++profiling.options={result_path:OUT}"),
    (group("profiling", "trace"), 'profiling.options={"result_path": "OUT"}'),
    (group("tracking", "mlflow"), "tracking.uri=sqlite:///OUT/x.db"),
    ("dataset: {name: mnist, download: true}\n", "dataset.data_dir=OUT"),
    ("dataset: {name: mnist, data_dir: OUT}\n", None),
]


@table(("text", "line"), TYPED)
def test_a_typed_value_is_allowed(text, line, here):
    links(here)
    composed(text, *filter(None, [line]))


NOT_TYPED = [
    ("dataset: {url: OUT}\n", "print_file_path=${dataset.url}"),
    ("dataset: {url: ../x}\n", "print_file_path='OUT/${dataset.url}'"),
    ("dataset: {url: OUT}\n", "print_file_path='/${dataset.url}'"),
    ("dataset: {url: dump.json}\n", "dump.config='${dataset.url}'"),
    ("print_file_path: OUT\n", "save_graphs_path=OUT"),
    ("print_file_path: OUT\n", "seed=3"),
    ("print_file_path: ${dataset.data_dir}\n", "dataset.data_dir=OUT"),
    (
        group("profiling", "trace") + "profiling: {options: {result_path: OUT}}\n",
        "++profiling.options={aicpu_trace: on}",
    ),
]


@table(("text", "line"), NOT_TYPED)
def test_choosing_a_file_or_naming_its_key_is_not_typing_the_value(text, line, here):
    links(here)
    (error,) = errors(text, line)
    assert error.what == WHAT


def test_a_dump_of_the_environment_may_be_anywhere(here, monkeypatch):
    links(here)
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", str(here / "dump.json"))
    composed("seed: 2\n")


def test_a_link_of_the_user_at_the_default_place_is_followed(here):
    (here / "outputs").symlink_to(here.parent / "outside")
    assert composed("seed: 2\n").folder.parts[0] == "outputs"


PROJECTS = [
    ("[tool.runner]\nwritable = 'x'\n", "not a list of folders"),
    ("[tool.runner]\nwritable = [1]\n", "not a list of folders"),
    ("[tool.runner]\nwritable = ['']\n", "not a list of folders"),
    ('[tool.runner]\nwritable = ["a\\u0000"]\n', "not a list of folders"),
    ("[tool]\nrunner = 1\n", "not a table"),
    ("[tool.runner]\nwritable = [\n", "not TOML"),
    ("# tool.runner\nx = " + "[" * 5000 + "\n", "not TOML"),
    ("[tool.runner]\nwritabel = []\n", "unknown key"),
    ("[tool.runner]\nconf = 3\n", "not a folder"),
    ("[tool.runner]\nconf = 'missing'\n", "a folder that does not exist"),
]


@table(("text", "what"), PROJECTS)
def test_a_project_file_with_an_error(text, what, here):
    (here / "pyproject.toml").write_text(text)
    (error,) = errors("print_file_path: OUT\n")
    assert (error.what, error.rows["from"]) == (what, str(here / "pyproject.toml"))


def test_only_the_project_file_of_the_current_directory_counts(here):
    (here.parent / "pyproject.toml").write_text('[tool.runner]\nwritable = ["outside"]\n')
    assert errors("print_file_path: OUT/x\n")[0].what == WHAT
    (here / "runner.toml").write_text('writable = ["../outside"]\n')
    composed("print_file_path: OUT/x\n")


def test_the_run_folder_may_change_what_a_path_is(here):
    """The folder is claimed after the check: it gets a number when it is taken."""
    made = composed("print_file_path: '${hydra:runtime.output_dir}/../../../${dataset.url}'\ndataset: {url: x}\n")
    with made.activate(here / "a" / "b" / "c" / "d"):
        pass
    with pytest.raises(ConfigError, match=WHAT), made.activate(here / "a"):
        pass


def text_keys(owner: type, prefix: str = "") -> typing.Iterator[tuple[str, type, str]]:
    """Every key of a record and of those below it that takes text without choices: key, record, field."""
    for field in dataclasses.fields(owner):
        kinds = [*NAMED.get(field.type, {}).values()] or [field.type]
        records = [kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
        for record in records:
            yield from text_keys(record, f"{prefix}{field.name}.")
        options = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
        if not records and str in options and not rule_of(owner, field.name).choices:
            yield f"{prefix}{field.name}", owner, field.name


def test_every_key_with_text_is_marked_or_no_place():
    found = [(key, rule_of(owner, name).writes is not None) for key, owner, name in text_keys(schema.RunConfig)]
    assert len(found) > 25
    assert {key for key, marked in found if not marked} - {*OTHER_TEXT} == set()
    assert {key for key, marked in found if marked} == {key for key, _ in REFUSED if not key.startswith("hydra.")}


def test_a_marked_key_has_a_path():
    values = {"print_file_path": "x", "dataset": {"name": "mnist", "data_dir": "y", "download": True}}
    config = check(values)
    assert rule_of(schema.RunConfig, "print_file_path").writes("x", config) == "x"
    assert rule_of(type(config.dataset), "data_dir").writes("y", config.dataset) == "y"
