"""Jobs of sweeps, resumed runs and `runner.run`: what a file says makes none of them write elsewhere."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from soak import thinned
from tables import table

import runner
from runner import cli, rundir
from runner.config.groups.services import MlflowTracking
from runner.errors import ConfigError
from runner.experiment.resume import resume
from runner.experiment.sweep import sweep
from runner.experiment.tracking import tracking

GLOBAL = "# @package _global_\n"
WHAT = "a config file may not make a run write outside of the working directory"
TINY = ("dataset=synthetic", "dataset.num_samples=32", "max_steps=1", "callbacks=quiet", "eval.every=never")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    (tmp_path / "here" / "configs" / "experiment").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    monkeypatch.delenv("RUNNER_WRITABLE", raising=False)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def write(text: str) -> None:
    out = str(Path.cwd().parent / "outside")
    Path("configs/experiment/x.yaml").write_text(GLOBAL + text.replace("OUT", out))


def swept(*words: str) -> int:
    return cli.main(["-m", "+experiment=x", "--config-dir", "configs", *TINY, "seed=1,2", *words])


def written(here: Path) -> list[str]:
    """What is outside of the working directory, and inside besides the configs."""
    outside = [*here.parent.iterdir(), *(here.parent / "outside").iterdir()]
    names = [path.name for path in (*outside, *here.iterdir())]
    return sorted({*names} - {"here", "outside", "configs"})


REFUSED = [
    "hydra: {sweep: {dir: '${now:OUT}'}}\n",
    "hydra: {sweep: {subdir: '${now:OUT}/${hydra.job.num}'}}\n",
    "hydra: {sweep: {subdir: '${hydra.job.num}/${dataset.url}'}}\ndataset: {url: ../../../../../../outside/x}\n",
    "hydra: {sweep: {subdir: 'a/../../../../../../outside/x'}}\n",
    "hydra: {sweep: {subdir: '${oc.select:expect.${hydra.job.num},x}'}}\n",
    "hydra: {sweep: {subdir: '${dataset.url}'}}\ndataset: {url: '${hydra.job.num}'}\n",
    "hydra: {output_subdir: '${now:OUT}'}\n",
    "hydra: {job: {name: '${dataset.url}'}}\ndataset: {url: ../x}\n",
    'hydra: {launcher: {partition: "x\\ntouch y"}}\n',
    "hydra: {launcher: {partition: '${dataset.url}'}}\ndataset: {url: \"x\\ntouch y\"}\n",
    "print_file_path: OUT/${seed}\n",
    "hydra: {sweeper: {params: {print_file_path: 'OUT/a,OUT/b'}}}\n",
    "hydra: {sweeper: {params: {+print_file_path: 'OUT/a'}}}\n",
]


@table("text", REFUSED)
def test_a_sweep_is_refused_before_it_has_a_folder(text, here, capfd):
    write(text)
    for launcher in ("basic", "pool"):
        assert swept(f"hydra/launcher={launcher}") == 2
        assert "ConfigError" in capfd.readouterr().err
        assert written(here) == []


@pytest.mark.parametrize("launcher", ["basic", "pool"])
def test_the_jobs_of_a_sweep_are_checked_in_their_own_process(here, launcher, capfd):
    """A value that depends on the number of a job is only known there."""
    write(
        "print_file_path: ${dataset.data_dir}\n"
        "dataset: {data_dir: '${hydra:sweep.dir}/../../../../${hydra:job.num}'}\nhydra: {sweep: {dir: runs}}\n"
    )
    assert swept(f"hydra/launcher={launcher}") in (2, 8)
    assert WHAT in capfd.readouterr().err
    assert [*(here.parent / "outside").iterdir()] == []


FOLDERS = [
    ("'j${hydra.job.num}_${seed}'", ["j0_1", "j1_2"]),
    ("'${hydra:job.num}-${dataset.name}'", ["0-synthetic", "1-synthetic"]),
    ("'${dataset.name}/${hydra.job.num}'", ["synthetic"]),
]


@table(("subdir", "names"), FOLDERS)
def test_usual_folders_of_jobs(subdir, names, here):
    write(f"hydra: {{sweep: {{dir: runs, subdir: {subdir}}}}}\n")
    assert swept() == 0
    assert sorted(path.name for path in (here / "runs").iterdir() if path.is_dir()) == names
    files_of(here / "runs")


def files_of(folder: Path) -> None:
    """Remove a sweep, so that the next one can have its folder."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def test_a_typed_folder_of_a_sweep_may_be_anywhere(here):
    write("seed: 1\n")
    folder = here.parent / "outside" / "sweep"
    assert swept(f"hydra.sweep.dir={folder}", "hydra.sweep.subdir='${hydra.job.num}_${seed}'") == 0
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["0_1", "1_2"]
    assert sweep.resume(folder)  # its folder is named by the user again


def test_a_resumed_sweep_has_typed_what_its_command_line_has_again(here, capfd, monkeypatch):
    write("seed: 1\n")
    line = f"print_file_path={here.parent}/outside/p"
    assert swept(line, "hydra.sweep.dir=runs") == 0
    assert cli.main(["resume", "runs"]) == 2
    assert WHAT in capfd.readouterr().err
    assert cli.main(["resume", "runs", line]) == 0
    monkeypatch.setenv("RUNNER_WRITABLE", str(here.parent / "outside"))
    assert cli.main(["resume", "runs"]) == 0


def test_a_run_from_python_has_typed_its_overrides(here):
    write("print_file_path: OUT/x\n")
    with pytest.raises(ConfigError, match=WHAT):
        runner.run(["+experiment=x", *TINY], config_dir="configs")
    runner.run(["+experiment=x", *TINY, f"print_file_path={here.parent}/outside/y"], config_dir="configs")


def test_the_files_of_a_run_have_not_been_typed_when_it_is_resumed(here, monkeypatch):
    """A run directory may come from someone else."""
    line = f"print_file_path={here.parent}/outside/p"
    runner.run([*TINY, "hydra.run.dir=run", line])
    status = Path("run/status.json").read_bytes()
    with pytest.raises(ConfigError, match=WHAT) as caught:
        resume("run", ["max_steps=2"])
    assert caught.value.rows["key"] == "print_file_path"
    assert Path("run/status.json").read_bytes() == status
    resume("run", ["max_steps=2", line])
    monkeypatch.setenv("RUNNER_WRITABLE", str(here.parent / "outside"))
    resume("run", ["max_steps=3"])


def test_a_run_elsewhere_is_resumed_where_it_is(here):
    folder = here.parent / "outside" / "run"
    runner.run([*TINY, f"hydra.run.dir={folder}", "save_graphs_path=inner"])
    assert resume(folder, ["epochs=2", "max_steps=2"])["steps"] == 2


def below(folder: Path) -> dict[str, bytes | None]:
    """Names, and contents of files, below a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def made_links(folder: Path, moved_to: Path, every: int) -> Iterator[Path]:
    """Each place below a folder in turn, while it is a link to what it was, which is outside."""
    for path in thinned(sorted(folder.rglob("*")), every):
        path.rename(moved_to)
        path.symlink_to(moved_to)
        yield path
        path.unlink()
        moved_to.rename(path)


def test_a_link_at_any_depth_of_a_run_is_not_followed(here, monkeypatch, capfd):
    """A resume removed the folders of later steps, and all else in them, where a link of a dump led."""
    observed = ("mode=graph", "save_graphs=true", "dump=async", "profiling=trace")
    assert cli.main([*TINY, *observed, "hydra.run.dir=run", "checkpoint.every_steps=1"]) == 0
    monkeypatch.setenv("RUNNER_WRITABLE", str(here.parent / "outside"))  # allows paths, not links
    steps = next(Path("run/dump").glob("0/*"))
    depths = set()
    for link in made_links(here / "run", here.parent / "outside" / "target", 9):
        before = below(here.parent)
        assert cli.main(["resume", "run", "epochs=2", "max_steps=2"]) == 2
        error = capfd.readouterr().err
        assert "a directory with symbolic links is not continued" in error
        assert f"links  {link.relative_to(here / 'run')}\n" in error
        assert below(here.parent) == before
        depths.add(len(link.parts))
    assert len(depths) > 3
    assert steps.is_dir()
    assert cli.main(["resume", "run", "epochs=2", "max_steps=2"]) == 0


def test_a_link_at_any_depth_of_a_sweep_is_not_followed(here, capfd):
    write("seed: 1\n")
    assert swept("hydra.sweep.dir=runs") == 0
    for link in made_links(here / "runs", here.parent / "outside" / "target", 5):
        before = below(here.parent)
        assert cli.main(["resume", "runs"]) == 2
        assert f"links  {link.relative_to(here / 'runs')}\n" in capfd.readouterr().err
        assert below(here.parent) == before
    (here / "runs/.submitit").mkdir()
    (here / "runs/.submitit/submission_file_ab.sh").symlink_to("7_submission.sh")  # as submitit leaves it
    assert cli.main(["resume", "runs"]) == 0


def recorded_run(folder: Path) -> tracking.TrackedRun:
    return tracking.TrackedRun(folder, MlflowTracking(), "lenet5", None, {}, resume=True)


ADDRESSES = ["sqlite:////{out}/x.db", "file://{out}", "nonsense"]


@table("address", ADDRESSES)
def test_the_recorded_database_of_a_resumed_run_is_checked(address, here, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    recorded = address.format(out=here.parent / "outside")
    (here / rundir.TRACKING).write_text(json.dumps({"name": "mlflow", "uri": recorded, "run_id": "1"}))
    with pytest.raises(ConfigError) as caught:
        tracking._run_info(recorded_run(here), MlflowTracking())
    assert caught.value.rows["key"] == "tracking.uri"
    own = f"sqlite:///{here}/mlflow.db"
    (here / rundir.TRACKING).write_text(json.dumps({"name": "mlflow", "uri": own, "run_id": "1"}))
    assert tracking._run_info(recorded_run(here), MlflowTracking()).uri == own
