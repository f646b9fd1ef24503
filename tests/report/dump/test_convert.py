"""`runner convert`: names and elements of the results, folders with damaged files, and every wrong command line."""

import csv
import errno
import json
import struct
import subprocess
import sys
import tracemalloc
import uuid
from pathlib import Path

import foreign_files as foreign
import numpy as np
import pytest

from runner import cli
from runner.errors import DataError
from runner.host import files
from runner.observe.dump import dumper
from runner.observe.dump.files import long_names
from runner.observe.dump.layouts import LAYOUTS, from_nchw
from runner.report.dump.convert import FAILED_LIST

RNG = np.random.default_rng(0)
CONV = "Conv2D.Default_network__backbone_conv1_Conv2D-op515.58.16.1624605159829577"
FULL_NAME = "Default/network/_backbone/conv1/Conv2D-op515"
X, W, Y = (RNG.normal(size=s).astype(np.float16) for s in ((4, 3, 8, 8), (20, 3, 3, 3), (4, 20, 8, 8)))


def lying(array, format, original=None):
    """A tensor for `foreign.second`: the array in a format."""
    return from_nchw(array, format), format, array.shape if original is None else original


def conv():
    """The operator of seed 002 as a device dumps it."""
    return foreign.second(FULL_NAME, [lying(X, "NC1HWC0"), lying(W, "FRACTAL_Z")], [lying(Y, "NC1HWC0")])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The present folder, with the file of a convolution in `dump/`."""
    monkeypatch.chdir(tmp_path)
    put("dump/" + CONV, conv())
    return tmp_path


def put(name, content):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def convert(*words):
    return cli.main(["convert", *map(str, words)])


def made(folder="out"):
    """Names of the files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def equal(name, array):
    found = np.load(Path("out", name), allow_pickle=False)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert np.array_equal(found, array)
    assert found.flags.c_contiguous


def test_the_words_of_the_seed(tmp_path, monkeypatch, capsys):
    """Of "Dump" for a training on ModelArts: its command line, and the files that it shows."""
    monkeypatch.chdir(tmp_path)
    put(f"dump/iteration/{CONV}", conv())
    monkeypatch.chdir(tmp_path / "dump" / "iteration")
    assert convert(*f"-d ./{CONV} -out ../output/ -f NCHW -c ../".split()) == 0
    monkeypatch.chdir(tmp_path / "dump")
    shapes = ["input.0.4x3x8x8", "input.1.20x3x3x3", "output.0.4x20x8x8"]
    assert made("output") == [f"{CONV}.{shape}.npy" for shape in shapes]
    for shape, array in zip(shapes, (X, W, Y), strict=True):
        assert np.array_equal(np.load(f"output/{CONV}.{shape}.npy"), array)
    printed = capsys.readouterr().out
    assert "-c ../ has no effect" in printed
    assert "3 files in ../output" in printed


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("", ["input.0.npy", "input.1.npy", "output.0.npy"]),
        ("-f NHWC", ["input.0.4x8x8x3.npy", "input.1.20x3x3x3.npy", "output.0.4x8x8x20.npy"]),
        ("-f FRACTAL_Z -i 1", ["input.1.9x2x16x16.npy"]),
        ("-i 1", ["input.1.npy"]),
        ("-o 0", ["output.0.npy"]),
        ("-i 0 -o 0", ["input.0.npy", "output.0.npy"]),
        ("-t bin -i 0", ["input.0.4_1_8_8_16.float16.NC1HWC0.bin"]),
        ("-t bin -i 0 -f NCHW", ["input.0.4_3_8_8.float16.NCHW.bin"]),
    ],
)
def test_names(place, words, names):
    assert convert("-d", f"dump/{CONV}", "-out", "out", *words.split()) == 0
    assert made() == [f"{CONV}.{name}" for name in names]


def test_shorter_names(place):
    put("dump/Add.Default_a_Add-op1.2.161243956333802", foreign.second("Default/a.b/Add-op1", [foreign.scalar(1)]))
    put("dump/Add.x.3.4.5", foreign.second("", [foreign.scalar(1)]))
    assert convert("-d", "dump", "-out", "out", "-t", "msnpy", "-i", "0") == 0
    assert made() == [
        "Add.Add-op1.2.161243956333802.input.0.ND.npy",
        "Add.x.3.4.5.input.0.ND.npy",
        "Conv2D.Conv2D-op515.58.16.1624605159829577.input.0.NC1HWC0.npy",
    ]
    assert convert("-d", "dump", "-out", "nchw", "-t", "msnpy", "-i", "0", "-f", "NCHW") == 0
    assert made("nchw")[-1] == "Conv2D.Conv2D-op515.58.16.1624605159829577.input.0.NCHW.npy"


def test_elements_as_they_lie(place):
    assert convert("-d", "dump", "-out", "out") == 0
    equal(f"{CONV}.input.0.npy", from_nchw(X, "NC1HWC0"))
    equal(f"{CONV}.input.1.npy", from_nchw(W, "FRACTAL_Z"))
    assert convert("-d", "dump", "-out", "out", "-t", "bin", "-i", "1") == 0
    assert (
        Path("out", f"{CONV}.input.1.9_2_16_16.float16.FRACTAL_Z.bin").read_bytes()
        == from_nchw(W, "FRACTAL_Z").tobytes()
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("format", ["NCHW", "NHWC", "HWCN", "CHWN", "NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"])
def test_each_format_to_each(tmp_path, monkeypatch, format, dtype):
    monkeypatch.chdir(tmp_path)
    x = (RNG.normal(size=(18, 5, 2, 3)) * 9).astype(dtype)
    put("Add.x.1.2.3", foreign.second("x", [lying(x, format)]))
    assert convert("-d", "Add.x.1.2.3", "-out", "out", "-f", "NCHW") == 0
    equal("Add.x.1.2.3.input.0.18x5x2x3.npy", x)
    assert convert("-d", "Add.x.1.2.3", "-out", "out", "-f", "NHWC") == 0
    equal("Add.x.1.2.3.input.0.18x2x3x5.npy", x.transpose(0, 2, 3, 1))


def test_tensors_of_other_ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bias, matrix = RNG.normal(size=20).astype(np.float32), RNG.normal(size=(20, 30)).astype(np.float32)
    channels = lying(bias.reshape(1, 20, 1, 1), "NC1HWC0", (20,))
    put(
        "Add.x.1.2",
        foreign.second("x", [channels, lying(matrix, "FRACTAL_NZ"), foreign.scalar(7)], [lying(bias, "ND")]),
    )
    assert convert("-d", ".", "-out", "out", "-f", "NCHW") == 0
    assert made() == [f"Add.x.1.2.{n}.npy" for n in ("input.0.20", "input.1.20x30", "input.2.", "output.0.20")]
    equal("Add.x.1.2.input.0.20.npy", bias)
    equal("Add.x.1.2.input.1.20x30.npy", matrix)
    equal("Add.x.1.2.input.2..npy", np.array(7, np.float32))


def test_shapes_that_files_do_not_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("Conv2D.x.1.2.3", foreign.second("x", [lying(X, "NC1HWC0", ())], [lying(W, "FRACTAL_Z", ())]))
    assert convert("-d", ".", "-out", "out", "-f", "NCHW", "-i", 0) == 0
    found = np.load("out/Conv2D.x.1.2.3.input.0.4x16x8x8.npy")
    assert np.array_equal(found[:, :3], X)
    assert not found[:, 3:].any()
    assert convert("-d", ".", "-out", "out", "-f", "NCHW", "-i", 0, "-s", "4,3,8,8") == 0
    equal("Conv2D.x.1.2.3.input.0.4x3x8x8.npy", X)
    assert convert("-d", ".", "-out", "out", "-f", "NCHW", "-o", 0) == 7
    assert convert("-d", ".", "-out", "out", "-f", "NCHW", "-o", 0, "-s", "20,3,3,3") == 0
    equal("Conv2D.x.1.2.3.output.0.20x3x3x3.npy", W)


def test_weights_in_groups(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = RNG.normal(size=(32, 1, 3, 3)).astype(np.float32)
    put("Conv2D.x.1.2.3", foreign.second("x", [(from_nchw(weights, "FRACTAL_Z", 32), "FRACTAL_Z", weights.shape, 32)]))
    assert convert("-d", ".", "-out", "out", "-f", "NCHW") == 0
    equal("Conv2D.x.1.2.3.input.0.32x1x3x3.npy", weights)


def test_memory_of_the_device(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("Add.x.1.2.3", foreign.second("x", [foreign.scalar(1)], [], [b"l1", b""], [b"log"]))
    assert convert("-d", ".", "-out", "out") == 0
    assert made() == [f"Add.x.1.2.3.{n}" for n in ("input.0.npy", "l1buffer.0.bin", "l1buffer.1.bin", "space.0.bin")]
    assert Path("out/Add.x.1.2.3.l1buffer.0.bin").read_bytes() == b"l1"
    assert Path("out/Add.x.1.2.3.space.0.bin").read_bytes() == b"log"
    assert convert("-d", ".", "-out", "chosen", "-i", 0) == 0
    assert made("chosen") == ["Add.x.1.2.3.input.0.npy"]


@pytest.mark.parametrize("words", ["", "-f NCHW", "-t bin"])
def test_records_of_overflows(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    record = np.frombuffer(dumper.overflow_record(1, 57, 16), np.uint8)
    put("Opdebug.Node_OpDebug.57.16.9", foreign.second("Node_OpDebug", [], [(record, "ND", ())]))
    put("Opdebug.Node_OpDebug.58.16.9", foreign.second("Node_OpDebug", [], [(record[:-1], "ND", ())]))
    assert convert("-d", ".", "-out", "out", *words.split()) == 7
    assert made() == ["Opdebug.Node_OpDebug.57.16.9.output.0.json", "convert_failed_file_list.txt"]
    found = json.loads(Path("out/Opdebug.Node_OpDebug.57.16.9.output.0.json").read_text())
    assert list(found) == ["DHA Atomic Add", "L2 Atomic Add", "AI Core"]
    assert found["AI Core"] == {
        "model_id": 0,
        "stream_id": 16,
        "task_id": 57,
        "task_type": 0,
        "pc_start": "0x0",
        "para_base": "0x0",
        "kernel_code": "0x0",
        "block_idx": 0,
        "status": 1,
    }
    assert Path("out/convert_failed_file_list.txt").read_text() == "Opdebug.Node_OpDebug.58.16.9,output:0\n"


def test_both_versions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("Add.x.1.2.3", foreign.first("x", [lying(X, "NC1HWC0")]))
    for words in ([], ["-v", 1]):
        assert convert("-d", ".", "-out", "out", "-f", "NCHW", *words) == 0
        equal("Add.x.1.2.3.input.0.4x3x8x8.npy", X)
    assert convert("-d", ".", "-out", "out", "-v", 2) == 7


# Folders


def test_folders_below(place):
    put("dump/0/Add.x.1.2", foreign.second("x", [foreign.scalar(1)]))
    put("dump/1/sub/Add.x.1.2", foreign.second("x", [foreign.scalar(2)]))
    for other in ("Add.x.1.2.input.0.npy", "statistic.csv", "graph.ir", "Add.x", "a.b.c.1", ".Add.x.1.2.tmp"):
        put(f"dump/1/{other}", b"not a dump file")
    assert convert("-d", "dump", "-out", "out", "-i", 0) == 0
    assert made() == ["0/Add.x.1.2.input.0.npy", "1/sub/Add.x.1.2.input.0.npy", f"{CONV}.input.0.npy"]
    equal("1/sub/Add.x.1.2.input.0.npy", np.array(2, np.float32))


def test_into_the_present_folder_beside_the_files(place, monkeypatch):
    monkeypatch.chdir(place / "dump")
    for _ in range(2):  # results are no dump files
        assert convert("-d", ".") == 0
        assert made(".") == [CONV, *(f"{CONV}.{n}.npy" for n in ("input.0", "input.1", "output.0"))]


def test_a_file_of_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("dumped", foreign.second("x", [foreign.scalar(1)]))
    assert convert("-d", "dumped", "-out", "out") == 0
    assert made() == ["dumped.input.0.npy"]


def test_damaged_files_are_listed_and_the_rest_is_converted(place, capsys):
    good = foreign.second("x", [foreign.scalar(1)])
    put("dump/0/Add.good.1.2", good)
    put("dump/0/Add.cut.1.2", good[:-1])
    put("dump/1/Add.long.1.2", good + b"\0")
    put("dump/1/Add.other.1.2", b"\x93NUMPY not a dump file")
    put("dump/1/Conv.part.1.2", foreign.second("x", [lying(W, "FRACTAL_Z", ())], [foreign.scalar(3)]))
    assert convert("-d", "dump", "-out", "out", "-f", "NCHW") == 7
    assert Path("out/convert_failed_file_list.txt").read_text().splitlines() == [
        "dump/0/Add.cut.1.2",
        "dump/1/Add.long.1.2",
        "dump/1/Add.other.1.2",
        "dump/1/Conv.part.1.2,input:0",
    ]
    equal("0/Add.good.1.2.input.0..npy", np.array(1, np.float32))
    equal("1/Conv.part.1.2.output.0..npy", np.array(3, np.float32))
    equal(f"{CONV}.output.0.4x20x8x8.npy", Y)
    printed = capsys.readouterr().err
    assert printed.count("DataError") == 4
    assert "4 of 6 dump files could not be converted; they are listed in out/convert_failed_file_list.txt" in printed
    for name in ("0/Add.cut", "1/Add.long", "1/Add.other", "1/Conv.part"):
        Path(f"dump/{name}.1.2").unlink()
    assert convert("-d", "dump", "-out", "out", "-f", "NCHW") == 0
    assert "convert_failed_file_list.txt" not in made()


def test_only_the_first_errors_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for k in range(30):
        put(f"Add.x{k}.1.2", b"no")
    assert convert("-d", ".", "-out", "out") == 7
    assert capsys.readouterr().err.count("DataError") == 10
    assert len(Path("out/convert_failed_file_list.txt").read_text().splitlines()) == 30


def test_a_slot_that_only_some_operators_have(place):
    put("dump/Add.x.1.2", foreign.second("x", [foreign.scalar(1)]))
    assert convert("-d", "dump", "-out", "out", "-i", 1) == 7
    assert made() == [f"{CONV}.input.1.npy", "convert_failed_file_list.txt"]
    assert Path("out/convert_failed_file_list.txt").read_text() == "dump/Add.x.1.2\n"


# Names that are too long


def test_names_that_are_too_long(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long = f"Add.{'x' * 235}.1.2"
    put(f"dump/{long}", foreign.second("x", [foreign.scalar(1), foreign.scalar(2)]))
    assert convert("-d", "dump", "-out", "out") == 0
    names = [f"{long}.input.{k}.npy" for k in range(2)]
    assert all(len(name) == 255 for name in names)
    shorts = [uuid.uuid3(uuid.NAMESPACE_DNS, name).hex + ".npy" for name in names]
    assert made() == sorted(["mapping.csv", *shorts])
    assert Path("out/mapping.csv").read_text() == "".join(f"{s},{n}\n" for s, n in zip(shorts, names, strict=True))
    equal(shorts[1], np.array(2, np.float32))
    put("dump/Add.y.1.2", foreign.second("x", [foreign.scalar(1)]))
    assert convert("-d", "dump", "-out", "out", "-f", "NCHW") == 0  # what is there stays
    with open("out/mapping.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert [name for _, name in rows[:2]] == names
    assert len(rows) == 4


def test_the_longest_name_that_is_not_too_long(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(f"dump/Add.{'x' * 234}.1.2", foreign.second("x", [foreign.scalar(1)]))
    assert convert("-d", "dump", "-out", "out") == 0
    assert made() == [f"Add.{'x' * 234}.1.2.input.0.npy"]


def test_files_with_numbers_for_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("dump/00012345", foreign.second("x", [foreign.scalar(1)]))
    put("dump/00099999", b"of another program")
    put("dump/mapping.csv", b"00012345,Add.x.1.2\n00077777,Add.gone.1.2\n\nnonsense\n")
    assert convert("-d", "dump", "-out", "out") == 0
    assert made() == ["Add.x.1.2.input.0.npy"]
    assert convert("-d", "dump/00012345", "-out", "one") == 0
    assert made("one") == ["Add.x.1.2.input.0.npy"]


@pytest.mark.parametrize("name", ["../Add.x.1.2", "/tmp/Add.x.1.2", "a/Add.x.1.2", "Add.x\0.1.2"])
def test_a_mapping_cannot_lead_elsewhere(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    put("dump/00012345", foreign.second("x", [foreign.scalar(1)]))
    put("dump/mapping.csv", f"00012345,{name}\n".encode())
    assert convert("-d", "dump", "-out", "out") == 7
    assert made("out") == []


def test_a_damaged_mapping(tmp_path):
    for content in (b"\xff\xfe,x\n", b'"unclosed,' + b"x" * 200_000):
        (tmp_path / "mapping.csv").write_bytes(content)
        with pytest.raises(DataError) as caught:
            long_names(tmp_path)
        assert caught.value.rows["file"] == str(tmp_path / "mapping.csv")


def test_the_name_of_an_operator_cannot_lead_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("dump/Add.x.1.2", foreign.second("Default/..", [foreign.scalar(1)]))
    put("dump/Add.y.1.2", foreign.second("a/..\\..\\b", [foreign.scalar(1)]))
    assert convert("-d", "dump", "-out", "out", "-t", "msnpy") == 0
    assert made() == ["Add.__.1.2.input.0.ND.npy", "Add.______b.1.2.input.0.ND.npy"]


# Wrong words


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        ("", ["wrong usage", "-d", "runner convert -d PATH [-out DIR]"]),
        ("-out out", ["wrong usage", "required: -d"]),
        ("-d", ["wrong usage", "argument -d"]),
        ("-d dump extra", ["wrong usage", "extra"]),
        ("-d dump --format NCHW", ["wrong usage", "--format"]),
        ("-d none", ["no such file or folder", "-d", "none"]),
        ("-d dumb", ["no such file or folder", "dumb", "nearest  dump"]),
        ("-d none/none", ["no such file or folder"]),
        ("-d empty", ["there is no dump file", "empty", "{op_type}.{op_name}"]),
        ("-d dump -f NCWH", ["not a format", "NCWH", "nearest  NCHW", "FRACTAL_NZ"]),
        ("-d dump -f nchw", ["not a format", "nchw", "allowed"]),
        ("-d dump -f FRACTAL_ZZ", ["not a format", "nearest  FRACTAL_Z"]),
        ("-d dump -f NDC1HWC0", ["not a format", "NDC1HWC0"]),
        ("-d dump -t npz", ["wrong usage", "npz", "msnpy"]),
        ("-d dump -v 3", ["wrong usage", "-v", "3"]),
        ("-d dump -v two", ["wrong usage", "-v", "two"]),
        ("-d dump -i x", ["wrong usage", "-i", "x"]),
        ("-d dump -i 1.5", ["wrong usage", "-i", "1.5"]),
        ("-d dump -i -1", ["counted from 0", "-i", "-1"]),
        ("-d dump -o -1", ["counted from 0", "-o", "-1"]),
        ("-d dump -s 1,2,3,4", ["a shape requires a format", "-f NCHW"]),
        ("-d dump -f NCHW -s 1x2", ["not a shape", "1x2", "64,3,3,3"]),
        ("-d dump -f NCHW -s 1,,2", ["not a shape", "1,,2"]),
        ("-d dump -f NCHW -s 1,2,", ["not a shape", "1,2,"]),
        ("-d dump -f NCHW -s 0,2", ["not a shape", "0,2"]),
        ("-d dump -f NCHW -s 1,1e3", ["not a shape", "1,1e3"]),
        ("-d dump -out file", ["results go to a folder", "-out", "file"]),
    ],
)
def test_wrong_words(place, capsys, words, pieces):
    put("file", b"")
    Path("empty").mkdir()
    assert convert(*words.split()) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith("ConfigError: ")
    assert [piece for piece in pieces if piece not in printed.err] == []
    assert sorted(path.name for path in Path().iterdir()) == ["dump", "empty", "file"]


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["-d", "x", "-h"]])
def test_help(capsys, words):
    assert convert(*words) == 0
    printed = capsys.readouterr().out
    for option in ("-d", "-out", "-f", "-s", "-t", "-i", "-o", "-v", "-c"):
        assert f"  {option}" in printed
    assert f"convert to {', '.join(LAYOUTS)};" in " ".join(printed.split())
    assert f"DIR/{FAILED_LIST})" in printed


# The disk, and memory


def test_a_full_disk(place, monkeypatch, capsys):
    calls = []

    def full(operation, path):
        if operation == "write":
            calls.append(path)
            if len(calls) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "before_operation", full)
    assert convert("-d", "dump", "-out", "out") == 5
    printed = capsys.readouterr().err
    assert "No space left on device" in printed
    assert f"{CONV}.input.1.npy" in printed
    assert made() == [f"{CONV}.input.0.npy"]


def test_a_folder_that_cannot_be_made(place, capsys):
    put("file", b"")
    assert convert("-d", "dump", "-out", "file/out") == 5
    assert "file/out" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "most"), [([], 2), (["-f", "NCHW"], 18), (["-f", "FRACTAL_NZ"], 34)])
def test_memory(tmp_path, monkeypatch, words, most):
    """In MiB, with tensors of 16 MiB: they are written from the mapped file, or one at a time."""
    monkeypatch.chdir(tmp_path)
    big = np.ones((64, 64, 32, 32), np.float32)
    put("Add.x.1.2", foreign.second("x", [lying(big, "NCHW"), lying(big, "CHWN")], [lying(big, "NHWC")]))
    del big
    tracemalloc.start()
    try:
        assert convert("-d", ".", "-out", "out", *words) == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most << 20


def test_as_a_process(place):
    words = [sys.executable, "-m", "runner", "convert", "-d", "dump", "-out", "out", "-f", "NCHW"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 files in out\n", "")
    put("dump/Add.x.1.2", struct.pack("<Q", 99))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert done.stderr.splitlines()[0] == "DataError: the header does not fit the file"
