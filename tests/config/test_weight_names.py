"""`checkpoint.names`: files with names of weights, and what is wrong with them."""

import pytest
from tables import table

from runner.config.compose import CommandLine, compose
from runner.config.schema import names_of
from runner.errors import ConfigError, ConfigErrors


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@table(
    ("name", "text"),
    [
        ("names.yaml", '# comment\n"*.gamma": "*.scale"\nfc.bias: null\n'),
        ("names.json", '{"*.gamma": "*.scale", "fc.bias": null}'),
    ],
)
def test_files(place, name, text):
    (place / name).write_text(text)
    (place / "w.safetensors").write_text("")
    names = (f"checkpoint.names={name}", "checkpoint.load=w.safetensors")
    config = compose(CommandLine(names)).config
    assert config.checkpoint.names == str(place / name)
    assert names_of(config.checkpoint.names).rules == (("*.gamma", "*.scale"), ("fc.bias", None))


@table(
    ("text", "what"),
    [
        ("", "the file has no table of names"),
        ("[]", "the file has no table of names"),
        ("{}", "the file has no table of names"),
        ("fc", "the file has no table of names"),
        ("fc: 3", "a name of a parameter is a text"),
        ("3: fc", "a name of a parameter is a text"),
        ("fc: [a]", "a name of a parameter is a text"),
        ("fc.*: fc", "both patterns of a rule have equally many *"),
        ("fc: fc.*", "both patterns of a rule have equally many *"),
        ("'*.*.*.*.*': '*.*.*.*.*'", "a pattern has at most 4 *"),
        ("fc: a\nfc: b", "duplicate key"),
        ("fc: !!python/object:os.system a", "YAML tags are not supported"),
        ("fc: {", "not YAML"),
        ("fc: &a [*a, *a]", "an alias that contains itself"),
    ],
)
def test_wrong_files(place, text, what):
    (place / "names.yaml").write_text(text)
    (place / "w.safetensors").write_text("")
    with pytest.raises(ConfigError) as caught:
        compose(CommandLine(("checkpoint.names=names.yaml", "checkpoint.load=w.safetensors")))
    assert what in caught.value.what
    assert caught.value.rows["key"] == "checkpoint.names"


def test_they_are_reported_with_other_errors(place):
    (place / "names.yaml").write_text("fc: 3")
    words = ("checkpoint.names=names.yaml", "network.head=no", "network.freeze=a", "epochs=0")
    with pytest.raises(ConfigErrors) as caught:
        compose(CommandLine(words))
    keys = {error.rows["key"] for error in caught.value.errors}
    assert keys == {"checkpoint.names", "network.head", "network.freeze", "epochs"}


@table("path", ["/dev/null/x.yaml", "folder.yaml"])
def test_what_is_no_file(place, path):
    (place / "folder.yaml").mkdir(exist_ok=True)
    with pytest.raises(ConfigError):
        compose(CommandLine((f"checkpoint.names={path}", "checkpoint.load=.")))
