"""Errors as GitHub's workflow commands, read back by the rules of their escapes."""

import re

import pytest

from runner import cli
from runner.report.ci import annotations


def parsed(line: str) -> tuple[dict[str, str], str]:
    """As the runner of GitHub reads a command: properties end at `,` and `:`, both of which come escaped."""
    found = re.fullmatch(r"::error (?P<properties>.*?)::(?P<message>.*)", line)
    pairs = (pair.split("=", 1) for pair in found["properties"].split(","))
    return {name: _plain(value) for name, value in pairs}, _plain(found["message"])


def _plain(text: str) -> str:
    for code, character in (("%0A", "\n"), ("%0D", "\r"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


BLOCK = """ConfigError: 100% wrong: a, b
  key    epochs
  from   {place}
DataError: two
  value  x"""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("conf.yaml:3:5", {"file": "conf.yaml", "line": "3", "col": "5"}),
        ("conf.yaml:3", {"file": "conf.yaml", "line": "3"}),
        ("conf.yaml(12)/x = 1/", {"file": "conf.yaml", "line": "12"}),
        ("conf.yaml", {"file": "conf.yaml"}),
        ("missing.yaml:3", {}),
        ("command line", {}),
    ],
)
def test_a_line_for_each_error(tmp_path, monkeypatch, place, expected):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    (tmp_path / "conf.yaml").write_text("")
    block = BLOCK.format(place=place)
    lines = list(annotations(block))
    assert all("\n" not in line for line in lines)
    (first, message), (second, _) = map(parsed, lines)
    assert first == {**expected, "title": "ConfigError: 100% wrong: a, b"}
    assert message == block.partition("\nDataError")[0]
    assert second == {"title": "DataError: two"}


def test_files_are_told_from_the_checkout_on(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.yaml").write_text("")
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    (line,) = annotations("ConfigError: x\n  from  a.yaml:1")
    assert parsed(line)[0]["file"] == "sub/a.yaml"


def test_the_command_annotates_under_github(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 1\nepochs: 0\n")
    assert cli.main(["+experiment=mine", "--config-dir", "conf"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("::")]
    (properties, message) = parsed(lines[0])
    assert (properties["file"], properties["line"]) == ("conf/experiment/mine.yaml", "3")
    assert "out of range" in message
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert cli.main(["+experiment=mine", "--config-dir", "conf"]) == 2
    assert "::" not in capsys.readouterr().err
