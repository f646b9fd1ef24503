"""No input ends in an internal error: hostile command lines and files, in this process and in real ones.

Training is a stand-in in this process: what a config is, and where its files go, is decided before. `make soak` tries
20,000 overrides here and 300 in real processes.
"""

import contextlib
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import fuzz
import pytest
from patience import PATIENCE, not_for_ever
from run_folders import leave
from soak import SOAK, thinned
from tables import check_rows, table

from runner import cli
from runner.experiment import run as experiment
from runner.experiment.sweep.sweep import SweepPlan

ROOT = Path(__file__).parents[1]
CODES = {0, 1, 2, 3, 4, 5, 6, 7, 8}
NOT_OURS = re.compile(r"InternalError|Traceback \(most recent call last\)")
DEBUG = "runner.debug=true"  # shows tracebacks
CALLS = 9500  # of a soak: more than 20,000 overrides
MEMORY = 6 << 30  # bytes of a real process
SMALL = ("dataset=synthetic", "dataset.num_samples=64", "max_steps=1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one of them with a dump, a golden file and a sweep, as `runner` writes them."""
    place = tmp_path_factory.mktemp("whole")
    data = ("dataset=synthetic", "dataset.num_samples=64", "dataset_sink_mode=false", "max_steps=2")
    for words in (
        (*data, "hydra.run.dir=run", "dump=sync"),
        (*data, "hydra.run.dir=other", "seed=2"),
        ("golden", "--update", "golden.json", "run"),
        ("-m", *data, "seed=1,2", "hydra.sweep.dir=sweep"),
    ):
        done = real_call([*words], place)
        assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files, pipes and links, and with runs; what is above it belongs to this test too."""
    place = tmp_path_factory.mktemp("fuzz") / "above" / "it"
    (place / "folder" / "experiment").mkdir(parents=True)
    (place / "file").write_text("x")
    (place / "file.json").write_text("{}")
    os.mkfifo(place / "pipe")
    (place / "loop").symlink_to("loop")
    (place / "link").symlink_to("nowhere")
    for name in ("config.yaml", "experiment/nothing.yaml"):
        (place / "nothing" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "nothing" / name).write_text("# @package _global_\nhydra:\n")
    (place / "piped").mkdir()
    os.mkfifo(place / "piped" / "status.json")
    leave(place / "run", (2.0, 1.5, 1.0), [(3, {"accuracy": 0.5, "loss": 1.0})])
    leave(place / "other", (2.0, 1.0))
    return place


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end at once, and sweeps are only planned."""
    summary = {"loss": 0.5, "metrics": {}, "steps_per_second": None, "steps": 1}
    for name in ("run", "run_evaluation"):
        monkeypatch.setattr(experiment, name, lambda request: {**summary, "run_dir": str(request.folder)})
    monkeypatch.setattr(SweepPlan, "run", lambda *given: None)
    monkeypatch.setenv("SECRET", "do-not-show")


def call(words: list[str], place: Path) -> tuple[int, str]:
    """Exit code and output of the command in this process, in a folder whose contents it may not lose."""
    output = io.StringIO()
    redirected = contextlib.redirect_stdout(output), contextlib.redirect_stderr(output)
    with contextlib.chdir(place), not_for_ever(words), redirected[0], redirected[1]:
        code = cli.main(words)
    return code, output.getvalue()


def assert_ours(code: int, output: str, words: object) -> None:
    """The exit code is documented, and the output is neither an internal error nor a traceback, and has no secret."""
    assert code in CODES, (code, words, output)
    assert not NOT_OURS.search(output) or (DEBUG in words and "InternalError" not in output), (words, output)
    assert "do-not-show" not in output, words


def report_counts(capsys: pytest.CaptureFixture[str], text: str) -> None:
    if SOAK:
        with capsys.disabled():
            print(f"\n{text}")


def limited() -> None:
    """Limits of a real process: what wants all memory is refused, and takes none from others."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def real_call(words: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    """The real command, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SECRET": "do-not-show"}
    command = [sys.executable, "-m", "runner", *(os.fsencode(word) for word in words)]
    options = {"cwd": place, "env": environment, "preexec_fn": limited, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, **options)


# What once was an internal error, a hang, a lost process or a silent mistake, with what is reported instead.
KNOWN = (
    (("-m", "seed=1,range(1,3)"), 2, "a sweep inside of another value"),
    (("seed=[range(1,3)]",), 2, "a sweep inside of another value"),
    (("hydra.verbose=[1]",), 2, "not a level of output"),
    (("hydra.verbose=1",), 2, "not a level of output"),
    (("hydra.verbose=${seed}",), 2, "not a level of output"),
    (("--config-dir", "nothing", "+experiment=nothing"), 2, "not a group of keys\n  key    hydra\n"),
    (("--config-path", "nothing"), 2, "not a group of keys\n  key    hydra\n"),
    (("session.loss_scale=1e300",), 2, "not a loss scale"),
    (("network.num_classes=1000000000000",), 2, "out of range\n  key      network.num_classes\n"),
    (("network.num_classes=2147483647",), 2, "there is not enough memory\n  parameter  Float32[2147483647, 84]\n"),
    (("+experiment=resnet50_tiny", "network.width=9223372036854775807"), 2, "out of range"),
    (("+experiment=resnet50_tiny", "network.width=65536"), 2, "there is not enough memory"),
    (("device.threads=9223372036854775807",), 2, "out of range\n  key      device.threads\n"),
    (("device.threads=5000",), 2, "allowed  whole number, 0 to 1024\n"),
    ((f"print_file_path={fuzz.LONG}",), 2, "a name of 300 bytes in a path\n  key      print_file_path\n"),
    ((f"checkpoint.prefix={fuzz.LONG}",), 2, "not allowed\n  key      checkpoint.prefix\n"),
    ((f"hydra.run.dir={fuzz.LONG}",), 2, "a name of 300 bytes in a path\n  key      hydra.run.dir\n"),
    (("print_file_path='x\0y'",), 2, "a text with a character that is not allowed\n  key    print_file_path\n"),
    (("print_file_path='\udcff'",), 2, "a text with a character that is not allowed\n  key    print_file_path\n"),
    (("hydra.output_subdir=${seed}", "hydra.verbose=[${mode}]", "max_steps=0"), 2, "out of range"),
    (("eval.metrics.x.y=1",), 2, "the configuration cannot be composed"),
    (("-m", "hydra.sweeper.max_batch_size=${oc.env:HOME}", "seed=1,2"), 2, "key     hydra.sweeper.max_batch_size\n"),
    (("-m", "network=[[[]]]"), 2, "unknown option\n  key      network\n"),
    ((f"session.fp_point.{fuzz.LONG}=1", "--cfg", "hydra"), 2, "session.fp_point"),
    (("report", "run", "-o", "loop/x"), 5, "cannot write a file\n  path    loop/x\n"),
    (("-sc", "query"), 2, "wrong usage of --shell-completion"),
    (("resume",), 2, "wrong usage"),
    (("resume", fuzz.LONG), 2, "a name of 300 bytes in a path"),
    (("resume", "a\0b"), 2, "a path with a NUL character"),
    (("resume", "run", "seed=1,2"), 2, "several values for one run\n  key    seed\n  value  1,2\n"),
    (("resume", "run", "seed=${network.name}"), 2, 'value    "lenet5"\n'),
    (("resume", "run", "seed=${nope}"), 2, "the configuration cannot be composed\n  key     seed\n"),
    (("resume", "run", "seed=${oc.env:SECRET}"), 2, "may not read this environment variable"),
    (("resume", "run", "~nope"), 2, "unknown key\n  key  nope\n"),
    (("resume", "piped"), 2, "not a run directory\n  path     piped\n  damaged  status.json\n  reason   not a regular"),
    (("report", "run", "-o", "."), 5, "cannot write a file\n  path    .\n  reason  Is a directory\n"),
    (("report", "run", "-o", "pipe"), 5, "cannot write a file\n  path    pipe\n  reason  not a regular file\n"),
    (("session.enable_dump=1",), 2, "hint     session.dump_path=...\n"),
    *(
        ((*before, name, *after), 2, f"wrong usage\n  reason  argument {argument}: a {what}")
        for before, after, argument in (
            (("ls",), (), "DIR"),
            (("rm",), ("run",), "RUN_OR_SWEEP"),
            (("watch",), (), "RUN_DIR"),
            (("report", "run"), (), "RUN_OR_SWEEP"),
            (("report", "run", "-o"), (), "-o/--output"),
            (("compare",), ("run",), "RUN_A"),
            (("compare", "run"), (), "RUN_B"),
            (("golden", "--check"), ("run",), "FILE"),
            (("golden", "--update", "golden.json"), (), "RUN_DIR"),
            (("parse-print",), (), "FILE"),
            (("inspect",), (), "FILE"),
            (("convert", "-d"), (), "-d"),
            (("convert", "-d", "run", "-out"), (), "-out"),
            (("--junit",), (), "--junit"),
            (("--config-dir",), (), "-cd/--config-dir"),
            (("--config-path",), (), "-cp/--config-path"),
        )
        for name, what in ((fuzz.LONG, "name of 300 bytes in a path"), ("a\0b", "path with a NUL character"))
    ),
)


def test_settings_of_hydra_that_refer_to_the_config(world, stand_in):
    words = ["hydra.output_subdir=${mode}", "hydra.verbose=[${network.name}]", "hydra.run.dir=referring"]
    assert call(words, world)[0] == 0
    assert (world / "referring" / "pynative" / "config.yaml").exists()
    shutil.rmtree(world / "referring")


@table(("words", "code", "piece"), KNOWN)
def test_known_cases(world, words, code, piece):
    found, output = call([*words], world)
    assert_ours(found, output, words)
    assert found == code, output
    assert piece in output, output
    assert "nearest  session.enable_exception_dump" not in output


def test_overrides(world, stand_in, capsys):
    count, codes = 0, Counter[int]()

    def check(number: int) -> None:
        nonlocal count
        random = fuzz.rng("overrides", number)
        words = [*(["-m"] if random.random() < 0.15 else []), *fuzz.Grammar(random).words()]
        count += sum("=" in word for word in words)
        code, output = call(words, world)
        codes[code] += 1
        assert_ours(code, output, words)

    check_rows(thinned(range(CALLS), every=100), check)
    assert not SOAK or count >= 20_000
    report_counts(capsys, f"{count} overrides in {codes.total()} calls; exit codes {dict(codes)}")


def test_arguments_of_commands(world, stand_in, capsys):
    codes = Counter[int]()

    def check(number: int) -> None:
        words = fuzz.Grammar(fuzz.rng("commands", number)).command()
        code, output = call(words, world)
        codes[code] += 1
        assert_ours(code, output, words)

    check_rows(thinned(range(3000), every=100), check)
    report_counts(capsys, f"{codes.total()} calls of commands; exit codes {dict(codes)}")


FILES = (
    *(
        "run/status.json",
        "run/config.json",
        "run/manifest.json",
        "run/summary.json",
        "run/metrics.jsonl",
        "run/eval/worst.json",
        "golden.json",
    ),
    *(
        "run/.hydra/overrides.yaml",
        "run/checkpoints/CKP-1_2/MANIFEST.json",
        "run/dump/.metadata/data_dump.json",
    ),
    *("sweep/sweep.jsonl", "sweep/0/status.json", "sweep/0/summary.json", "sweep/1/config.json"),
)
READERS = (
    *(["ls", "--json", "--sort", "loss"], ["ls", "--best", "--where", "seed=1"], ["rm", "run", "sweep", "--dry-run"]),
    *(["ls"], ["ls", "sweep"], ["report", "run"], ["report", "run", "other", "-o", "r.html"], ["report", "sweep"]),
    *(["compare", "run", "other"], ["compare", "run", "other", "--metrics"], ["compare", "other", "run", "--md"]),
    *(["compare", "run", "other", "--metrics", "--json"], ["compare", "run", "run", "--csv"]),
    *(["golden", "--check", "golden.json", "run"], ["golden", "--update", "golden.json", "run"]),
    *(["resume", "run", "max_steps=2"], ["resume", "run", "--force", "seed=3"], ["resume", "sweep"]),
)
INSTEAD = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a device": lambda path: os.symlink("/dev/zero", path),
    "a loop": lambda path: os.symlink(path, path),
    "nothing": lambda path: None,
}


def damage(path: Path, random: Random) -> str:
    """Replace a file by another content or by what is no file; returns what was done."""
    before = path.read_bytes()
    path.unlink()
    kind = random.random()
    if kind < 0.1:
        name = random.choice([*INSTEAD])
        INSTEAD[name](path)
        return name
    if kind < 0.2:
        name = random.choice([*fuzz.JSON])
        path.write_bytes(fuzz.JSON[name])
        return name
    lines = before.decode().splitlines() if path.suffix in (".jsonl", ".yaml") else [before.decode()]
    place = random.randrange(len(lines))
    with contextlib.suppress(ValueError):
        lines[place] = json.dumps(fuzz.mutated(json.loads(lines[place]), random))
    path.write_text("\n".join(lines) + "\n")
    return lines[place][:300]


def test_files_that_commands_read(whole, tmp_path, stand_in, capsys):
    codes = Counter[int]()

    def check(number: int) -> None:
        random = fuzz.rng("files", number)
        place = tmp_path / str(number)
        shutil.copytree(whole, place)
        name = random.choice(FILES)
        done = damage(place / name, random)
        for words in random.sample(READERS, 4):
            code, output = call(words, place)
            codes[code] += 1
            assert_ours(code, output, (words, name, done))
        shutil.rmtree(place)

    check_rows(thinned(range(1500), every=100), check)
    report_counts(capsys, f"{codes.total()} calls with damaged files; exit codes {dict(codes)}")


def test_the_real_command(world, capsys):
    codes = Counter[int]()

    def check(number: int) -> None:
        random = fuzz.rng("real", number)
        grammar = fuzz.Grammar(random)
        words = grammar.command() if random.random() < 0.2 else [*SMALL, *grammar.words(2)]
        words = [word for word in words if "\0" not in word and "\ud800" not in word]  # no process can get these
        done = real_call(words, world)
        codes[done.returncode] += 1
        assert_ours(done.returncode, done.stdout + done.stderr, words)

    check_rows(thinned(range(300), every=100), check)
    report_counts(capsys, f"{codes.total()} calls of the real command; exit codes {dict(codes)}")
