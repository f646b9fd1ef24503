"""The time of a composition is bounded: what would grow with the product or the power of a file's size has a limit."""

from pathlib import Path

import pytest
import yaml
from tables import table

from runner.config import check, compose as repository, gate
from runner.config.compose import CommandLine, compose
from runner.config.gate import check_limits
from runner.errors import ConfigError, ConfigErrors

GLOBAL = "# @package _global_\n"
MANY = "the interpolations stand for too many values"
CHAIN = "a cycle or a long chain of interpolations"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    (tmp_path / "configs" / "experiment").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def composed(text: str, name: str = "x"):
    Path(f"configs/experiment/{name}.yaml").write_text(GLOBAL + text)
    return compose(CommandLine((f"+experiment={name}",), config_dir=Path("configs")))


def errors(text: str) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        composed(text)
    return list(caught.value.errors) if isinstance(caught.value, ConfigErrors) else [caught.value]


def lines(count: int, text: str) -> str:
    return "expect:\n  a0: {x: 1}\n" + "".join(
        f"  a{i}: {text.replace('BEFORE', f'expect.a{i - 1}')}\n" for i in range(1, count)
    )


QUOTED = "'${eval.metrics}'"
GROWING = [
    (MANY, lines(40, "${BEFORE}${BEFORE}")),
    (MANY, lines(40, "{x: '${BEFORE}', y: '${BEFORE}'}")),
    (MANY, lines(40, "['${BEFORE}', '${BEFORE}']")),
    (MANY, lines(40, "${oc.select:BEFORE}${oc.select:BEFORE,x}")),
    (MANY, lines(40, "['${oc.dict.values:BEFORE}', '${oc.dict.values:BEFORE}']")),
    (MANY, "expect:\n  a0: x\n" + "".join(f"  a{i}: ${{.a{i - 1}}}${{.a{i - 1}}}\n" for i in range(1, 40))),
    (MANY, f"dataset: {{data_dir: {'x' * 10_000}, url: '{'${dataset.data_dir}' * 11}'}}\n"),
    (MANY, f"eval: {{metrics: [{','.join(['1'] * 600)}]}}\nexpect: {{x: [{','.join([QUOTED] * 9)}]}}\n"),
    (CHAIN, lines(60, "${BEFORE}")),
    (CHAIN, "dataset: {url: '${expect.a59}'}\n" + lines(60, "${BEFORE}")),
    (CHAIN, "dataset: {url: '${dataset.data_dir}', data_dir: '${dataset.url}'}\n"),
    (CHAIN, "dataset: {url: '${expect.x}'}\nexpect: ${loss}\nloss: ${expect}\n"),
    ("a text with interpolations is too long", f"dataset: {{url: '{'${dataset.name}' * 1000}'}}\n"),
    ("too many configs in the defaults lists", "defaults: [/experiment/x]\n"),
    ("too many configs in the defaults lists", "defaults: [/experiment/x@a, /experiment/x@b]\n"),
    ("too many configs in the defaults lists", "defaults:\n" + "  - /callbacks/quiet@a\n" * 400),
    ("too many configs in the defaults lists", f"defaults: [{{/callbacks@a: [{','.join(['quiet'] * 400)}]}}]\n"),
    ("an interpolation may not compute the name of a key", "dataset: {url: '${oc.select:${dataset.name}}'}\n"),
    ("an interpolation may not compute the name of a key", "dataset: {url: '${hydra:job.${dataset.name}}'}\n"),
]


@table(("what", "text"), GROWING, ids=lambda text: text[:60])
def test_what_grows_has_a_limit(what, text):
    assert [error.what for error in errors(text)] == [what]


def test_the_limits_are_in_the_errors():
    assert errors(GROWING[0][1])[0].rows["allowed"] == f"{gate.MAX_VALUES} values; 20 characters count as one"
    assert errors(lines(60, "${BEFORE}"))[0].rows["allowed"] == f"chains of {gate.MAX_CHAIN}"
    assert errors("defaults: [/experiment/x]\n")[0].rows["allowed"] == f"{repository.MAX_CONFIGS} in all"
    long = errors(f"dataset: {{url: '{'${dataset.name}' * 1000}'}}\n")[0]
    assert long.rows["allowed"] == f"{gate.MAX_INTERPOLATED} characters"


def test_each_interpolation_is_counted_once(monkeypatch):
    calls = []
    original = gate._targets
    monkeypatch.setattr(gate, "_targets", lambda *given: calls.append(given) or original(*given))
    values = {"a0": "x", **{f"a{i}": f"${{a{i - 1}}}${{a{i - 1}}}" for i in range(1, 9)}}
    check_limits(values)
    assert len(calls) == 8
    with pytest.raises(ConfigError, match=MANY):
        check_limits({"a0": "x", **{f"a{i}": f"${{a{i - 1}}}${{a{i - 1}}}" for i in range(1, 40)}})
    assert len(calls) < 50


COUNTS = [
    ({"a": 1, "b": "${a}"}, 2),
    ({"a": [1, 2, 3], "b": "${a}"}, 5),
    ({"a": {"x": 1, "y": "${b}"}, "b": 2, "c": "${a}"}, 2 + 5),
    ({"a": "x" * 60, "b": "${a}"}, 1 + 1 + 3),
    ({"a": {"b": "${.c}", "c": 1}}, 2),
    ({"a": {"b": {"d": "${..c}"}, "c": [1, 2]}}, 4),
    ({"g": {"x": [1, 2]}, "a": "${g}", "b": "${a.x}"}, (1 + 1 + 3) + (1 + 3)),
    ({"a": [[1, 2], 3], "b": "${a[0]}"}, 4),
    ({"hydra": {"job": {"name": [1, 2]}}, "b": "${hydra:job.name}"}, 1 + 3),
    ({"a": "${now:%Y}"}, 1),
    ({"a": "${missing}"}, 1),
    ({"a": r"\${a}", "b": 1}, None),
]


@table(("values", "count"), COUNTS)
def test_the_number_of_values(values, count, monkeypatch):
    """The values that interpolations stand for, and one for each interpolation."""
    if count is None:
        with pytest.raises(ConfigError, match=CHAIN):
            check_limits(values)
        return
    monkeypatch.setattr(gate, "MAX_VALUES", count)
    check_limits(values)
    monkeypatch.setattr(gate, "MAX_VALUES", count - 1)
    with pytest.raises(ConfigError, match=MANY):
        check_limits(values)


def test_usual_interpolations_pass():
    made = composed(
        "seed: 7\nepochs: ${seed}\noptimizer: {learning_rate: 0.5, momentum: '${.learning_rate}'}\n"
        "dataset: {url: '${dataset.name}/${oc.env:RUNNER_NOTHING,${seed}}'}\n"
    ).config
    assert (made.epochs, made.optimizer.momentum, made.dataset.url) == (7, 0.5, "digits/7")


def test_the_lines_of_many_errors_are_found_in_one_reading(monkeypatch):
    """One pass over each file, where there was one for each error: 18 KB took 14 s."""
    calls = []
    original = yaml.compose
    monkeypatch.setattr("yaml.compose", lambda *given, **named: calls.append(given) or original(*given, **named))
    text = "".join(f"k{i}: 1\n" for i in range(500)) + "dataset:\n" + "".join(f"  k{i}: 1\n" for i in range(500))
    found = errors(text)
    files = 12  # of a composition without this one, at most
    assert len(calls) <= files + 1
    assert len(found) == check.MAX_ERRORS + 1
    assert found[0].rows["from"] == "configs/experiment/x.yaml:2"
    assert found[-1].what == "too many errors"
    assert found[-1].rows["value"] == f"{1000 - check.MAX_ERRORS} more"
    assert found[-1].rows["allowed"] == f"{check.MAX_ERRORS} are reported"


def test_a_hundred_errors_are_all_reported():
    found = errors("".join(f"k{i}: 1\n" for i in range(check.MAX_ERRORS)))
    assert [error.rows["key"] for error in found] == [f"k{i}" for i in range(check.MAX_ERRORS)]


def test_a_byte_order_mark_is_not_part_of_a_file(place):
    (place / "configs" / "experiment" / "x.yaml").write_text(GLOBAL + "epochs: 3\n", encoding="utf-8-sig")
    (place / "configs" / "experiment" / "y.json").write_text('{"@package": "_global_", "epochs": 4}', "utf-8-sig")
    for name, epochs in (("x", 3), ("y", 4)):
        assert compose(CommandLine((f"+experiment={name}",), config_dir=Path("configs"))).config.epochs == epochs


UNUSABLE = ['dataset: {url: "a\\0b"}\n', 'hydra: {run: {dir: "a\\0b"}}\n']


@table("text", UNUSABLE)
def test_characters_that_no_path_has(text):
    assert [error.what for error in errors(text)] == ["a text with a character that is not allowed"]


LONG = ["hydra: {run: {dir: " + "x" * 300 + "}}\n", "print_file_path: " + "y/" * 3000 + "y\n"]


@table("text", LONG, ids=lambda text: text[:20])
def test_paths_that_no_file_has(text):
    what = {"hydra": "a name of 300 bytes in a path", "print_file_path": "a path of 6001 bytes"}
    assert [error.what for error in errors(text)] == [what[text.partition(":")[0]]]
