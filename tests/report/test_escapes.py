"""Names that users choose are themselves in every output: no elements, links, formulas or commands of a terminal."""

import csv
import io
import json

import pytest
from run_folders import leave, varied
from tables import table

from runner.cli import main as cli, run_command
from runner.experiment.sweep.controller import ended_line, table_lines
from runner.experiment.sweep.journal import Outcome
from runner.host.console import spreadsheet_cell
from runner.report.record import code, inline, table_row

NAMES = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[here](https://example.com)",
    "![x](https://example.com/x.png)",
    "[x]: https://example.com",
    "https://example.com/a_b",
    "www.example.com",
    "@someone #12 GH-7",
    "a@example.com",
    "**bold** _it_ ~~gone~~ __x__",
    "`code` ``two`` `",
    "``",
    "` `",
    " a ",
    "a|b\\|c",
    "&lt;b&gt; &amp;",
    "\\`x\\`",
    "$x$",
    "top1 (%), k=5",
    "optimizer.learning_rate",
    "größe",
]


def parser_of_markdown():
    """A parser of rich's, with tables."""
    return (
        pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    )


@table("name", NAMES)
@table("place", ["cell", "text", "code"])
def test_markdown_shows_the_name_itself(name, place):
    """As a parser of Markdown reads it."""
    parser = (
        pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    )
    if place == "cell":
        lines = [table_row(["key", "value"]), table_row(["---", "---"]), table_row([inline(name), "1"])]
        text = "\n".join(lines)
    else:
        text = f"note: {inline(name) if place == 'text' else code(name)}."
    tokens = [child for token in parser.parse(text) for child in token.children or ()]
    assert {token.type for token in tokens} <= {"text", "code_inline"}
    shown = "".join(token.content for token in tokens)
    if place == "cell":
        assert shown == f"keyvalue{name}1"
    else:
        assert shown == f"note: {name}."


@table(
    ("text", "expected"),
    [
        ("https://example.com", "`https://example.com`"),  # addresses, mentions and references are GitHub's own
        ("www.example.com", "`www.example.com`"),
        ("@someone", "`@someone`"),
        ("see #12", "`see #12`"),
        ("GH-7", "`GH-7`"),
        ("accuracy", "accuracy"),
        ("optimizer.learning_rate", "optimizer.learning_rate"),
        ("different: accuracy differs; 1 of 4", "different: accuracy differs; 1 of 4"),
        ("a\nb\x1b[2J", "`a\\nb\\x1b[2J`"),
        ("", ""),
    ],
)
def test_what_github_would_interpret_is_code(text, expected):
    assert inline(text) == expected


@table(
    ("value", "expected"),
    [
        ("=1+1", "'=1+1"),
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("+a", "'+a"),
        ("-a", "'-a"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\\t=1"),
        ("\r=1", "'\\r=1"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("\uff1d1", "'\uff1d1"),
        ("-1e-5", "-1e-5"),
        ("+inf", "+inf"),
        ("-1\n", "'-1\\n"),
        (-1.5, -1.5),
        (None, None),
        (True, True),
        ("a=b", "a=b"),
    ],
)
def test_a_spreadsheet_has_no_formulas(value, expected):
    assert spreadsheet_cell(value) == expected


@pytest.fixture
def hostile(tmp_path):
    """Two runs whose metrics, keys, values and folders have such names."""
    names = dict.fromkeys((*NAMES, "=1+1", "@x", "\x1b[2Jgone", "two\nlines\r"), 0.5)
    a = leave(tmp_path / "`a`", evaluations=[(2, names)], config=varied(network__name="=cmd|' /C calc'!A0"))
    b = leave(tmp_path / "<b>", evaluations=[(2, dict.fromkeys(names, 0.25))], experiment="\x1b[31mred")
    return [str(a), str(b)]


def test_markdown_of_a_comparison(hostile, capsys):
    assert run_command("compare", [*hostile, "--metrics", "--md"]) == 6
    parser = parser_of_markdown()
    text = capsys.readouterr().out
    tokens = parser.parse(text)
    children = [child for token in tokens for child in token.children or ()]
    assert {token.type for token in children} <= {"text", "code_inline", "strong_open", "strong_close", "softbreak"}
    rows = [token for token in tokens if token.type == "tr_open"]
    assert len(rows) == sum(line.startswith("| ") for line in text.splitlines()) - 2  # lines of dashes are no rows
    shown = {token.content for token in children}
    assert set(NAMES) <= shown
    assert not set("\x1b\r") & set(text)


def test_csv_of_a_comparison(hostile, capsys):
    assert run_command("compare", [*hostile, "--metrics", "--csv"]) == 6
    cells = [cell for row in csv.reader(io.StringIO(capsys.readouterr().out, newline="")) for cell in row]
    assert "'=1+1" in cells
    assert "'@someone #12 GH-7" in cells
    assert "'=cmd|' /C calc'!A0" in cells
    assert not [cell for cell in cells if cell[:1] in "=+@\t\r" and cell]


@table("words", [["compare", "--metrics"], ["compare", "--metrics", "--json"], ["ls"]])
def test_a_terminal_receives_no_commands(hostile, tmp_path, capsys, words):
    command, *flags = words
    assert cli([command, *([str(tmp_path)] if command == "ls" else hostile), *flags]) == (0 if command == "ls" else 6)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\r" not in out
    if "--json" in words:
        assert "two\nlines\r" in {row["metric"] for row in json.loads(out)["metrics"]}


def test_the_table_of_a_sweep_and_errors(capsys):
    outcome = Outcome(0, ("name=\x1b[2J",), "ok", 0, metrics={"a\nb\x1b": 0.5}, loss=0.1)
    text = "\n".join([*table_lines([outcome]), ended_line(outcome)])
    assert "\x1b" not in text
    assert len(text.splitlines()) == 3
    assert cli(["compare", "\x1b[2Ja", "b"]) == 7
    error = capsys.readouterr().err
    assert "\\x1b[2Ja" in error
    assert "\x1b" not in error
