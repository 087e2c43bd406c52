"""The two screens: results on standard output, everything about them on standard error. Markup is never read from what is shown."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callgate._json import canonical
from callgate._printable import one_line, printable, printable_json

__all__ = ["STYLES", "console", "grid", "output", "print_json", "say", "status_text"]

_WIDE = 120
STYLES = {
    "ok": "green",
    "error": "red",
    "unknown": "bold yellow",
    "asked": "cyan",
    "aborted": "magenta",
    "restarted": "cyan",
    "open": "yellow",
}


def output() -> Console:
    """Standard output."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=_width(sys.stdout))


def console() -> Console:
    """Standard error: progress, notes, questions, errors."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True, width=_width(sys.stderr))


def _width(stream: TextIO) -> int | None:
    """Where no terminal says how wide it is, wide enough for tables."""
    return None if stream.isatty() or "COLUMNS" in os.environ else _WIDE


def say(line: str, style: str = "") -> None:
    """One line about the work, on standard error."""
    console().print(Text(printable(line), style=style))


def status_text(status: str) -> Text:
    return Text(one_line(status, 20), style=STYLES.get(status, ""))


def grid(*titles: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines, for aligned columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(titles))
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return table


def print_json(value: Any) -> None:
    """One line of strict JSON on standard output, with nothing in it that a terminal would obey."""
    try:
        line = canonical(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair in an old record or a file's name; JSON can say it as an escape
        line = json.dumps(msgspec.to_builtins(value), sort_keys=True, separators=(",", ":"))
    sys.stdout.write(printable_json(line) + "\n")
    sys.stdout.flush()
