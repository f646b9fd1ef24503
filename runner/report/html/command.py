"""`runner report RUN_OR_SWEEP...`: finds the runs and writes the page."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.errors import ConfigError, RunnerError, nearest
from runner.experiment.sweep import journal
from runner.experiment.sweep.best import best, sentence
from runner.experiment.sweep.state import SweepState
from runner.host import files
from runner.host.files import real_path
from runner.report.html import pair_page, run_page, sweep_page
from runner.report.html.layout import page
from runner.report.html.run_set import RunSet, natural_key
from runner.report.record import RunRecord, run_directories

NAME = "report.html"
MAX_NAMES = 20


def main(words: Sequence[str], output: str | None) -> int:
    """Write the page about the runs in some folders and print its path.

    Raises ConfigError if there is no run, StorageError if the page cannot be written.
    """
    folders = [Path(word) for word in words]
    target = Path(output) if output else (folders[0] if len(folders) == 1 else Path()) / NAME
    runs = find_runs(folders)
    files.write_atomically(target, render(runs, folders, target.parent))
    print(f"{target}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}")  # noqa: T201  output of the command
    return 0


def find_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """The runs in some folders without duplicates, in the order of the folders, in natural order within a folder.

    Raises ConfigError for a folder that does not exist or has no run.
    """
    runs: dict[Path, RunRecord] = {}
    for folder in folders:
        if not folder.is_dir():
            siblings = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
            raise ConfigError("the folder does not exist", path=folder, nearest=nearest(folder.name, siblings))
        directories = sorted(run_directories(folder), key=natural_key)
        if not directories:
            raise ConfigError("no run in this folder", path=folder, hint="runner ls lists runs")
        for directory in directories:
            runs.setdefault(real_path(directory), RunRecord(directory))
    return list(runs.values())


def render(runs: Sequence[RunRecord], folders: Sequence[Path], home: Path) -> str:
    """The page about at least one run, with links relative to the folder `home`."""
    if len(runs) == 1:
        return page(f"{runs[0].name} \N{MIDDLE DOT} runner", run_page.head(runs[0]), run_page.sections(runs[0], home))
    run_set = RunSet(runs)
    sections = sweep_page.sections(run_set, home)
    if len(runs) == 2:
        sections[1:1] = pair_page.sections(runs[0], runs[1])
    remarks = [remark for folder in folders for remark in sweep_remarks(folder)]
    head = sweep_page.head(run_set, ", ".join(map(str, folders)), remarks)
    return page(f"{len(runs)} runs \N{MIDDLE DOT} runner", head, sections)


def sweep_remarks(folder: Path) -> Iterator[str]:
    """Remarks from the journal of a sweep: the search and its best job, and jobs without a folder."""
    if not (folder / journal.NAME).is_file():
        return
    sweep = SweepState(folder)
    try:
        sweep.update()
    except RunnerError as error:
        yield f"{folder / journal.NAME}: {error.what}"
        return
    outcomes = sweep.outcomes()
    if (search := sweep.search) and (found := best(outcomes, search)):
        yield f"a search to {search['direction']} {search['metric']}; {sentence(found, outcomes, search)}"
    missing = [str(outcome.number) for outcome in outcomes if outcome.status == "missing"]
    if missing:
        yield f"{len(missing)} of {len(sweep.jobs)} jobs never began: {', '.join(missing[:MAX_NAMES])}"
