"""Every number of the schema has bounds, and every text that is a path is checked as one."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

import pytest
from tables import table

from runner.config.compose import CommandLine, compose
from runner.config.groups import NAMED
from runner.config.groups.search import SearchSettings
from runner.config.schema import RunConfig
from runner.errors import ConfigError
from runner.validation.rules import Rule, rule_of

Key = tuple[str, tuple[Any, ...], Rule]
LONG = "a" * 300
# Texts that are no paths; what a new key is, is to be decided here or by its rule.
NO_PATHS = {
    *("network.name", "network.freeze", "network.output", "network.train", "network.constant", "network.untie"),
    *("metrics.name", "dataset.url", "hydra.sweeper.study_name"),
    *("dataset.inputs", "dataset.target", "dataset.features", "dataset.categorical", "dataset.delimiter"),
}
# Paths as overrides: the group that has the key, and the key. Those with a validator of their own are here too.
PATHS = (
    *("print_file_path", "save_graphs_path", "dataset.data_dir", "checkpoint.load", "dump.config", "hydra.run.dir"),
    *("hydra.output_subdir", "hydra.sweep.dir", "hydra.sweep.subdir"),
    *("dump=sync dump.path", "dump=async dump.path", "dump=sync dump.net_name", "dump=sync dump.config"),
    *("dump=ge dump.dump_path", "dump=ge dump.config", "profiling=trace profiling.result_path"),
    *("profiling=trace profiling.output", "checkpoint.prefix"),
)


def keys(owner: type[Any], path: str = "") -> Iterator[Key]:
    for field in fields(owner):
        kinds = get_args(field.type) or (field.type,)
        records = NAMED[field.type].values() if field.type in NAMED else kinds
        inner = [kind for kind in records if isinstance(kind, type) and is_dataclass(kind)]
        for kind in inner:
            yield from keys(kind, f"{path}{field.name}.")
        if not inner and get_origin(field.type) is not Mapping:
            yield f"{path}{field.name}", kinds, rule_of(owner, field.name)


ALL = [*keys(RunConfig), *keys(SearchSettings, "hydra.sweeper.")]


def test_every_number_has_bounds():
    numbers = [(name, rule) for name, kinds, rule in ALL if {int, float} & {*kinds, *map(type, rule.also)}]
    assert len(numbers) > 40
    for name, rule in numbers:
        if rule.validate is None:
            assert rule.low is not None or rule.above is not None, name
            assert rule.high is not None or rule.below is not None, name


def test_every_text_is_checked():
    for name, kinds, rule in ALL:
        if str in kinds and not (rule.choices or rule.pattern or rule.validate or rule.path):
            assert name in NO_PATHS, name


@table("key", PATHS)
def test_a_path_that_no_file_can_have(key):
    *group, name = key.split()
    for value, what in (
        (LONG, "300 bytes|not allowed|not an absolute|not the name"),
        ("'a\0b'", "character that is not allowed"),
        ("'\ud800'", "character that is not allowed"),
    ):
        value = f"/{value}" if name == "dump.path" and value == LONG else value
        if name == "checkpoint.load" and value == LONG:
            what = "a name of 300 bytes in a path"
        with pytest.raises(ConfigError, match=what) as caught:
            compose(CommandLine((*group, f"{name}={value}")))
        assert name in str(caught.value)


@table(
    ("override", "value"),
    [("device.threads", v) for v in (1025, 5000, 2**63 - 1)]
    + [
        ("session.loss_scale", "1e300"),
        ("network.num_classes", 10**12),
        ("optimizer.learning_rate", "1e39"),
        ("epochs", 2**31),
        ("checkpoint.every_seconds", "1e308"),
        ("expect.loss.max", "1e300"),
        ("seed", 2**63),
    ],
)
def test_numbers_above_their_bounds(override, value):
    with pytest.raises(ConfigError, match=r"out of range|not a loss scale") as caught:
        compose(CommandLine((f"{override}={value}",)))
    assert caught.value.rows["key"] == override
