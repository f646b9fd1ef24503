"""Tables of datasets, optimizers, schedules, losses and metrics: choices, keys, defaults and options come from them."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner import nn, register
from runner.config import options, schema
from runner.config.check import check
from runner.config.compose import CommandLine, Loader, compose
from runner.config.groups import GROUPS
from runner.config.groups.entries import DATASETS, LOSSES, METRICS, OPTIMIZERS, SCHEDULES
from runner.config.groups.search import SearchSettings
from runner.config.options import choices
from runner.errors import ConfigError

CONSTRUCTORS = {  # the classes of MindSpore behind the built-in optimizers, schedules and loss
    "momentum": nn.Momentum,
    "sgd": nn.SGD,
    "adam": nn.Adam,
    "adam_weight_decay": nn.AdamWeightDecay,
    "lamb": nn.Lamb,
    "rmsprop": nn.RMSProp,
    "adagrad": nn.Adagrad,
    "proximal_adagrad": nn.ProximalAdagrad,
    "ftrl": nn.FTRL,
    "step": nn.StepLR,
    "exponential": nn.ExponentialDecayLR,
    "cosine": nn.CosineDecayLR,
    "polynomial": nn.PolynomialDecayLR,
    "softmax_cross_entropy": nn.SoftmaxCrossEntropyWithLogits,
}
COMPUTED = {"params", "learning_rate", "max_lr"}  # arguments whose values are not those of keys
WITHOUT_EFFECT = {"use_locking"}
NO_ARGUMENTS = {"name", "schedule", "warmup_steps", "label_smoothing", "class_weights"}  # keys of ours
OTHER_DEFAULTS = {  # than those of MindSpore's constructors
    "momentum": {"learning_rate": 0.01, "momentum": 0.9},
    "lamb": {"learning_rate": 0.001},
    "step": {"decay_steps": 1000, "decay_rate": 0.1},
    "exponential": {"decay_steps": 1000, "decay_rate": 0.9},
    "cosine": {"decay_steps": None, "min_lr": 0.0},
    "polynomial": {"decay_steps": None, "end_learning_rate": 0.0, "power": 1.0},
    "softmax_cross_entropy": {"sparse": True, "reduction": "mean"},
}


def record(name):
    return next(records[name] for records in (OPTIMIZERS, SCHEDULES, LOSSES) if name in records)


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_keys_are_the_arguments_of_the_constructor(name):
    arguments = set(inspect.signature(CONSTRUCTORS[name]).parameters)
    keys = set(record(name).__dataclass_fields__)
    assert arguments - COMPUTED - WITHOUT_EFFECT <= keys
    assert keys - NO_ARGUMENTS - COMPUTED <= arguments


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_a_default_is_that_of_the_reference_or_listed(name):
    parameters = inspect.signature(CONSTRUCTORS[name]).parameters
    own = record(name)().keywords()
    defaults = {key: parameters[key].default for key in own if key in parameters}
    assert {key: own[key] for key in defaults} == {**defaults, **OTHER_DEFAULTS.get(name, {})}


def test_what_the_tree_registers_is_an_option():
    """Also what a new file registers: `runner/config/groups/entries.py` has to import it."""
    lines = "for kind in register.KINDS.values():\n    for name in kind:\n        print(kind.name, name)"
    program = f"from runner import register\nfrom runner.config import groups\n{lines}"
    options = subprocess.check_output([sys.executable, "-c", program], text=True).splitlines()
    assert "callback loss_monitor" in options
    decorators = re.compile(r'^@register\.(\w+)\("(\w+)"\)', re.MULTILINE)
    for file in Path(register.__file__).parent.rglob("*.py"):
        for kind, name in decorators.findall(file.read_text()):
            assert f"{kind} {name}" in options, f"{file} registers {name}, and entries.py does not import it"


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("dataset.name", DATASETS),
        ("optimizer.name", GROUPS["optimizer"]),
        ("optimizer.schedule.name", SCHEDULES),
        ("loss.name", LOSSES),
        ("eval.metrics", METRICS),
    ],
)
def test_choices_are_the_names_of_the_table(name, table):
    assert choices(name) == list(table)


def test_a_search_and_expectations_know_all_metrics_that_are_numbers():
    assert SearchSettings.__dataclass_fields__["metric"].metadata["rule"].choices is register.metric
    for name in set(METRICS) - {"confusion_matrix"}:
        assert SearchSettings(metric=name).metric == name
        made = compose(CommandLine((f"expect.{name}.max=1e9", f"eval.metrics=[{name}]"))).config
        assert made.expect == {name: schema.Expectation(max=1e9)}


def test_an_expected_metric_must_be_evaluated():
    with pytest.raises(ConfigError) as caught:
        compose(CommandLine(("expect.accuracy.max=1", "eval.metrics=[loss]")))
    assert (caught.value.what, caught.value.rows["key"]) == (
        "an expectation that is never evaluated",
        "expect.accuracy",
    )
    assert caught.value.rows["hint"] == "eval.every=end with accuracy among eval.metrics, or ~expect"


@pytest.mark.parametrize("group", options.TABLES)
def test_the_entries_of_a_table_are_options(group):
    names = options.option_names(group)
    assert len(names) > 1
    assert {*names} <= {*Loader().options(group)} == {*options.all_options()[group]}


def test_a_new_dataset_is_an_option_without_a_file():
    def mine(split: str, count: int = 3):
        """Mine."""

    register.dataset("mine")(mine)
    assert options.table_option("dataset", "mine")["count"] == 3
    assert "mine" in Loader().options("dataset")
    assert check({"dataset": {"name": "mine", "count": 4}}).dataset.count == 4


def test_a_file_comes_before_the_entry_of_a_table(tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mnist.yaml").write_text("name: mnist\nbatch_size: 7\n")
    (tmp_path / "config.yaml").write_text("defaults:\n  - /schema/run\n  - dataset: digits\n  - optimizer: adam\n")
    made = compose(CommandLine(("dataset=mnist",), config_path=tmp_path)).config
    assert (made.dataset.name, made.dataset.batch_size, made.optimizer.name) == ("mnist", 7, "adam")
    assert compose(CommandLine(config_path=tmp_path)).config.dataset == DATASETS["digits"]()
