"""Print results to standard output, and messages, notes and questions to standard error.

Everything printed here passes through `printable`, and each table field through `field`, so that text from models and
tools cannot control the terminal. Rich markup in such text is not interpreted. If the output is a pipe or a file, the
text of a model or a tool is written to it unchanged.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from callgate._json import canonical
from callgate._terminal_text import one_line, printable, printable_json

__all__ = [
    "SIGNS",
    "STYLES",
    "DetailTable",
    "console",
    "field",
    "grid",
    "output",
    "print_json",
    "say",
    "status_text",
    "terminal",
    "tool_count",
    "write_text",
]

_UNWRAPPED = 100_000
"""The width for an output that is not a terminal: a program that reads the lines gets each row on one line."""
_WIDEST = 2_000
_LEAST = 8
"""The characters that each column of a table has at least, unless its fields are shorter."""
_IDS = ("approval", "call")
"""The titles of columns with ids, which people copy: they are not broken unless they need more than half of the width."""
STYLES = {
    "ok": "green",
    "error": "red",
    "unknown": "bold yellow",
    "asked": "cyan",
    "aborted": "magenta",
    "restarted": "cyan",
    "open": "yellow",
    "command": "yellow",
}
"""The style of each status. `command` means: the call is `ok`, but its command ended with an exit code other than 0."""
SIGNS = {"ok": "✓", "error": "✗", "unknown": "?", "aborted": "■", "asked": "…", "command": "!"}


class _PrintableConsole(Console):
    """A console that prints control characters as visible escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class DetailTable(Table):
    """A table whose fields are printable text on one line."""

    def add_row(self, *fields: RenderableType | None, **options: Any) -> None:
        super().add_row(*(field(one) if isinstance(one, str) else one for one in fields), **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        longest = [max((cell_len(str(cell)) for cell in column.cells), default=0) for column in self.columns]
        for column, width in zip(self.columns, longest, strict=True):
            column.no_wrap = column.header in _IDS and width <= options.max_width // 2
        least = sum(2 + min(width, width if column.header in _IDS else _LEAST) for column, width in zip(self.columns, longest, strict=True))
        if self.show_header and least > options.max_width:
            yield from self._row_by_row()
        else:
            yield from super().__rich_console__(console, options)

    def _row_by_row(self) -> Iterable[RenderableType]:
        """Yield each row as lines of a title and a value: beside each other, the columns would be too narrow to read."""
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            row = grid("", "")
            for column, cell in zip(self.columns, cells, strict=True):
                if str(cell):
                    row.add_row(Text(str(column.header), style="dim"), cell)
            yield from (row, Text())


def field(text: str, limit: int = _WIDEST) -> str:
    """Return a table field: printable, on one line, at most `limit` characters."""
    return one_line(text, limit)


def output() -> Console:
    """Return a console for standard output."""
    return _PrintableConsole(markup=False, highlight=False, emoji=False, soft_wrap=True, width=_width(sys.stdout))


def console() -> Console:
    """Return a console for standard error, used for progress, notes, questions and errors."""
    return _PrintableConsole(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True, width=_width(sys.stderr))


@contextmanager
def terminal() -> Iterator[Console | None]:
    """Yield a console for the terminal that the input comes from, even if standard error goes elsewhere; None if there is none."""
    if sys.stderr.isatty():
        yield console()
        return
    try:
        device = os.open(os.ttyname(sys.stdin.fileno()), os.O_WRONLY | os.O_NOCTTY)
    except (OSError, AttributeError):  # AttributeError: not on every system
        yield None
        return
    with open(device, "w", encoding="utf-8") as file:
        yield _PrintableConsole(file=file, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _width(stream: TextIO) -> int | None:
    """Return the width in characters, or None to let rich ask the terminal."""
    return None if stream.isatty() or "COLUMNS" in os.environ else _UNWRAPPED


def say(line: str, style: str = "") -> None:
    """Print one line to standard error."""
    console().print(Text(printable(line), style=style))


def write_text(text: str) -> None:
    """Write a model's or a tool's text to standard output: printable at a terminal, unchanged elsewhere."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def status_text(status: str, command_end: str = "") -> Text:
    return Text(one_line(status, 20), style=STYLES.get("command" if command_end else status, ""))


def grid(*titles: str, right: tuple[str, ...] = ()) -> DetailTable:
    """Return a table without borders, for aligned columns."""
    table = DetailTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(titles))
    for title in titles:
        justify: Literal["left", "right"] = "right" if title in right else "left"
        table.add_column(title, justify=justify, overflow="fold")
    return table


def print_json(value: Any) -> None:
    """Print one line of strict JSON to standard output, with control characters escaped."""
    try:
        line = canonical(value).decode()
    except UnicodeEncodeError:  # a lone surrogate in an old record or a file name; JSON can escape it
        line = json.dumps(msgspec.to_builtins(value), sort_keys=True, separators=(",", ":"))
    sys.stdout.write(printable_json(line) + "\n")
    sys.stdout.flush()


def tool_count(number: int) -> str:
    """Return the number of tools in words, such as "1 tool"."""
    return f"{number} tool" if number == 1 else f"{number} tools"
