"""Values as errors print them."""

import math

from runner.validation.rules import show


def test_text_and_numbers_are_distinguishable():
    assert [show(value) for value in ("1", 1, 1.5, True, None, [1, "a"])] == [
        '"1"',
        "1",
        "1.5",
        "true",
        "null",
        '[1, "a"]',
    ]


def test_text_of_other_languages_is_readable():
    assert show("Größe 大小") == '"Größe 大小"'


def test_numbers_that_json_does_not_have():
    assert [show(value) for value in (math.inf, -math.inf, math.nan)] == ["inf", "-inf", "nan"]


def test_long_values_are_cut():
    assert show("x" * 118) == '"' + "x" * 118 + '"'
    assert show("x" * 119) == '"' + "x" * 116 + "..."
