"""Checks of arguments: what they accept, and the text of what they refuse."""

import numpy as np
import pytest

from runner.errors import ConfigError
from runner.validation import arguments as check

LAYER = {"layer": "Dense"}


def test_what_is_accepted():
    check.at_least(LAYER, 0.0, a=0, b=1.5)
    check.above({}, 0.0, a=1e-300)
    check.at_most({}, 1.0, a=1.0)
    check.whole({}, 1, 4, least=1, most=4)  # arguments may have the names of the bounds
    check.flag({}, a=True, b=False)
    check.one_of({}, ("same", "valid"), mode="same")
    made = check.whole_number("a", np.uint8(3), 1), check.finite_number("b", np.float32(0.5))
    assert [(type(value), value) for value in made] == [(int, 3), (float, 0.5)]
    assert [check.scalar(value) for value in (np.float64(2), np.array(3), [4])] == [2.0, 3, [4]]


@pytest.mark.parametrize(
    ("refuse", "text"),
    [
        (lambda: check.at_least(LAYER, 0.0, a=1, b=10**400), "b must be a number of at least 0.0"),
        (lambda: check.above(LAYER, 0.0, a=0.0), "a must be a number above 0.0\n  layer  Dense\n  given  0.0"),
        (lambda: check.at_most({}, 1.0, a=1.5), "a must be at most 1.0\n  given  1.5"),
        (lambda: check.whole({}, 1, 4, a=5), "a must be a whole number from 1 to 4\n  given  5"),
        (lambda: check.whole({}, 1, a=np.int64(3)), "a must be a whole number of at least 1"),
        (lambda: check.flag({}, a=np.True_), "a must be True or False"),
        (
            lambda: check.one_of({}, {"same": 1, "valid": 2}, mode="sane"),
            "mode is not one of the choices\n  given    'sane'\n  allowed  same, valid\n  nearest  same",
        ),
        (lambda: check.one_of({}, {"same": 1}, mode=["same"]), "mode is not one of the choices\n  given    ['same']"),
        (lambda: check.whole_number("a", True, 0), "a must be a whole number of at least 0\n  given  True"),
        (lambda: check.finite_number("a", 1e39), "a must be a finite number\n  given  1e+39"),
        (lambda: check.finite_number("a", 10**39), "a must be a finite number"),
        (lambda: check.finite_number("a", np.True_), "a must be a finite number"),
    ],
)
def test_what_is_refused(refuse, text):
    with pytest.raises(ConfigError) as caught:
        refuse()
    assert str(caught.value).startswith(f"ConfigError: {text}")


@pytest.mark.parametrize(
    "refuse",
    [
        lambda: check.whole({}, 1, n=2.0),
        lambda: check.whole({}, 1, n=0),
        lambda: check.above({}, 0.0, x="1"),
        lambda: check.flag({}, on=1),
        lambda: check.one_of({}, ("a",), choice="b"),
    ],
)
def test_scripts_catch_errors_of_arguments_as_those_of_the_reference(refuse):
    for kind in (TypeError, ValueError, RuntimeError):
        with pytest.raises(kind) as caught:
            refuse()
        assert type(caught.value) is ConfigError
