"""Whether the first pages can be read with ease: `python docs/readability.py` prints their figures, and what is wrong.

Flesch's reading ease is 206.835 - 1.015 * words per sentence - 84.6 * syllables per word; plain English has 60 to 70.
Tables, headings and blocks of code are not sentences. Names in the text count as their words.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The longest line of code that a window of 1280 pixels shows: GitHub's column has 800 pixels, that of the site 656.
PAGES = {"README.md": 97, "docs/index.md": 80}
EASE, WORDS = 55, 35
SILENT = re.compile(r"(?<=[^aeiouy])(?:e|es|ed)$")
SPOKEN = re.compile(r"(?:[^aeiouyl]le|(?:[cgsxz]|ch|sh)es|[dt]ed)s?$")


def sentences(markdown: str) -> list[str]:
    """The sentences of paragraphs and lists, as plain words. An item of a list ends a sentence; a colon does not."""
    text = re.sub(r"^( *)```.*?^\1```$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<[^>]+>|!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)(\{[^}]*\})?", r"\1", text)
    text = re.sub(r"`([^`]*)`", lambda code: re.sub(r"[^A-Za-z]+", " ", code[1]), text).replace("*", "")
    kept = [line for line in text.splitlines() if not re.match(r"\s*(#|\||\[TOC|:::|===|!!!)", line)]
    text = re.sub(r"\n\s*(?:-|\d+\.) ", "\n\n", "\n".join(kept))
    parts = [part for paragraph in re.split(r"\n\s*\n", text) for part in re.split(r"(?<=[.!?])\s+", paragraph)]
    return [" ".join(words) for part in parts if (words := words_of(part))]


def words_of(text: str) -> list[str]:
    return re.findall(r"[A-Za-z][A-Za-z']*|\d[\d.,]*", text)


def syllables(word: str) -> int:
    """Groups of vowels, but for an e at the end that is not spoken. A number counts as one."""
    letters = re.sub(r"['].*", "", word.lower())
    heard = letters if SPOKEN.search(letters) else SILENT.sub("", letters)
    return max(1, len(re.findall(r"[aeiouy]+", heard)))


def reading_ease(markdown: str) -> float:
    found = sentences(markdown)
    words = [word for sentence in found for word in sentence.split()]
    return 206.835 - 1.015 * len(words) / len(found) - 84.6 * sum(map(syllables, words)) / len(words)


def mistakes(markdown: str, longest: int) -> list[str]:
    """What is wrong with a page, a line each."""
    ease = reading_ease(markdown)
    found = [f"reading ease {ease:.0f}, at least {EASE} is required"] if ease < EASE else []
    for sentence in sentences(markdown):
        if (count := len(sentence.split())) > WORDS:
            found.append(f"a sentence of {count} words, at most {WORDS} are allowed: {sentence}")
    for code in re.findall(r"^ *```[^\n]*\n(.*?)^ *```$", markdown, re.MULTILINE | re.DOTALL):
        for line in code.splitlines():
            if len(line) > longest:
                found.append(f"a line of code of {len(line)} characters, at most {longest} are allowed: {line}")
    return found


def main() -> int:
    wrong = False
    for name, longest in PAGES.items():
        text = (ROOT / name).read_text()
        sys.stdout.write(f"{name}: reading ease {reading_ease(text):.0f}, {len(sentences(text))} sentences\n")
        for mistake in mistakes(text, longest):
            wrong = True
            sys.stdout.write(f"  {mistake}\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
