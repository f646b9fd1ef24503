"""`runner report`: the page is checked against the files that it was made from."""

import json
import math
import random
import re
import shutil
import statistics
from functools import partial
from pathlib import Path

import pytest
from pages import cells, page, points, section, unit
from run_folders import NO_PROCESS, leave, varied
from tables import table

from runner.cli import run_command
from runner.errors import ConfigError
from runner.experiment import launch
from runner.experiment.sweep import journal
from runner.rundir import REPORT

main = partial(run_command, "report")
TINY = ("dataset=synthetic", "dataset.num_samples=64", "dataset_sink_mode=false", "max_steps=2", "callbacks=quiet")


def made(*folders: Path, output: Path | None = None) -> tuple[str, object]:
    assert main([*map(str, folders), *(["-o", str(output)] if output else [])]) == 0
    text = (output or folders[0] / REPORT).read_text()
    return text, page(text)


def noisy(count: int) -> list[float]:
    rng = random.Random(1)
    return [2.3 * math.exp(-4 * k / count) + rng.random() ** 6 for k in range(count)]


def test_the_curve_is_that_of_the_journal(tmp_path):
    """Every drawn point is a loss of that step, and each thousandth of the width spans the same lowest and highest."""
    place = leave(tmp_path / "a", noisy(30_000))
    rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    losses = {row["global_step"]: row["loss"] for row in rows if row["event"] == "step"}
    _, root = made(place)
    (picture,) = [svg for svg in section(root, "Training").all("svg") if svg.attributes["data-y"].endswith(" 0")]
    (path,) = [one for one in picture.all("path") if one.attributes.get("data-name") == "loss"]
    dx, dy = unit(picture)
    drawn = points(path, picture)
    assert 1000 < len(drawn) <= 2002
    for x, y in drawn:
        near = range(math.floor(x - dx / 2 - 1e-6), math.ceil(x + dx / 2 + 1e-6) + 1)
        assert any(abs(losses[step] - y) <= dy / 2 * 1.001 for step in near if step in losses)
    span = len(losses) - 1
    for column in range(0, 1000, 7):
        inside = [losses[s] for s in losses if int((s - 1) * 1000 / span) == column]
        shown = [y for x, y in drawn if abs((x - 1) * 1000 / span - column - 0.5) <= 1.01]
        assert max(shown) >= max(inside) - dy
        assert min(shown) <= min(inside) + dy


@pytest.mark.parametrize("count", [2, 660, 5000])
def test_the_pointer_has_every_loss(tmp_path, count):
    """A chart has as many values as losses; of more than it can hold the lowest and highest of each column."""
    losses = noisy(count)
    _, root = made(leave(tmp_path / "a", losses))
    (figure,) = [one for one in root.all("figure") if "data-lines" in one.attributes]
    name, (first, by), values = json.loads(figure.attributes["data-lines"])[0]
    assert (name, first, by) == ("loss", 1, 1 if count > 2 else 2)  # two places are themselves
    assert values == [float(f"{loss:.5g}") for loss in losses]


def test_both_forms_of_the_curve_and_the_mean(tmp_path):
    losses = noisy(500)
    _, root = made(leave(tmp_path / "a", losses))
    for picture in section(root, "Training").all("svg"):
        (path,) = [one for one in picture.all("path") if one.attributes.get("data-name") == "mean of 10 steps"]
        assert points(path, picture)[-1][1] == pytest.approx(statistics.fmean(losses[-10:]), rel=0.02, abs=0.005)
    assert len(section(root, "Training").all("input", type="radio")) == 2


def test_few_steps_have_whole_numbers(tmp_path):
    _, root = made(leave(tmp_path / "a", [3.0, 2.0, 1.5]))
    labels = {e.text for e in section(root, "Training").all("span") if "x" in e.classes}
    assert labels == {"1", "2", "3"}


def test_metrics_of_the_test_split(tmp_path):
    evaluations = [(10, {"accuracy": 0.5, "loss": 1.5}), (20, {"accuracy": 0.75, "loss": 0.9})]
    _, root = made(leave(tmp_path / "a", noisy(20), evaluations))
    (figure,) = [one for one in root.all("figure") if "Accuracy" in one.all("figcaption")[0].text]
    (picture,) = figure.all("svg")
    (path,) = [one for one in picture.all("path") if one.attributes.get("data-name") == "accuracy"]
    for drawn, (step, metrics) in zip(points(path, picture), evaluations, strict=True):
        assert drawn == pytest.approx((step, metrics["accuracy"]), rel=2e-3)
    tiles = dict(zip((e.text for e in root.all("dt")), (e.text for e in root.all("dd")), strict=True))
    assert (tiles["accuracy"], tiles["test loss"], tiles["steps"]) == (
        "0.7500",
        "0.9000",
        "20",
    )  # as the console prints them


def test_one_file_without_network(tmp_path):
    """Nothing is loaded, and the page forbids it besides; links lead to files of the run."""
    place = leave(tmp_path / "a", noisy(100_000), [(k, {"accuracy": 0.5}) for k in range(1, 100)])
    (place / "graphs").mkdir()
    (place / "graphs" / "00_parse_0000.svg").write_text("<svg>" + "<g/>" * 10_000 + "</svg>")
    (place / "graphs" / "00_parse_0000.ir").write_text("")
    text, root = made(place)
    assert len(text) < 300_000
    assert [one.attributes for one in root.all("link")] == []
    assert {one.attributes["src"][:19] for one in root.all("img")} == {"data:image/svg+xml;"}
    assert not re.search(r"url\(|@import|https?://|fetch\(|XMLHttp|import\(", text)
    (policy,) = [e.attributes["content"] for e in root.all("meta") if "http-equiv" in e.attributes]
    assert policy.startswith("default-src 'none'")
    links = [e.attributes["href"] for e in root.all("a")]
    assert "metrics.jsonl" in links
    ids = {e.attributes["id"] for e in root.walk() if "id" in e.attributes}
    assert [link for link in links if link[0] != "#" and not (place / link).exists()] == []
    assert [link for link in links if link[0] == "#" and link[1:] not in ids] == []


def test_what_runs_say_is_text(tmp_path):
    """Names, values and errors of a run cannot add elements."""
    evil = '</pre><script>alert("x")</script><img src=x onerror=alert(1)>'
    config = varied(network__name=evil) | {evil: evil}
    a = leave(tmp_path / "a", state="failed", error=evil, experiment=evil, config=config)
    (a / "evil<b>.txt").write_text("")
    (a / "graphs").mkdir()
    (a / "graphs" / "00_parse_0000.ir").write_text("")
    (a / "graphs" / "00_parse_0000.svg").write_text("<svg><script>alert(1)</script></svg>")
    for folders in ([a], [a, leave(tmp_path / "b")]):
        _, root = made(*folders, output=tmp_path / "page.html")
        assert len(root.all("script")) == 1
        assert all(one.attributes["src"].startswith("data:") for one in root.all("img"))
        assert not [e for e in root.walk() if any(name.startswith("on") for name in e.attributes)]
        assert evil in root.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": "running"}, "still running; data up to step 2"),
        ({"state": "running", "pid": NO_PROCESS}, "the process of the run no longer exists"),
        ({"state": "interrupted"}, "interrupted after step 2"),
        ({"state": "failed", "error": "TrainingError: the loss is not finite\n  step  3"}, "the loss is not finite"),
    ],
)
def test_runs_that_did_not_end_well(tmp_path, change, message):
    _, root = made(leave(tmp_path / "a", **change))
    assert message in root.text
    assert root.all("svg")


@pytest.mark.parametrize("missing", ["status.json", "config.json", "manifest.json", "metrics.jsonl", "summary.json"])
@pytest.mark.parametrize("content", [None, b"{", b"[]", b"\xff\xfe"])
def test_damaged_runs(tmp_path, missing, content):
    place = leave(tmp_path / "a")
    (place / missing).unlink() if content is None else (place / missing).write_bytes(content)
    for folders in ([place], [place, leave(tmp_path / "b")]):
        _, root = made(*folders, output=tmp_path / "page.html")
        assert root.all("h1")
        if missing == "status.json":
            assert "broken" in root.text


def test_a_run_killed_at_its_start(tmp_path):
    (tmp_path / "a" / ".hydra").mkdir(parents=True)
    _, root = made(tmp_path / "a")
    assert "broken" in root.all("h1")[0].text


STEPS = """\
step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail
1,0,300000,300000,50000,250000,50000,200000,50000
-,0,300000,300000,50000,250000,50000,200000,50000
"""
OPERATORS = """\
op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms)
Device,ReLU,ReLU-op1,Default/ReLU-op1,4,1.0,0.25
Device,Conv2D,Conv2D-op0,Default/Conv2D-op0,4,3.0,0.75
"""
PROFILES = {"step_trace_raw_0_detail_time.csv": STEPS, "cpu_op_detail_info_0.csv": OPERATORS}


def test_profiles(tmp_path):
    place = leave(tmp_path / "a")
    (place / "profiling").mkdir()
    for name, text in PROFILES.items():
        (place / "profiling" / name).write_text(text)
    _, root = made(place)
    part = section(root, "Profile")
    assert [e.text for e in part.all("li")] == [
        "data and waiting 0.5 ms (17%)",
        "forward and backward 2 ms (67%)",
        "update and rest 0.5 ms (17%)",
    ]
    rows = cells(part.all("table")[0])
    assert [row[:4] for row in rows] == [
        ["Conv2D", "Default/Conv2D-op0", "4", "3"],
        ["ReLU", "Default/ReLU-op1", "4", "1"],
    ]
    assert rows[0][4].strip() == "75.0%"


@pytest.mark.parametrize(
    ("name", "head", "row", "milliseconds"),
    [
        (
            "gpu_op_detail_info_0.csv",
            "op_type,op_full_name,op_occurrences,op_total_time(us)",
            "A,x/A-op1,2,1500",
            "1.5",
        ),
        ("aicore_intermediate_0_detail.csv", "full_op_name,execution_time", "x/A-op1,1.5", "1.5"),
    ],
)
def test_profiles_of_cards(tmp_path, name, head, row, milliseconds):
    place = leave(tmp_path / "a")
    (place / "profiling").mkdir()
    (place / "profiling" / name).write_text(f"{head}\n{row}\n")
    _, root = made(place)
    (found,) = cells(section(root, "Profile").all("table")[0])
    assert (found[0], found[3]) == ("A", milliseconds)


@pytest.mark.parametrize("text", ["", "a,b\n", "full_op_name,op_total_time(ms)\nx,nan\n", "\x00\xff", '"'])
def test_damaged_profiles_are_left_out(tmp_path, text):
    place = leave(tmp_path / "a")
    (place / "profiling").mkdir()
    for name in PROFILES:
        (place / "profiling" / name).write_text(text)
    _, root = made(place)
    assert "Profile" not in [one.text for one in root.all("h2")]


def summary_of_a_profile():
    """The file that a profile of `runner` leaves, with figures that the tables do not have."""
    time = {"lower_quartile_us": 900.0, "upper_quartile_us": 1100.0, "samples": 7}
    return {
        "title": "profile",
        "steps": 12,
        "timed_steps": 5,
        "warm_up_steps": [1, 4],
        "threads": 2,
        "step_us": 5000.0,
        "step": {"median_us": 5000.0, **time},
        "parts": [
            {"part": "data preparation", "mean_us": 1000.0, **time, "share": 0.2},
            {"part": "forward", "median_us": 4000.0, **time, "share": 0.8},
        ],
        "operators": 9,
        "ranking": [
            {"places": "1-2", "full_op_name": name, "op_type": "ReLU", "median_us": 1000.0, **time, "share": 0.2}
            for name in ("Default/ReLU-op1", "Default/ReLU-op2")
        ],
        "sentences": ["The first 2 cannot be separated."],
        "notes": ["a metric is missing"],
        "next": "mode=graph",
    }


def test_the_report_has_the_figures_of_the_console(tmp_path):
    """The tables of the same run have other averages: the page shows one set of figures."""
    place = leave(tmp_path / "a")
    (place / "profiling").mkdir()
    for name, text in PROFILES.items():
        (place / "profiling" / name).write_text(text)
    (place / "profiling" / "profile_summary_0.json").write_text(json.dumps(summary_of_a_profile()))
    _, root = made(place)
    part = section(root, "Profile")
    assert [e.text for e in part.all("ul")[0].all("li")] == ["data preparation 1 ms (20%)", "forward 4 ms (80%)"]
    steps, operators = map(cells, part.all("table"))
    assert [[cell.strip() for cell in row] for row in steps] == [
        ["data preparation", "1", "0.9", "1.1", "20.0%", "7"],
        ["forward", "4", "0.9", "1.1", "80.0%", "7"],
    ]
    assert [cell.strip() for cell in operators[0]] == ["1-2", "1", "0.9", "1.1", "20.0%", "Default/ReLU-op1"]
    for text in ("5.000 ms (quartiles of 7: 0.900 to 1.100 ms)", "Slowest operators, 2 of 9, in 5 steps"):
        assert text in part.text
    for text in (
        "The first 2 cannot be separated.",
        "a metric is missing",
        "Next: mode=graph",
        "data preparation: mean",
    ):
        assert text in part.text
    assert "data and waiting" not in part.text


def test_a_profile_without_a_ranking(tmp_path):
    place = leave(tmp_path / "a")
    (place / "profiling").mkdir()
    content = summary_of_a_profile() | {"ranking": [], "sentences": ["Operators are not ranked."]}
    (place / "profiling" / "profile_summary_0.json").write_text(json.dumps(content))
    _, root = made(place)
    assert "Slowest operators" not in section(root, "Profile").text
    assert "Operators are not ranked." in section(root, "Profile").text


@table(
    ("key", "value"),
    [(key, value) for key in (*summary_of_a_profile(), "share") for value in ("x", 1, None, [1], {})],
)
def test_damaged_figures_of_a_profile(tmp_path, key, value):
    """Either the figures can be shown, or the tables are."""
    place = leave(tmp_path / f"{key}{value}")
    (place / "profiling").mkdir()
    for name, text in PROFILES.items():
        (place / "profiling" / name).write_text(text)
    content = summary_of_a_profile()
    (content["parts"][0] if key == "share" else content)[key] = value
    (place / "profiling" / "profile_summary_0.json").write_text(json.dumps(content))
    _, root = made(place)
    assert section(root, "Profile").text


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"steps": 1e999}'])
def test_a_profile_whose_figures_are_no_json(tmp_path, content):
    place = leave(tmp_path / "a")
    (place / "profiling").mkdir()
    for name, text in PROFILES.items():
        (place / "profiling" / name).write_text(text)
    (place / "profiling" / "profile_summary_0.json").write_bytes(content)
    _, root = made(place)
    assert "data and waiting" in section(root, "Profile").text


def test_pictures_that_are_too_large_are_linked(tmp_path):
    place = leave(tmp_path / "a")
    (place / "graphs").mkdir()
    (place / "graphs" / "00_parse_0000.ir").write_text("")
    (place / "graphs" / "00_parse_0000.svg").write_text("<svg>" + "<g/>x" * 100_000 + "</svg>")
    text, root = made(place)
    assert root.all("img") == []
    assert "graphs/00_parse_0000.svg" in [e.attributes["href"] for e in root.all("a")]
    assert len(text) < 100_000


@pytest.fixture
def sweep(tmp_path) -> Path:
    """Two rates, three seeds each, and a job that failed."""
    rng = random.Random(2)
    for number in range(6):
        rate, seed = (0.01, 0.1)[number // 3], number % 3
        losses = [x * (1 + 0.2 * rng.random()) for x in noisy(200)]
        config = varied(optimizer__learning_rate=rate, seed=seed)
        accuracy = {"accuracy": round(0.9 + rate / 2 + 0.001 * seed**2, 6)}
        leave(tmp_path / "s" / str(number), losses, [(200, accuracy)], config=config)
    failed = varied(optimizer__learning_rate=9.0, seed=0)
    leave(tmp_path / "s" / "10", [], state="failed", error="TrainingError: not finite", config=failed)
    return tmp_path / "s"


def test_the_table_of_a_sweep(sweep):
    _, root = made(sweep)
    (table,) = section(root, "Runs").all("table")
    assert [head.text for head in table.all("th")][:4] == ["run", "status", "learning_rate", "seed"]
    rows = cells(table)
    assert [row[0] for row in rows] == ["5", "4", "3", "2", "1", "0", "10"]  # the best one first
    assert [row[1] for row in rows] == ["ok"] * 6 + ["failed"]
    assert [row[2:4] for row in rows[2:4]] == [["0.1", "0"], ["0.01", "2"]]
    assert [row[5] for row in rows[:6]] == ["0.9540", "0.9510", "0.9500", "0.9090", "0.9060", "0.9050"]
    assert rows[-1][4:6] == ["-", "-"]
    sorts = {head.text: head.attributes["aria-sort"] for head in table.all("th") if "aria-sort" in head.attributes}
    assert sorts == {"accuracy": "descending"}
    assert "TrainingError: not finite" in section(root, "Failures").text


def test_runs_of_one_name_in_two_folders(tmp_path):
    folders = [leave(tmp_path / parent / "run") for parent in ("a", "b")]
    _, root = made(*folders, output=tmp_path / REPORT)
    assert [row[0] for row in cells(section(root, "Runs").all("table")[0])] == ["a/run", "b/run"]


def test_jobs_that_never_began(sweep):
    values = {"version": 1, "call": {}, "config": {}, "config_sha256": "", "threads": 1}
    journal.append(sweep, "sweep", **values)
    journal.append(sweep, "jobs", first=0, overrides=[["seed=1"]] * 3)
    journal.append(sweep, "start", job=0, folder="0", pid=1)
    _, root = made(sweep)
    assert "2 of 3 jobs never began: 1, 2" in root.text
    (sweep / "sweep.jsonl").write_text("{\n{}\n")
    _, root = made(sweep)
    assert f"{sweep / 'sweep.jsonl'}: " in root.text


def test_a_search_for_another_metric(sweep):
    """The best run, the first row and the arrow of the table follow what was searched."""
    settings = {"hydra": {"sweeper": {"metric": "loss", "direction": "minimize"}}}
    journal.append(sweep, "sweep", version=1, call={}, config=settings, config_sha256="", threads=1)
    journal.append(sweep, "jobs", first=0, overrides=[["seed=1"]])
    journal.append(sweep, "start", job=0, folder="0", pid=1)
    _, root = made(sweep)
    assert "A search to minimize loss." in root.text
    rows = cells(section(root, "Runs").all("table")[0])[:-1]
    losses = [float(row[4]) for row in rows]
    assert losses == sorted(losses)
    assert rows[0][0] != "5"  # the most accurate one
    sorts = {head.text: head.attributes.get("aria-sort") for head in section(root, "Runs").all("th")}
    assert (sorts["loss"], sorts["accuracy"]) == ("ascending", None)
    tiles = dict(zip((e.text for e in root.all("dt")), (e.text for e in root.all("dd")), strict=True))
    assert (tiles["best loss"], tiles["of run"]) == (rows[0][4], rows[0][0])


def test_means_over_seeds(sweep):
    _, root = made(sweep)
    (table,) = section(root, "Over seeds").all("table")
    columns = [head.text for head in table.all("th")]
    first = dict(zip(columns, cells(table)[0], strict=True))
    values = [0.905, 0.906, 0.909]
    assert first["seeds"] == "3"
    assert float(first["accuracy mean"]) == pytest.approx(statistics.fmean(values), abs=5e-5)
    assert float(first["accuracy \N{PLUS-MINUS SIGN}"]) == pytest.approx(statistics.stdev(values), abs=5e-5)
    assert cells(table)[2][2:] == ["-"] * (len(columns) - 2)


def test_curves_slices_and_parallel_axes(sweep):
    _, root = made(sweep)
    curves = section(root, "Curves")
    bands = [e for e in curves.all("path") if "band" in e.classes]
    assert len(bands) == 2
    log, linear = curves.all("figure")[1].all("svg")
    for picture in (log, linear):
        assert len([e for e in picture.all("path") if "line" in e.classes]) == 6
    titles = [e.text for e in section(root, "Effect of each key").all("figcaption")]
    assert [title.split(" ")[0] for title in titles] == ["learning_rate", "learning_rate"]  # the seed has no effect
    lines = [e for e in section(root, "All keys").all("path") if "poly" in e.classes]
    assert len(lines) == 6
    assert lines[-1].classes == {"poly", "q1", "best"}  # the best one is drawn last
    assert lines[-1].attributes["data-tip"].startswith("run 5\n")


def test_a_slice_shows_every_run(sweep):
    _, root = made(sweep)
    (figure,) = [f for f in root.all("figure") if f.text.startswith("learning_rate \N{RIGHTWARDS ARROW} accuracy")]
    (picture,) = figure.all("svg")
    (dots,) = [e for e in picture.all("path") if "dots" in e.classes]
    dx, dy = unit(picture)
    expected = [(0.01, 0.905), (0.01, 0.906), (0.01, 0.909), (0.1, 0.95), (0.1, 0.951), (0.1, 0.954)]
    for (x, y), (rate, accuracy) in zip(sorted(points(dots, picture)), expected, strict=True):
        assert (abs(x - rate) <= dx, abs(y - accuracy) <= dy) == (True, True)


def test_many_groups_are_grey_but_for_the_best(tmp_path):
    for number in range(12):
        config = varied(optimizer__learning_rate=0.01 * (number + 1))
        leave(tmp_path / "s" / str(number), [2.0, 1.0 + abs(number - 7)], config=config)
    _, root = made(tmp_path / "s")
    lines = [e for e in section(root, "Curves").all("svg")[0].all("path") if {"line", "thin"} & e.classes]
    assert [e.attributes["data-name"].split(":")[0] for e in lines if "c1" in e.classes] == ["7"]
    assert [e.classes for e in lines] == [{"thin", "c9"}] * 11 + [{"line", "c1"}]  # the best one is drawn last


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> list[Path]:
    """Real runs: both modes, and another seed."""
    place = tmp_path_factory.mktemp("dumped")
    words = {"a": ["mode=graph"], "b": [], "c": ["seed=2"]}
    for name, more in words.items():
        launch.run([*TINY, "dump=sync", "save_graphs=true", f"hydra.run.dir={place / name}", *more])
    return [place / name for name in words]


def test_two_runs_and_their_dumps(dumped, tmp_path):
    a, b, c = dumped
    _, root = made(a, b, output=tmp_path / "page.html")
    assert "same" in section(root, "Dumps").text
    assert ["mode", "graph", "pynative"] in cells(section(root, "A and B").all("table")[1])
    _, root = made(b, c, output=tmp_path / "page.html")
    found = section(root, "Dumps")
    assert "A parameter or constant differs" in found.text
    assert cells(found.all("table")[0])[0] == ["operator", "conv1.weight"]
    with_code = [row for row in cells(section(root, "A and B").all("table")[0]) if row[0] == "loss"]
    assert with_code[0][-1] == "DIFFERS"


def test_a_damaged_dump_is_told(dumped, tmp_path):
    a, b = (Path(shutil.copytree(place, tmp_path / place.name)) for place in dumped[:2])
    for file in (a / "dump").rglob("*.bin"):
        file.write_bytes(b"")
    _, root = made(a, b, output=tmp_path / "page.html")
    assert "DataError" in section(root, "Dumps").text


def test_a_real_run(dumped):
    text, root = made(dumped[0])
    titles = [one.text for one in root.all("h2")]
    wanted = ["Training", "Worst predictions", "Time per phase", "Config", "What the numbers depend on", "Files"]
    assert [title for title in titles if title != "Graph"] == wanted
    assert len(text) < 300_000
    changed = dict(row[:2] for row in cells(section(root, "Config").all("table")[0]))
    assert (changed["mode"], changed["dataset.name"], changed["max_steps"]) == ("graph", "synthetic", "2")


def test_where_the_page_goes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    leave(tmp_path / "s" / "0")
    leave(tmp_path / "t")
    for words, path in ((["s"], "s/report.html"), (["s", "t"], "report.html"), (["s", "-o", "x.html"], "x.html")):
        assert main(words) == 0
        assert (tmp_path / path).exists()
        assert capsys.readouterr().out.startswith(path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: RUN_OR_SWEEP"),
        (["runn"], "nearest  runs"),
        (["empty"], "no run in this folder"),
        (["runs", "--out", "x"], "unrecognized"),
    ],
)
def test_bad_words(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    leave(tmp_path / "runs" / "0")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as caught:
        main(words)
    assert message in str(caught.value)


def test_help(capsys):
    assert main(["--help"]) == 0
    assert "usage: runner report [-o FILE]" in capsys.readouterr().out
