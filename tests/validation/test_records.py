"""`Frozen` against its oracle: the same class, declared as `@dataclass(frozen=True)`."""

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import ClassVar

import pytest

from runner.validation.rules import Frozen


class Ours(Frozen):
    """A point."""

    x: int
    y: float = 2.0
    more: Mapping[str, int] = dataclasses.field(default_factory=dict, metadata={"unit": "m"})


@dataclasses.dataclass(frozen=True)
class Theirs:
    """A point."""

    x: int
    y: float = 2.0
    more: Mapping[str, int] = dataclasses.field(default_factory=dict, metadata={"unit": "m"})


class Other(Ours):
    """A point with a name."""

    name: str = "p"


class Checked(Frozen):
    """A number that may not be negative."""

    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError("negative")


ARGUMENTS = [((1,), {}), ((1, 3.0), {}), ((), {"x": 1}), ((1,), {"more": {"a": 1}}), ((1, 3.0, {"b": 2}), {})]


@pytest.mark.parametrize(("values", "named"), ARGUMENTS)
def test_fields_and_text_are_those_of_a_dataclass(values, named):
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert vars(ours) == vars(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours == Ours(*values, **named)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((), {}),
        ((), {"y": 1.0}),
        ((1,), {"x": 1}),
        ((1,), {"z": 1}),
        ((1, 2.0, {}, 4), {}),
        ((1, 2.0, {}, 4), {"x": 1}),
    ],
)
def test_wrong_arguments_are_refused_where_a_dataclass_refuses_them(values, named):
    for kind in (Theirs, Ours):
        with pytest.raises(TypeError, match=kind.__name__):
            kind(*values, **named)


def test_the_class_looks_like_a_dataclass():
    for ours, theirs in zip(dataclasses.fields(Ours), dataclasses.fields(Theirs), strict=True):
        assert (ours.name, ours.type, ours.default, ours.metadata) == (
            theirs.name,
            theirs.type,
            theirs.default,
            theirs.metadata,
        )
    assert dataclasses.is_dataclass(Ours)
    assert Ours.__match_args__ == Theirs.__match_args__
    assert Ours.y == Theirs.y
    assert [f.name for f in dataclasses.fields(Other)] == ["x", "y", "more", "name"]
    assert repr(Other(1, name="q")) == "Other(x=1, y=2.0, more={}, name='q')"


def test_each_has_a_default_of_its_own():
    assert Ours(1).more is not Ours(1).more


def test_nothing_changes_it():
    for made in (Theirs(1), Ours(1)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            del made.x
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.new = 2
        assert made.x == 1


def test_equality_asks_for_the_class_and_all_fields():
    assert Ours(1) == Ours(1, 2.0)
    assert Ours(1) != Ours(2)
    assert Ours(1) != Theirs(1)
    assert Ours(1) != Other(1)
    assert hash(Checked(1)) == hash(Checked(1))
    assert len({Checked(1), Checked(1), Checked(2)}) == 2
    for unhashable in (Theirs(1), Ours(1)):  # a dict is among the values
        with pytest.raises(TypeError, match="unhashable"):
            hash(unhashable)


def test_copies_are_equal():
    made = Ours(1, more={"a": 1})
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), dataclasses.replace(made)):
        assert again == made
        assert again is not made
    assert dataclasses.replace(made, y=5.0) == Ours(1, 5.0, {"a": 1})


def test_a_class_checks_what_it_is_given():
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)
    with pytest.raises(ValueError, match="negative"):
        dataclasses.replace(Checked(1), value=-1)


def test_class_variables_are_no_fields():
    class Counted(Ours):
        kind: ClassVar[type] = int

    assert [field.name for field in dataclasses.fields(Counted)] == ["x", "y", "more"]
    assert list(Counted.__dataclass_fields__) == ["x", "y", "more"]
    assert (Counted(1), Counted(1).kind) == (Counted(x=1), int)
    with pytest.raises(TypeError):
        Counted(1, kind=float)
