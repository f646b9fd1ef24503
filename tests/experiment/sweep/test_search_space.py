"""What may be searched and how it is said; nothing here needs Optuna."""

import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from tables import table

from runner import cli, register
from runner.config import overrides
from runner.config.compose import CommandLine, Loader
from runner.config.groups import search
from runner.config.groups.entries import BUILT_IN
from runner.config.groups.search import Choice, Number, SearchSettings, space
from runner.errors import ConfigError
from runner.experiment.sweep.journal import Outcome
from runner.experiment.sweep.plan import plan
from runner.experiment.sweep.sweep import best
from runner.nn.metrics.base import direction_of

OPTUNA = "hydra/sweeper=optuna"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of its own, where Optuna seems to be installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(search, "optuna_error", lambda: None)
    return tmp_path


def of(line: str, **said) -> Choice | Number:
    (found,) = space(overrides.parse([line]), SearchSettings(**said))
    return found


@table(
    ("text", "expected"),
    [
        ("interval(1e-3,1)", Number("x", 0.001, 1.0)),
        ("tag(log,interval(1e-3,1))", Number("x", 0.001, 1.0, log=True)),
        ("int(interval(1,9))", Number("x", 1, 9, integral=True)),
        ("tag(log,int(interval(1,9)))", Number("x", 1, 9, integral=True, log=True)),
        ("range(3)", Number("x", 0.0, 2.0, True, False, 1.0, ("0", "1", "2"))),
        ("range(1,9,4)", Number("x", 1.0, 5.0, True, False, 4.0, ("1", "5"))),
        ("range(9,1,-4)", Number("x", 5.0, 9.0, True, False, 4.0, ("5", "9"))),
        ("shuffle(range(1,4))", Number("x", 1.0, 3.0, True, False, 1.0, ("1", "2", "3"))),
        ("tag(log,range(1,4))", Number("x", 1.0, 3.0, True, True, 1.0, ("1", "2", "3"))),
        ("range(0.5,1.5,0.25)", Number("x", 0.5, 1.25, False, False, 0.25, ("0.5", "0.75", "1.0", "1.25"))),
        ("a,b,a", Choice("x", ("a", "b"))),
        ("choice(1,true,'q r')", Choice("x", ("1", "True", "q\\ r"))),
        ("shuffle(choice(1,2,3))", Choice("x", ("1", "2", "3"))),
    ],
)
def test_the_grammar_of_a_space(text, expected):
    assert of(f"x={text}") == expected


def test_the_options_of_a_group():
    loader = Loader()
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(["optimizer=glob(*)", "mode=graph"])
    (found,) = space(parsed, SearchSettings())
    assert isinstance(found, Choice)
    assert found.texts == tuple(sorted(register.optimizer))
    assert {"adam", "momentum", "sgd"} <= set(found.texts)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("interval(1,1)", "an empty interval"),
        ("interval(2,1)", "an empty interval"),
        ("interval(0,inf)", "an empty interval"),
        ("interval(nan,1)", "an empty interval"),
        ("tag(log,interval(0,1))", "a logarithmic scale needs positive values"),
        ("tag(lgo,interval(1,2))", "unknown tag"),
        ("tag(log,choice(1,2))", "choices do not have a scale"),
        ("tag(log,range(0,4))", "a logarithmic scale needs positive values"),
        ("tag(log,range(1,9,2))", "steps that do not fit a logarithmic scale"),
        ("range(4,4)", "an empty range"),
    ],
)
def test_what_is_no_part_of_a_space(text, what):
    with pytest.raises(ConfigError, match=what) as caught:
        of(f"x={text}")
    assert caught.value.rows["key"] == "x"
    assert caught.value.rows["value"] == text


def test_a_grid_needs_points():
    with pytest.raises(ConfigError, match="a grid search needs a finite number of values"):
        of("x=interval(0,1)", sampler="grid")
    with pytest.raises(ConfigError, match="the grid has too many points"):
        space(overrides.parse(["x=range(200)", "y=range(200)"]), SearchSettings(sampler="grid"))


def test_every_metric_has_a_direction():
    assert {direction_of(make) for make in BUILT_IN.values()} == {"minimize", "maximize"}
    assert [SearchSettings(metric=metric).resolved_direction for metric in ("loss", "accuracy")] == [
        "minimize",
        "maximize",
    ]
    assert SearchSettings(metric="loss", direction="maximize").resolved_direction == "maximize"


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("hydra.sweeper.metric=acuracy", ("not one of the choices", "nearest  accuracy")),
        ("hydra.sweeper.metric=confusion_matrix", ("an array, not a single number", "allowed  loss, accuracy, top_5")),
        ("hydra.sweeper.direction=upwards", ("not one of the choices", "null or maximize, minimize")),
        ("hydra.sweeper.n_trials=0", ("out of range", "1 to 10000")),
        ("hydra.sweeper.n_jobs=two", ("not a whole number",)),
        ("hydra.sweeper.sampler=cmaes", ("not one of the choices", "tpe, random, grid")),
        ("hydra.sweeper.seed=-1", ("out of range",)),
        ("hydra.sweeper.seed=null", ("not a whole number",)),
        ("hydra.sweeper.storage='sqlite:///x'", ("not a file in the folder of the sweep",)),
        ("hydra.sweeper.storage=3", ("not text",)),
        ("hydra.sweeper.storage=sweep.jsonl", ("a file of the sweep itself",)),
        ("hydra.sweeper.storage=.hydra/x", ("a file of the sweep itself",)),
        ("hydra.sweeper.n_trails=3", ("a config may not change this part of Hydra", "nearest  hydra.sweeper.n_trials")),
        ("eval.every=never", ("a metric that is never evaluated", "hydra.sweeper.metric=loss")),
        ("eval.metrics=[loss]", ("a metric that is never evaluated",)),
        ("epochs=interval(1,2)", ("not a whole number", "int(interval(")),
        ("optimizer.learning_rate=interval(-1,1)", ("out of range", "command line")),
        ("epochs=range(0,3)", ("out of range", "command line")),
        ("optimizer=sgd,nothing", ("unknown option", "nothing")),
    ],
)
def test_bad_searches_are_refused_before_anything_is_written(place, capsys, word, pieces):
    assert cli.main(["-m", OPTUNA, "seed=1,2", "hydra.sweep.dir=mine", word]) == 2
    said = capsys.readouterr().err
    assert [piece for piece in pieces if piece not in said] == []
    assert not (place / "mine").exists()


def test_all_errors_at_once(place):
    words = (OPTUNA, "epochs=0", "hydra.sweeper.metric=acuracy", "seed=interval(2,1)", "mode=tag(log,choice(graph,x))")
    with pytest.raises(ConfigError) as caught:
        plan(CommandLine(words))
    found = [error.rows["key"] for error in caught.value.errors]
    assert set(found) == {"epochs", "hydra.sweeper.metric", "seed", "mode"}


def test_nothing_to_search(place):
    with pytest.raises(ConfigError, match="nothing to search"):
        plan(CommandLine((OPTUNA, "seed=1")))


def test_a_sweep_over_all_values_has_no_intervals(place):
    with pytest.raises(ConfigError, match="an interval is not a list of values") as caught:
        plan(CommandLine(("optimizer.learning_rate=interval(0.1,1)",)))
    assert "hydra/sweeper=optuna" in caught.value.rows["hint"]
    with pytest.raises(ConfigError, match="the sweep has too many jobs"):
        plan(CommandLine(("seed=range(200)", "epochs=range(1,200)")))
    assert plan(CommandLine((OPTUNA, "seed=range(200)", "epochs=range(1,200)"))).shares.at_once == 1


def test_a_run_loads_nothing_of_it():
    code = (
        "import sys; from runner.config.compose import CommandLine, compose; compose(CommandLine(('seed=2',)))\n"
        "print([n for n in ('optuna_study', 'pool') if f'runner.experiment.sweep.{n}' in sys.modules],"
        " 'optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


def test_without_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.main(["-m", OPTUNA, "seed=1,2"]) == 2
    assert 'pip install "runner-ml[optuna]"' in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_optuna_that_is_too_old(monkeypatch):
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(search, "version", lambda: "2.10.1")
    assert search.optuna_error().rows["found"] == "2.10.1"


def configs(place: Path, params: str) -> CommandLine:
    (place / "configs/experiment").mkdir(parents=True)
    text = f"# @package _global_\ndefaults:\n  - override /hydra/sweeper: optuna\nhydra:\n  sweeper:\n{params}"
    (place / "configs/experiment/own.yaml").write_text(text)
    return CommandLine(("+experiment=own",), config_dir=place / "configs")


def test_a_space_in_a_file(place):
    call = configs(
        place,
        "    n_trials: 7\n    params:\n      optimizer.learning_rate: tag(log,interval(1e-3,1))\n"
        "      dataset: {batch_size: 'choice(16,32)'}\n      seed: range(1,4)\n      epochs: 2\n",
    )
    made = plan(call)
    assert made.searcher.count == 7
    assert [one.key for one in made.searcher.space] == ["optimizer.learning_rate", "dataset.batch_size", "seed"]
    assert made.searcher.fixed == ["epochs=2", "+experiment=own"]
    assert made.config.epochs == 2
    typed = plan(
        CommandLine((*call.overrides, "seed=5", "epochs=1,2"), config_dir=call.config_dir)
    )  # the line has the last word
    assert [one.key for one in typed.searcher.space] == ["optimizer.learning_rate", "dataset.batch_size", "epochs"]
    assert typed.config.seed == 5


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ("{seed: [1, 2]}", "not a dimension of a search space"),
        ("{hydra.sweep.dir: /tmp/x}", "a search may not change Hydra"),
        ("{seed: 'range(0'}", "not an override"),
        ("{seeed: 'range(1,3)'}", "unknown key"),
        ("{seed: 'range(-1,1)'}", "out of range"),
        ("{a._target_: os.mkdir}", "a config may not name code to run"),
    ],
)
def test_a_wrong_space_in_a_file(place, params, what):
    with pytest.raises(ConfigError) as caught:
        plan(configs(place, f"    params: {params}\n"))
    assert what in str(caught.value)
    if what in ("out of range", "not an override"):
        assert caught.value.rows["from"] == "hydra.sweeper.params"


def test_params_of_the_usual_sweeper_are_validated_too(place):
    call = configs(place, "    params: {seed: '1,2'}\n")
    made = plan(CommandLine((*call.overrides, "hydra/sweeper=basic"), config_dir=call.config_dir))
    assert made.searcher is None
    assert list(made.master.hydra.overrides.task) == ["seed=1,2", "+experiment=own"]
    assert made.master.hydra.sweeper.params is None


def test_the_best_of_equals_is_the_first():
    def job(number: int, accuracy: float, status: str = "ok") -> Outcome:
        return Outcome(number, (), status, 0, loss=accuracy, metrics={"accuracy": accuracy, "loss": -accuracy})

    jobs = [job(0, 0.5), job(1, 0.75), job(2, 0.75), job(3, 0.9, "failed"), job(4, float("nan"))]
    assert best(jobs, {"metric": "accuracy", "direction": "maximize"}).number == 1
    assert best(jobs, {"metric": "accuracy", "direction": "minimize"}).number == 0
    assert best(jobs, {"metric": "loss", "direction": "maximize"}).number == 1  # of the training, as `expect` means it
    assert best(jobs[3:], {"metric": "loss", "direction": "maximize"}) is None
