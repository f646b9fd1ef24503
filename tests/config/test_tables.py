"""Tables of datasets, optimizers, schedules, losses and metrics: choices, keys, defaults and options come from them."""

import inspect

import pytest

from runner import nn
from runner.config import options, schema
from runner.config.check import check
from runner.config.compose import CommandLine, compose
from runner.config.groups import GROUPS
from runner.config.groups.constructor import ConstructorSettings, argument
from runner.config.groups.loss import LOSSES, LossSettings
from runner.config.groups.schedule import SCHEDULES
from runner.config.groups.search import SearchSettings
from runner.config.loader import Loader
from runner.config.values import choices
from runner.dataset.catalog import CATALOG
from runner.errors import ConfigError
from runner.nn.metrics import METRICS, scalar_names
from runner.validation.rules import key

RECORDS = [*GROUPS["optimizer"].values(), *SCHEDULES.values(), *LOSSES.values()]
COMPUTED = {"params", "learning_rate", "max_lr"}  # arguments whose values are not those of keys
NO_ARGUMENTS = {"name", "schedule", "warmup_steps"}  # keys of ours


@pytest.mark.parametrize("record", RECORDS)
def test_keys_are_the_arguments_of_the_constructor(record):
    arguments = set(inspect.signature(record.constructor).parameters)
    keys = set(record.__dataclass_fields__)
    assert arguments - COMPUTED <= keys
    assert keys - NO_ARGUMENTS <= arguments


@pytest.mark.parametrize(
    ("record", "written"),
    [
        (GROUPS["optimizer"]["momentum"], {"learning_rate": 0.01, "momentum": 0.9}),
        (GROUPS["optimizer"]["sgd"], {}),
        (GROUPS["optimizer"]["adam"], {}),
        (SCHEDULES["exponential"], {"decay_steps": 1000, "decay_rate": 0.9}),
        (SCHEDULES["polynomial"], {"decay_steps": None, "end_learning_rate": 0.0, "power": 1.0}),
    ],
)
def test_a_default_that_is_not_written_is_that_of_the_signature(record, written):
    parameters = inspect.signature(record.constructor).parameters
    defaults = {name: parameters[name].default for name in record.__dataclass_fields__ if name in parameters}
    made = {name: getattr(record(), name) for name in defaults}
    assert made == {**defaults, **written}
    assert {name for name, default in defaults.items() if default is inspect.Parameter.empty} <= set(written)


def test_every_key_reaches_the_constructor():
    class Made:
        def __init__(self, first, number=3, word="a"):
            self.values = first, number, word

    class MadeSettings(ConstructorSettings, constructor=Made):
        name: str = "made"
        number: int = argument(low=1)
        word: str = key("b")

    assert MadeSettings().create("x").values == ("x", 3, "b")
    assert MadeSettings(number=5).create("x", word="c").values == ("x", 5, "c")
    with pytest.raises(TypeError, match="Made has no default for an argument first"):
        type(
            "Wrong", (ConstructorSettings,), {"__annotations__": {"first": int}, "first": argument()}, constructor=Made
        )
    with pytest.raises(TypeError, match="Made has no default for an argument third"):
        type(
            "Wrong", (ConstructorSettings,), {"__annotations__": {"third": int}, "third": argument()}, constructor=Made
        )


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("dataset.name", CATALOG),
        ("optimizer.name", GROUPS["optimizer"]),
        ("optimizer.schedule.name", SCHEDULES),
        ("loss.name", LOSSES),
        ("eval.metrics", METRICS),
    ],
)
def test_choices_are_the_names_of_the_table(name, table):
    assert choices(name) == list(table)


def test_a_search_and_expectations_know_all_metrics_that_are_numbers():
    assert SearchSettings.__dataclass_fields__["metric"].metadata["rule"].choices == scalar_names(METRICS)
    for name in scalar_names(METRICS):
        made = compose(CommandLine((f"expect.{name}.max=1e9", f"eval.metrics=[{name}]"))).config
        assert made.expect == {name: schema.Expectation(max=1e9)}


def test_an_expected_metric_must_be_evaluated(monkeypatch):
    monkeypatch.setitem(METRICS, "error", nn.Loss)
    with pytest.raises(ConfigError) as caught:
        compose(CommandLine(("expect.error.max=1",)))
    assert (caught.value.what, caught.value.rows["key"]) == ("an expectation that is never evaluated", "expect.error")
    assert caught.value.rows["hint"] == "eval.every=end with error among eval.metrics, or ~expect"


@pytest.mark.parametrize("group", options.TABLES)
def test_the_entries_of_a_table_are_options(group):
    names = options.table_options(group)
    assert len(names) > 1
    assert {*names} <= {*Loader().options(group)} == {*options.all_options()[group]}


def test_every_run_has_the_keys_that_all_losses_have(monkeypatch):
    class OtherSettings(LossSettings, constructor=nn.MSELoss):
        name: str = key("other", choices=("other",))
        reduction: str = argument(choices=("mean", "sum"))

    for name in [*LOSSES][1:]:
        monkeypatch.delitem(LOSSES, name)
    assert options.defaults_of_all_runs()["loss"] == schema.defaults(schema.RunConfig)["loss"]
    monkeypatch.setitem(LOSSES, "other", OtherSettings)
    assert options.defaults_of_all_runs()["loss"] == {"name": "softmax_cross_entropy", "reduction": "mean"}
    assert isinstance(check({"loss": {"name": "other"}}).loss.create(), nn.MSELoss)


def test_a_new_dataset_is_an_option_without_a_file(monkeypatch):
    monkeypatch.setitem(CATALOG, "mine", CATALOG["synthetic"])
    assert options.table_options("dataset")["mine"] == {"name": "mine"}
    assert "mine" in Loader().options("dataset")


def test_a_file_comes_before_the_entry_of_a_table(tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mnist.yaml").write_text("name: mnist\nbatch_size: 7\n")
    (tmp_path / "config.yaml").write_text("defaults:\n  - /schema/run\n  - dataset: digits\n  - optimizer: adam\n")
    made = compose(CommandLine(("dataset=mnist",), config_path=tmp_path)).config
    assert (made.dataset.name, made.dataset.batch_size, made.optimizer.name) == ("mnist", 7, "adam")
    assert compose(CommandLine(config_path=tmp_path)).config.dataset == schema.DatasetSettings()
