"""`--junit`: one test case for each job, whatever became of it."""

import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from runner import cli
from runner.errors import MismatchError, TrainingError
from runner.experiment import run as experiment
from runner.report.ci import JUnitCase, document

FAILURES = {
    2.0: TrainingError("the loss is not finite", step=3),
    3.0: MismatchError("not met", accuracy="FAILED <0.9>"),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stand_in(monkeypatch):
    """Runs that fail as their learning rate says."""

    def run(request):
        if (rate := request.config.optimizer.learning_rate) in FAILURES:
            raise FAILURES[rate]
        return {
            "loss": 0.25,
            "metrics": {"accuracy": 0.5},
            "run_dir": str(request.folder),
            "steps": 1,
            "steps_per_second": 1.0,
        }

    monkeypatch.setattr(experiment, "run", run)


def cases(path: str = "out.xml") -> list[xml.Element]:
    root = xml.parse(path).getroot()
    (suite,) = root
    found = list(suite.iter("testcase"))
    for kind, name in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(kind)) == int(root.get(kind)) == len([c for c in found if c.find(name) is not None])
    assert int(suite.get("tests")) == len(found)
    return found


def test_a_run(stand_in):
    assert cli.main(["+experiment=lenet", "epochs=2", "--junit", "out.xml"]) == 0
    (case,) = cases()
    assert case.get("name") == "+experiment=lenet epochs=2"
    assert float(case.get("time")) >= 0
    values = {p.get("name"): p.get("value") for p in case.iter("property")}
    assert (values["loss"], values["accuracy"]) == ("0.25", "0.5")
    assert Path(values["run_dir"]).is_dir()


@pytest.mark.parametrize(
    ("words", "code", "kind", "expected"),
    [
        (["optimizer.learning_rate=2.0"], 1, "failure", "TrainingError: the loss is not finite"),
        (["optimizer.learning_rate=3.0"], 6, "failure", "MismatchError: not met"),
        (["epochs=0"], 2, "error", "ConfigError: out of range"),
    ],
)
def test_a_run_that_fails(stand_in, words, code, kind, expected, capsys):
    assert cli.main(["--junit", "out.xml", *words]) == code
    (case,) = cases()
    assert case.find(kind).get("message") == expected
    assert case.find(kind).text == capsys.readouterr().err.strip()


def test_a_sweep(stand_in):
    words = ["-m", "optimizer.learning_rate=0.1,2.0,3.0", "hydra.sweep.dir=s", "--junit", "out.xml"]
    assert cli.main(words) == 8
    found = cases()
    assert [case.get("name") for case in found] == [
        f"{k}: optimizer.learning_rate={x}" for k, x in enumerate(("0.1", "2.0", "3.0"))
    ]
    assert [case.find("failure") is None for case in found] == [True, False, False]
    assert "accuracy  FAILED <0.9>" in found[2].find("failure").text
    assert all(float(case.get("time")) >= 0 for case in found)


def test_a_sweep_that_is_well(stand_in):
    assert cli.main(["-m", "seed=1,2", "hydra.sweep.dir=s", "--junit", "out.xml"]) == 0
    assert [len(case) for case in cases()] == [1, 1]  # properties only


def test_jobs_that_never_began(stand_in):
    words = ["-m", "optimizer.learning_rate=2.0,0.1", "sweep.fail_fast=true", "hydra.sweep.dir=s", "--junit", "out.xml"]
    assert cli.main(words) == 8
    assert [case.find("skipped") is not None for case in cases()] == [False, True]


def test_a_signal(monkeypatch):
    def run(request):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "run", run)
    assert cli.main(["--junit", "out.xml"]) == 130
    (case,) = cases()
    assert "stopped by a signal" in case.find("error").text


def test_a_file_without_a_place_is_told_before_anything_runs(stand_in, place, capsys):
    assert cli.main(["--junit", "nowhere/out.xml"]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert list(place.iterdir()) == []


def test_characters_that_xml_does_not_have():
    text = "a\x00b\x1b[31m\ud800 <&\"'> \N{SNOWMAN}"
    root = xml.fromstring(document([JUnitCase(text, 1.0, 1, text)], text))
    assert "\N{SNOWMAN}" in root.find(".//failure").text
    assert "\x1b" not in root.find(".//testcase").get("name")
