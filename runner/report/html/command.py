"""`runner report RUN_OR_SWEEP...`: finds the runs and writes the page."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from runner import rundir
from runner.errors import ConfigError, RunnerError, nearest
from runner.experiment.sweep.journal import SweepState
from runner.experiment.sweep.sweep import best, sentence
from runner.host import files
from runner.host.files import real_path
from runner.report.html import run, runs
from runner.report.html.page import page
from runner.report.html.run_set import RunSet, Search, natural_key
from runner.report.record import RunRecord
from runner.rundir import run_directories

MAX_NAMES = 20


def main(args: Namespace) -> int:
    """Write the page about the runs in some folders and print its path.

    Raises ConfigError if there is no run, DataError as `find_runs`, StorageError if the page cannot be written.
    """
    folders = [Path(word) for word in args.folders]
    target = Path(args.output) if args.output else (folders[0] if len(folders) == 1 else Path()) / rundir.REPORT
    found = find_runs(folders)
    files.write_atomically(target, render(found, folders, target.parent))
    print(f"{target}: {len(found)} {'run' if len(found) == 1 else 'runs'}")  # noqa: T201  output of the command
    return 0


def find_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """The runs in some folders without duplicates, in the order of the folders, in natural order within a folder.

    Raises ConfigError for a folder that does not exist or has no run, DataError for a run whose journal has NUL bytes.
    """
    found: dict[Path, RunRecord] = {}
    for folder in folders:
        if not folder.is_dir():
            siblings = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
            raise ConfigError("the folder does not exist", path=folder, nearest=nearest(folder.name, siblings))
        directories = sorted(run_directories(folder), key=natural_key)
        if not directories:
            raise ConfigError("no run in this folder", path=folder, hint="runner ls lists runs")
        for directory in directories:
            found.setdefault(real_path(directory), RunRecord(directory))
    for record in found.values():
        record.refuse_zeros()
    return list(found.values())


def render(records: Sequence[RunRecord], folders: Sequence[Path], home: Path) -> str:
    """The page about at least one run, with links relative to the folder `home`."""
    if len(records) == 1:
        return page(f"{records[0].name} \N{MIDDLE DOT} runner", run.head(records[0]), run.sections(records[0], home))
    journals = [read_journal(folder) for folder in folders]
    searches = [one.search for one in journals if one.search]
    run_set = RunSet(records, searches[0] if len(searches) == 1 else None)
    sections = runs.sections(run_set, home)
    if len(records) == 2:
        sections[1:1] = runs.pair_sections(records[0], records[1])
    remarks = [remark for one in journals for remark in one.remarks]
    results = [one.result for one in journals if one.result]
    head = runs.head(run_set, ", ".join(map(str, folders)), results, remarks)
    return page(f"{len(records)} runs \N{MIDDLE DOT} runner", head, sections)


class SweepJournal(NamedTuple):
    """What the journal of a sweep says: its search and the result of it as a sentence, and remarks on missing jobs."""

    search: Search | None = None
    result: str | None = None
    remarks: tuple[str, ...] = ()


def read_journal(folder: Path) -> SweepJournal:
    """The journal in a folder; empty if the folder is not that of a sweep."""
    if not (folder / rundir.SWEEP).is_file():
        return SweepJournal()
    sweep = SweepState(folder)
    try:
        sweep.update()
    except RunnerError as error:
        return SweepJournal(remarks=(f"{folder / rundir.SWEEP}: {error.what}",))
    outcomes = sweep.outcomes()
    search = result = None
    if settings := sweep.search:
        search, found = Search(str(settings["metric"]), str(settings["direction"])), best(outcomes, settings)
        result = f"A search to {search.direction} {search.metric}"
        result += f"; {sentence(found, outcomes, settings)}." if found else "."
    missing = [str(outcome.number) for outcome in outcomes if outcome.status == "missing"]
    text = f"{len(missing)} of {len(sweep.jobs)} jobs never began: {', '.join(missing[:MAX_NAMES])}"
    return SweepJournal(search, result, (text,) if missing else ())
