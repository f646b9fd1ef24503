"""Config keys from signatures: what an annotation accepts, what the argument becomes, what is refused with a place."""

import enum
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Optional

import pytest
from tables import table

from runner import register
from runner.errors import ConfigError
from runner.register import help_of, keys_of, place_of
from runner.validation.rules import Invalid, validate


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def sample(
    whole: int,
    number: float = 1,
    flag: bool = False,
    text: str = "a",
    place: Path = Path("x/y"),
    word: Literal["one", "two"] = "one",
    colour: Colour = Colour.BLUE,
    optional: int | None = None,
    old_optional: Optional[float] = 2.5,  # noqa: UP045
    sizes: tuple[int, ...] = (1, 2),
    pair: tuple[float, float] = (0.5, 1),
    words: list[str] = ["a"],  # noqa: B006
    bounded: Annotated[int, register.key(low=1, high=8)] = 4,
    each: tuple[Annotated[int, register.key(low=1)], ...] = (3,),
    matching: Annotated[str | None, register.key(pattern="[a-z]+", hint="lower case")] = None,
):
    """Something.

    Args:
        whole: a number
        number (float): another one
    """


ACCEPTED = [
    ("whole", 3, 3),
    ("number", 2, 2.0),
    ("flag", True, True),
    ("place", "a/b", Path("a/b")),
    ("word", "two", "two"),
    ("colour", "RED", Colour.RED),
    ("optional", None, None),
    ("optional", 7, 7),
    ("old_optional", None, None),
    ("sizes", [4, 5, 6], (4, 5, 6)),
    ("pair", [1, 2], (1.0, 2.0)),
    ("words", ["b", "c"], ["b", "c"]),
    ("bounded", 8, 8),
    ("each", [], ()),
    ("matching", "abc", "abc"),
]
REFUSED = [
    ("whole", None),
    ("whole", 3.5),
    ("whole", True),
    ("whole", 1 << 70),
    ("number", "1"),
    ("number", float("nan")),
    ("flag", 1),
    ("text", 3),
    ("place", "a\0"),
    ("word", "three"),
    ("colour", "GREEN"),
    ("sizes", 3),
    ("sizes", [1, "2"]),
    ("pair", [1, 2, 3]),
    ("words", "ab"),
    ("bounded", 9),
    ("each", [0]),
    ("matching", "ABC"),
]


@table(("name", "value", "argument"), ACCEPTED)
def test_a_value_becomes_the_argument(name, value, argument):
    key = keys_of(sample)[name]
    made = key.convert(validate(key.kind, key.rule, value))
    assert (made, type(made)) == (argument, type(argument))


@table(("name", "value"), REFUSED)
def test_another_value_is_invalid(name, value):
    key = keys_of(sample)[name]
    with pytest.raises(Invalid):
        validate(key.kind, key.rule, value)


def test_defaults_are_plain_and_helps_come_from_the_docstring():
    keys = keys_of(sample)
    assert {name for name, key in keys.items() if key.required} == {"whole"}
    defaults = [keys[name].default for name in ("place", "colour", "sizes", "pair", "words", "number")]
    assert defaults == ["x/y", "BLUE", (1, 2), (0.5, 1.0), ("a",), 1.0]
    assert (keys["whole"].help, keys["number"].help, keys["text"].help) == ("a number", "another one", "")
    assert help_of(partial(sample, 3)) == help_of(sample)


def test_bound_and_computed_parameters_are_no_keys():
    assert "whole" not in keys_of(partial(sample, 3))
    assert {"whole", "number"} & keys_of(sample, ("whole", "number")).keys() == set()


def no_annotation(value=3): ...
def two_types(value: int | str = 3): ...
def a_mapping(value: dict[str, int] | None = None): ...
def nested(value: tuple[tuple[int, ...], ...] = ()): ...
def mixed(value: tuple[int, str] = (1, "a")): ...
def numbers(value: Literal[1, 2] = 1): ...
def wrong_default(value: int = "three"): ...  # type: ignore[assignment]
def outside(value: Annotated[int, register.key(low=1)] = 0): ...
def unknown(value: "Missing" = 3): ...  # type: ignore[name-defined]  # noqa: F821
def only_by_position(value: int = 3, /): ...


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (no_annotation, "a parameter without an annotation"),
        (two_types, "an annotation with several types"),
        (a_mapping, "an annotation that cannot be a config key"),
        (nested, "a list of lists or optional values"),
        (mixed, "a list of several types"),
        (numbers, "an annotation that cannot be a config key"),
        (wrong_default, "a default that is not a whole number"),
        (outside, "a default that is out of range"),
        (unknown, "the annotations cannot be evaluated"),
        (only_by_position, "a parameter that cannot be named"),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_file_and_line(source, what):
    with pytest.raises(ConfigError) as caught:
        keys_of(source)
    assert caught.value.what == what
    assert f"{__file__}:{source.__code__.co_firstlineno}" in caught.value.rows["where"]
    assert place_of(source) == f"{__file__}:{source.__code__.co_firstlineno}"
