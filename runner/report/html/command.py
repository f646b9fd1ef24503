"""`runner report RUN_OR_SWEEP...`: what was found, written as one page."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.errors import ConfigError, RunnerError, nearest
from runner.experiment.sweep import journal
from runner.experiment.sweep.best import best, sentence
from runner.experiment.sweep.state import Record as Sweep
from runner.host import files
from runner.report.html import pair_page, run_page, sweep_page
from runner.report.html.groups import Several, natural
from runner.report.html.layout import page
from runner.report.record import Record, places

NAME = "report.html"
MOST_NAMES = 20


def main(words: Sequence[str], output: str | None) -> int:
    """Write the page about the runs in some folders and print where it is.

    Raises ConfigError when there is no run, StorageError when the page cannot be written.
    """
    folders = [Path(word) for word in words]
    target = Path(output) if output else (folders[0] if len(folders) == 1 else Path()) / NAME
    runs = found(folders)
    files.write_atomically(target, written(runs, folders, target.parent))
    print(f"{target}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}")  # noqa: T201  the result of the command
    return 0


def found(folders: Sequence[Path]) -> list[Record]:
    """The runs in some folders, each once: in the order of the folders, within one by number.

    Raises ConfigError for a folder that does not exist or has no run.
    """
    runs: dict[Path, Record] = {}
    for folder in folders:
        if not folder.is_dir():
            beside = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
            raise ConfigError("the folder does not exist", path=folder, nearest=nearest(folder.name, beside))
        inside = sorted(places(folder), key=natural)
        if not inside:
            raise ConfigError("no run in this folder", path=folder, hint="runner ls lists runs")
        for place in inside:
            runs.setdefault(place.resolve(), Record(place))
    return list(runs.values())


def written(runs: Sequence[Record], folders: Sequence[Path], home: Path) -> str:
    """The page about at least one run, with links for a file in `home`."""
    if len(runs) == 1:
        return page(
            f"{runs[0].name} \N{MIDDLE DOT} runner", run_page.head(runs[0]), list(run_page.sections(runs[0], home))
        )
    several = Several(runs)
    sections = list(sweep_page.sections(several, home))
    if len(runs) == 2:
        sections[1:1] = pair_page.sections(*runs)
    top = sweep_page.head(several, ", ".join(map(str, folders)), [note for folder in folders for note in noted(folder)])
    return page(f"{len(runs)} runs \N{MIDDLE DOT} runner", top, sections)


def noted(folder: Path) -> Iterator[str]:
    """What the journal of a sweep knows besides: what was searched for and found, and jobs that left no folder."""
    if not (folder / journal.NAME).is_file():
        return
    sweep = Sweep(folder)
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
        yield f"{len(missing)} of {len(sweep.jobs)} jobs never began: {', '.join(missing[:MOST_NAMES])}"
