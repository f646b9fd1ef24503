"""Lines and tables on the terminal. rich is imported at the first use: it takes 60 ms, and JSON does not need it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.host.console import visible

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 400  # columns; wider than any line, so that piped output is not wrapped


def open_console(piped_width: int = PIPED_WIDTH) -> "Console":
    """The console of the process; `piped_width` columns if the output is not a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=piped_width, soft_wrap=True, highlight=False)


def print_line(console: "Console", text: str, style: str = "") -> None:
    """Print a text as one line, whatever characters it has."""
    from rich.text import Text

    console.print(Text(visible(text), style=style))


def print_table(
    console: "Console",
    columns: Sequence[tuple[str, str]],
    rows: Sequence[tuple[Sequence[str], str]],
    title: str | None = None,
) -> None:
    """Print a table: columns are (title, colour), rows are (cells, colour)."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE)
    for name, colour in columns:
        table.add_column(name, style=colour)
    for cells, colour in rows:
        table.add_row(*(Text(visible(cell)) for cell in cells), style=colour)
    console.print(table)
