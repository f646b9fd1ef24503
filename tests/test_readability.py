"""The check of the first pages: its figures for known texts, what it finds, and that the pages pass."""

import importlib.util

import pytest
from shown import ROOT

spec = importlib.util.spec_from_file_location("readability_of_pages", ROOT / "docs" / "readability.py")
readability = importlib.util.module_from_spec(spec)
spec.loader.exec_module(readability)

COUNTED = {"the": 1, "make": 1, "people": 2, "table": 2, "changes": 2, "names": 1, "stopped": 1, "wanted": 2, "rule": 1}
COUNTED |= {"operator": 4, "network": 2, "resume": 2, "easily": 3, "1.5": 1, "don't": 1, "boxes": 2, "rhythm": 1}


@pytest.mark.parametrize(("word", "count"), COUNTED.items())
def test_syllables(word, count):
    assert readability.syllables(word) == count


def test_the_formula():
    """Computed by hand: 6 words of 6 syllables, and 5 words of 8, in two sentences."""
    text = "The cat sat on the mat. A network repeats its numbers."
    assert readability.reading_ease(text) == pytest.approx(206.835 - 1.015 * 11 / 2 - 84.6 * 14 / 11)


def test_what_is_a_sentence():
    text = """# A title

One `runner ls` here: it goes
on. **Two** [links](a.md) and
![a picture](b.png)

- first item
- second item, `a.b=1`

| a | table |
|---|---|

```sh
runner one. two. three.
```
"""
    assert readability.sentences(text) == [
        "One runner ls here it goes on",
        "Two links and",
        "first item",
        "second item a b",
    ]


def test_what_is_wrong_is_said():
    hard = "Institutional reproducibility necessitates comprehensive documentation."
    long = " ".join(["a"] * 36) + "."
    code = "```sh\n" + "x" * 81 + "\n```"
    (ease,) = readability.mistakes(hard, 80)
    assert ease.startswith("reading ease -")
    assert readability.mistakes(long, 80)[0].startswith("a sentence of 36 words, at most 35 are allowed: a a")
    assert readability.mistakes(f"One line.\n\n{code}\n", 80) == [
        f"a line of code of 81 characters, at most 80 are allowed: {'x' * 81}"
    ]
    assert readability.mistakes("The cat sat.", 80) == []


@pytest.mark.parametrize(("page", "longest"), readability.PAGES.items())
def test_a_page(page, longest):
    assert readability.mistakes((ROOT / page).read_text(), longest) == []
