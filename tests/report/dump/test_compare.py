"""`runner compare`: the first operator that differs, and what is reported about it."""

import json
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import dump_files
import numpy as np
import pytest
from dump_files import CONV, GRADIENT, MOMENTUM, ORDER, RELU, WEIGHT, Step, asynchronous, npy, step, sync
from patience import PATIENCE

from runner.cli import main as cli, run_command
from runner.errors import ConfigError, MismatchError
from runner.observe.tolerance import RTOL

main = partial(run_command, "compare")
LAYOUTS = {"sync": sync, "async": asynchronous, "npy": npy}
NOISE = 1e-6


def compare(capsys, a: Path, b: Path, *words: str) -> dict:
    """The object of --json, and the exit code in it."""
    code = main([str(a), str(b), "--json", *words])
    return json.loads(capsys.readouterr().out) | {"code": code}


def shown(capsys, a: Path, b: Path, *words: str) -> str:
    main([str(a), str(b), *words])
    return capsys.readouterr().out


# What agrees


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_rounding_is_no_difference_whatever_the_layouts(first, second, tmp_path, capsys):
    a = LAYOUTS[first](tmp_path / "a", step())
    b = LAYOUTS[second](tmp_path / "b", step(noise=NOISE))
    found = compare(capsys, a, b)
    assert (found["code"], found["same"], found["first"], found["earlier"]) == (0, True, None, None)
    assert found["compared"] == {"operators": 4, "values": 2, "tensors": 12, "differing": 0}
    assert (found["only_a"], found["only_b"], found["notes"]) == ([], [], [])
    assert "same: 4 operators and 2 parameters" in shown(capsys, a, b)


@pytest.mark.parametrize("write", [sync, asynchronous])
def test_values_as_they_lie_are_compared_with_plain_ones(write, tmp_path, capsys):
    a = write(tmp_path / "a", step(), lies="CHWN")
    found = compare(capsys, a, sync(tmp_path / "b", step()), "--all")
    assert (found["code"], found["compared"]["tensors"]) == (0, 12)
    tensors = {tensor["tensor"]: tensor for tensor in found["all"][2]["tensors"]}
    assert (tensors["input_0"]["format_a"], tensors["input_0"]["format_b"]) == ("CHWN", "DefaultFormat")
    assert tensors["input_0"]["shape_a"] == [2, 3, 4, 6]
    assert all(tensor["identical"] for row in found["all"] for tensor in row["tensors"])


def test_float16_against_float32(tmp_path, capsys):
    a, b = sync(tmp_path / "a", step(dtype=np.float16)), sync(tmp_path / "b", step())
    assert compare(capsys, a, b)["code"] == 0
    found = compare(capsys, a, b, "--rtol", "1e-6")
    assert (found["code"], found["first"]["name"], found["rtol"]) == (6, WEIGHT, 1e-6)
    assert "Float16[6]" in shown(capsys, a, b, "--rtol", "1e-6")


# The first one that differs


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wrong", ORDER)
def test_a_wrong_operator_is_found(wrong, layout, tmp_path, capsys):
    a, b = (LAYOUTS[layout](tmp_path / name, made) for name, made in (("a", step(wrong)), ("b", step(noise=NOISE))))
    found = compare(capsys, a, b)
    first = found["first"]
    assert (found["code"], first["name"], first["status"], found["earlier"]) == (6, wrong, "differs", None)
    output = first["tensors"][-1]
    assert (output["tensor"], output["differs"]) == ("output_0", True)
    assert output["max_rel"] == pytest.approx(0.01, rel=1e-2)
    assert output["cosine"] == pytest.approx(1)
    assert not any(tensor["differs"] for tensor in first["tensors"][:-1])
    place = ORDER.index(wrong)
    assert first["ir"].startswith(f"%{place}([CNode]{place}) = ")
    assert first["source"] == [{"file": "net.py", "number": 10 + place, "text": f"x = self.part{place}(x)"}]


def test_the_worst_element_is_told_with_both_values(tmp_path, capsys):
    one, other = step(), step()
    outputs = one.operators[1][2]
    outputs[0] = outputs[0].copy()
    outputs[0][1, 2, 3, 4] += 0.5
    found = compare(capsys, sync(tmp_path / "a", one), sync(tmp_path / "b", other))
    output = found["first"]["tensors"][-1]
    worst = output["worst"]
    right = other.operators[1][2][0]
    assert (found["first"]["name"], output["outside"], worst["index"]) == (RELU, 1, [1, 2, 3, 4])
    assert (worst["a"], worst["b"]) == (outputs[0][1, 2, 3, 4], right[1, 2, 3, 4])
    rms = np.sqrt(np.mean(np.square(right.astype(np.float64))))
    assert worst["bound"] == pytest.approx(1e-4 * max(rms, right[1, 2, 3, 4]))


def test_parameters_come_before_operators(tmp_path, capsys):
    a, b = sync(tmp_path / "a", step(seed=1)), sync(tmp_path / "b", step())
    found = compare(capsys, a, b)
    assert (found["first"]["name"], found["first"]["kind"], found["compared"]["operators"]) == (WEIGHT, "value", 0)
    assert f"first difference: {WEIGHT}" in shown(capsys, a, b)


def test_other_data_are_no_fault_of_an_operator(tmp_path, capsys):
    """Everything differs, but nothing that could be the cause."""
    a, b = sync(tmp_path / "a", step(data=1.0)), sync(tmp_path / "b", step())
    found = compare(capsys, a, b)
    assert (found["code"], found["first"], found["earlier"]["name"]) == (6, None, CONV)
    assert found["earlier"]["made_by"] == {"input_0": "%para1_x"}
    text = shown(capsys, a, b)
    assert f"only inputs differ, first those of: {CONV}" in text
    assert "input_0 is     %para1_x" in text


def test_an_operator_that_was_not_dumped_is_named_as_the_maker(tmp_path, capsys):
    one, other = step(CONV), step()
    for made in (one, other):
        del made.operators[0]
    found = compare(capsys, sync(tmp_path / "a", one), sync(tmp_path / "b", other))
    assert (found["code"], found["first"]) == (6, None)
    assert (found["earlier"]["name"], found["earlier"]["made_by"]) == (RELU, {"input_0": CONV})


def test_a_cause_behind_inputs_that_differ_is_shown_with_them(tmp_path, capsys):
    """Inputs of the ReLU come from elsewhere; the gradient is wrong by itself."""
    one, other = step(GRADIENT), step()
    one.operators[1][1][0] = one.operators[1][1][0] + np.float32(1)
    a, b = sync(tmp_path / "a", one), sync(tmp_path / "b", other)
    found = compare(capsys, a, b)
    assert (found["first"]["name"], found["earlier"]["name"]) == (GRADIENT, RELU)
    assert f"inputs differ before it, but is not the cause: {RELU}" in shown(capsys, a, b)


def drifting(rate: float, tipped: int = 0) -> Step:
    """Rounding that each operator adds to what it takes, from 7e-5 on, and a few signs that it tips in the gradient."""
    made, random = step(), np.random.default_rng(3)
    large = {"x": random.normal(size=10_000).astype(np.float32)}
    error = (random.normal(size=10_000) * rate).astype(np.float32)
    value = large["x"]
    for k, (name, _, _) in enumerate(made.operators):
        taken = value * (1 + (k + 1) * error)
        result = value * (1 + (k + 2) * error)
        if name == GRADIENT:
            result[:tipped] = -result[:tipped]
        made.operators[k] = (name, [taken], [result])
    return made


def test_rounding_that_grows_is_no_operator_s_fault(tmp_path, capsys):
    a, b = sync(tmp_path / "a", drifting(8e-6)), sync(tmp_path / "b", drifting(0))
    found = compare(capsys, a, b)
    assert (found["code"], found["first"], found["cause"]) == (6, None, "rounding")
    assert found["earlier"]["status"] == "grows"
    text = shown(capsys, a, b)
    assert f"no operator is the cause: rounding passes the tolerance first in: {found['earlier']['name']}" in text


def test_a_cause_is_found_in_rounding_that_has_grown(tmp_path, capsys):
    one = drifting(2e-5)
    one.operators[3][2][0] *= np.float32(1.01)
    a, b = sync(tmp_path / "a", one), sync(tmp_path / "b", drifting(0))
    found = compare(capsys, a, b)
    assert (found["first"]["name"], found["cause"], found["earlier"]["name"]) == (MOMENTUM, "operator", CONV)
    assert f"before it, but is not the cause: {CONV}" in shown(capsys, a, b)


@pytest.mark.parametrize(("tipped", "cause"), [(10, "rounding"), (11, "operator")])
def test_rounding_may_tip_a_few_elements_of_an_operator_that_compares(tipped, cause, tmp_path, capsys):
    a, b = sync(tmp_path / "a", drifting(1e-7, tipped)), sync(tmp_path / "b", drifting(0))
    found = compare(capsys, a, b)
    assert (found["code"], found["cause"]) == (6, cause)
    assert (found["first"] or found["earlier"])["name"] == GRADIENT


def test_equal_inputs_tip_nothing(tmp_path, capsys):
    a, b = sync(tmp_path / "a", drifting(0, 1)), sync(tmp_path / "b", drifting(0))
    assert compare(capsys, a, b)["first"]["name"] == GRADIENT


def test_what_follows_in_later_iterations_has_its_cause_in_the_first(tmp_path, capsys):
    a, b = tmp_path / "a", tmp_path / "b"
    for number, one in ((0, step(data=1.0)), (1, step(RELU))):
        sync(a, one, number)
        sync(b, step(), number)
    found = compare(capsys, a, b)
    assert (found["first"], found["cause"], found["earlier"]["iteration"]) == (None, "inputs", 0)
    everything = compare(capsys, a, b, "--all")
    assert (everything["first"], everything["earlier"]["name"], len(everything["all"])) == (None, CONV, 12)


def test_colours_are_for_terminals(tmp_path, capsys, monkeypatch):
    a, b = sync(tmp_path / "a", step(RELU)), sync(tmp_path / "b", step())
    assert "\x1b" not in shown(capsys, a, b, "--all")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31m" in shown(capsys, a, b, "--all")


def test_a_number_has_no_place(tmp_path, capsys):
    one, other = step(), step()
    for made, value in ((one, 2.0), (other, 1.0)):
        made.operators[3] = (MOMENTUM, [], [np.float32(value).reshape(())])
    text = shown(capsys, sync(tmp_path / "a", one), sync(tmp_path / "b", other))
    assert "worst element  output_0: A 2, B 1, allowed 0.0001" in text


def test_the_order_is_that_of_execution_and_not_of_names(tmp_path, capsys):
    """Two operators are wrong; the one that runs first is named, though its number is higher."""
    one = step()
    for k in (1, 3):
        one.operators[k][2][0] = one.operators[k][2][0] * np.float32(2)
    a, b = sync(tmp_path / "a", one), sync(tmp_path / "b", step())
    assert compare(capsys, a, b)["first"]["name"] == RELU
    dump_files.graphs(a / "Net/0", order=ORDER[::-1])
    assert compare(capsys, a, b)["first"]["name"] == MOMENTUM
    (a / "Net/0/execution_order/ms_execution_order_graph_0.csv").unlink()
    assert compare(capsys, a, b)["first"]["name"] == RELU


def test_iterations_ascend_and_only_common_ones_count(tmp_path, capsys):
    a, b = tmp_path / "a", tmp_path / "b"
    for number, made in ((2, step()), (10, step(RELU)), (30, step(CONV))):
        sync(a, made, number)
    for number in (1, 2, 10):
        asynchronous(b, step(), number)
    found = compare(capsys, a, b)
    assert (found["first"]["name"], found["first"]["iteration"]) == (RELU, 10)
    assert found["iterations"] == [[2, 2], [10, 10]]
    assert found["notes"] == ["only these iterations are in both dumps: 2, 10"]


def test_all_goes_on_behind_the_first_difference(tmp_path, capsys):
    a, b = sync(tmp_path / "a", step(RELU)), sync(tmp_path / "b", step())
    found = compare(capsys, a, b, "--all")
    assert [row["status"] for row in found["all"]] == ["same"] * 3 + ["differs"] + ["inputs differ"] * 2
    assert [row["name"] for row in found["all"]] == [WEIGHT, "cst1", *ORDER]
    assert (found["first"]["name"], found["compared"]["differing"]) == (RELU, 3)
    lines = shown(capsys, a, b, "--all").splitlines()
    locations = [next(k for k, line in enumerate(lines) if name in line) for name in (WEIGHT, *ORDER)]
    assert locations == sorted(locations)


# What cannot be measured


def test_other_shapes_and_kinds_are_differences(tmp_path, capsys):
    one = step()
    one.operators[1] = (RELU, one.operators[1][1], [one.operators[1][2][0][:1]])
    one.operators[2] = (GRADIENT, one.operators[2][1], [one.operators[2][2][0].astype(np.int32)])
    a, b = sync(tmp_path / "a", one), sync(tmp_path / "b", step())
    found = compare(capsys, a, b, "--all")
    assert [row["status"] for row in found["all"][3:5]] == ["differs", "differs"]
    output = found["first"]["tensors"][-1]
    assert (found["first"]["name"], output["shape_a"], output["shape_b"]) == (RELU, [1, 3, 4, 6], [2, 3, 4, 6])
    assert "max_abs" not in output
    assert rows(shown(capsys, a, b))["B"] == "same Float32[2, 3, 4, 6]"
    assert rows(shown(capsys, a, b))["A"] == "Float32[2, 3, 4, 6] Float32[1, 3, 4, 6]"


def test_a_type_that_both_have_is_printed_once(tmp_path, capsys):
    text = shown(capsys, sync(tmp_path / "a", step(RELU)), sync(tmp_path / "b", step()))
    assert (rows(text)["A"], rows(text)["B"]) == (" ".join(["Float32[2, 3, 4, 6]"] * 2), "same same")


def rows(text: str) -> dict[str, str]:
    """The rows of the table, by their titles."""
    words = (line.split() for line in text.splitlines() if line.strip())
    return {title: " ".join(rest) for title, *rest in words}


def test_not_a_number_is_json_and_text(tmp_path, capsys):
    one = step()
    one.operators[0][2][0] = one.operators[0][2][0].copy()
    one.operators[0][2][0][0, 0, 0, :3] = np.nan, np.inf, -np.inf
    a, b = sync(tmp_path / "a", one), sync(tmp_path / "b", step())
    output = compare(capsys, a, b)["first"]["tensors"][-1]
    assert (output["nan"], output["inf"], output["outside"]) == ([1, 0], [2, 0], 3)
    assert (output["worst"]["index"], output["worst"]["a"]) == ([0, 0, 0, 0], "nan")
    text = shown(capsys, a, b)
    assert "A nan, B" in text
    assert "1/0" in text
    assert "2/0" in text


def test_constants_that_are_others_are_left_out(tmp_path, capsys):
    """A pass may fold one, and all that follow have other numbers."""
    one, other = step(), step()
    one.held |= {"cst1": np.float32([1, 2, 3]), "cst2": np.int32([3, 4])}
    found = compare(capsys, sync(tmp_path / "a", one), sync(tmp_path / "b", other))
    assert (found["code"], found["only_a"], found["compared"]["values"]) == (0, [], 1)
    assert found["notes"] == ["constants are not compared: the graphs have different ones"]


def test_what_one_side_lacks_is_a_note(tmp_path, capsys):
    """Passes remove operators, a dump may hold results only: neither is a difference."""
    one, other = step(), step()
    del one.operators[2]
    other.operators = [(name, [], outputs) for name, _, outputs in other.operators]
    a, b = sync(tmp_path / "a", one), sync(tmp_path / "b", other)
    found = compare(capsys, a, b, "--all")
    assert (found["code"], found["only_a"], found["only_b"]) == (0, [], [GRADIENT])
    assert found["all"][2]["only_in_one"] == ["input_0", "input_1"]
    assert f"1 only in B: {GRADIENT}" in shown(capsys, a, b)
    assert "only B" in shown(capsys, a, b, "--all")


def test_results_alone_are_enough(tmp_path, capsys):
    one, other = step(RELU), step()
    for made in (one, other):
        made.operators = [(name, [], outputs) for name, _, outputs in made.operators]
    assert compare(capsys, sync(tmp_path / "a", one), npy(tmp_path / "b", other))["first"]["name"] == RELU


def test_inputs_alone_show_where_the_difference_comes_from(tmp_path, capsys):
    one, other = step(RELU), step()
    for made in (one, other):
        made.operators = [(name, inputs, []) for name, inputs, _ in made.operators]
    found = compare(capsys, sync(tmp_path / "a", one), sync(tmp_path / "b", other))
    assert (found["first"], found["earlier"]["name"]) == (None, GRADIENT)
    assert found["earlier"]["made_by"] == {"input_0": RELU}


def test_nothing_in_common(tmp_path):
    a, b = sync(tmp_path / "a", step(), 3), sync(tmp_path / "b", step(), 4)
    with pytest.raises(MismatchError, match="no iteration in common") as caught:
        main([str(a), str(b)])
    assert caught.value.rows["iterations of A"] == "3"
    other = step()
    other.operators = [(name.replace("-op", "Twice-op"), *rest) for name, *rest in other.operators]
    with pytest.raises(MismatchError, match="no operator in common") as caught:
        main([str(a), str(sync(tmp_path / "c", other, 3))])
    assert caught.value.exit_code == 6


def test_two_folders_are_compared_whatever_their_numbers(tmp_path, capsys):
    path = tmp_path / "a"
    for number, made in ((3, step()), (4, step(GRADIENT))):
        sync(path, made, number)
    folders = [path / "Net/0" / f"iteration_{number}" for number in (4, 3)]
    found = compare(capsys, *folders)
    assert (found["first"]["name"], found["iterations"]) == (GRADIENT, [[4, 3]])


# Words


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        ([], "wrong usage"),
        (["a"], "required: RUN_B"),
        (["a", "b", "c"], "unrecognized arguments: c"),
        (["a", "b", "--rtol", "x"], "--rtol"),
        (["a", "b", "--rtol", "-1"], "--rtol"),
        (["a", "b", "--atol", "inf"], "not a number of at least 0"),
        (["a", "b", "--atol"], "--atol"),
        (["a", "b", "--alle"], "--alle"),
    ],
)
def test_wrong_words(words, piece):
    with pytest.raises(ConfigError) as caught:
        main(words)
    assert piece in str(caught.value)
    assert "runner compare --help" in str(caught.value)


def test_help_tells_the_tolerance(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert f"{', '.join(f'{value:g} for {kind}' for kind, value in RTOL.items())}." in out
    assert "0.01 for Float16, 0.0001 for Float32" in out
    assert "6 different" in out


def test_both_runs_in_one_place(tmp_path):
    dump = sync(tmp_path / "dump", step())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"dump": {"name": "sync", "path": str(dump)}}))
    with pytest.raises(ConfigError, match="in the same folder"):
        main([str(tmp_path / "a"), str(tmp_path / "b")])


def test_a_process_ends_with_six_and_prints_plain_text(tmp_path):
    a, b = sync(tmp_path / "a", step(RELU)), sync(tmp_path / "b", step())
    command = [sys.executable, "-m", "runner", "compare", str(a), str(b)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert (done.returncode, done.stderr) == (6, "")
    assert "\x1b" not in done.stdout
    assert "IR             %1([CNode]1) = ReLU(%0)" in done.stdout
    assert "source         net.py(11)  x = self.part1(x)" in done.stdout


def test_a_damaged_file_is_named_by_the_command(tmp_path, capsys):
    a, b = sync(tmp_path / "a", step()), sync(tmp_path / "b", step())
    file = next(b.rglob("*ReLU-op1_output_0*"))
    os.truncate(file, 100)
    assert cli(["compare", str(a), str(b)]) == 7
    error = capsys.readouterr().err
    assert str(file) in error
    assert "found     100 bytes" in error


# Memory


def test_memory_is_flat(tmp_path, capsys):
    """Tensors of 64 MiB, and little memory."""
    large = np.ones(1 << 24, np.float32)
    for name, factor in (("a", 1), ("b", 1.5)):
        made = step()
        made.operators[0] = (CONV, [], [large * np.float32(factor)])
        sync(tmp_path / name, replace(made))
    del large
    tracemalloc.start()
    found = compare(capsys, tmp_path / "a", tmp_path / "b")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["first"]["tensors"][0]["outside"] == 1 << 24
    assert peak < 8 << 20
