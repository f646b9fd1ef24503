"""Overrides that are read without Hydra's grammar: the result is that of the grammar."""

import random

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from runner.config.overrides import SIMPLE, parse_line, sweep_values
from runner.errors import ConfigError

RANDOM = random.Random(1)
KEYS = ("a", "_b", "A1", "a.b", "a_b.c2._d", "optimizer", "hydra/launcher", "a/b/c", "__x__.y")
VALUES = (
    *(
        "0",
        "7",
        "10",
        "1234567890" * 3,
        "0.5",
        "10.25",
        "0.0",
        "3.000",
        "12345.678901234567890",
        "00",
        "01",
        "1.",
        ".5",
    ),
    *("x", "adam", "a1_b", "_", "True_", "nul", "infinity", "None", "no", "on", "e5", "int", "range", "choice"),
    *(
        "null",
        "NULL",
        "true",
        "False",
        "TRUE",
        "nan",
        "NaN",
        "inf",
        "Inf",
        "1e5",
        "1_000",
        "-1",
        "x y",
        "x-y",
        "a,b",
        "",
    ),
)


def by_grammar(line: str) -> object:
    (override,) = OverridesParser.create().parse_overrides([line])
    return override


@pytest.mark.parametrize("sign", ["", "+", "++"])
def test_the_result_is_that_of_the_grammar(sign):
    lines = [f"{key}={value}" for key in KEYS for value in VALUES]
    simple = [line for line in lines if SIMPLE.fullmatch(line)]
    assert len(simple) > 200
    assert len(lines) - len(simple) > 50
    for line in simple:
        found, expected = parse_line(sign + line), by_grammar(sign + line)
        assert repr(found) == repr(expected)  # a NaN does not equal itself
        assert type(found._value) is type(expected._value)


def test_random_lines():
    """Whatever the pattern accepts, the grammar accepts with the same result."""
    letters = "ab_Z019.===/-"
    lines = ["".join(RANDOM.choices(letters, k=RANDOM.randint(3, 7))) for _ in range(20_000)]
    lines = [line for line in lines if SIMPLE.fullmatch(line)]
    assert len(lines) > 100
    for line in lines:
        assert parse_line(line) == by_grammar(line)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("range(3,1)", "an empty range"),
        ("range(1,3,-1)", "an empty range"),
        ("range(1,4,0)", "not a usable range"),
        ("range(1,1e9)", "not a usable range"),
    ],
)
def test_ranges_without_values_or_with_too_many(text, what):
    """Of a group, too, where the first value was taken for the option to check."""
    with pytest.raises(ConfigError, match=what) as caught:
        sweep_values(parse_line(f"callbacks={text}"))
    assert (caught.value.rows["key"], caught.value.rows["value"]) == ("callbacks", text)
