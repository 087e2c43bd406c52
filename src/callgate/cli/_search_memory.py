"""`callgate memory`: search a memory, and rebuild it from a journal. Also opens the memory for other commands.

The operator may search the memory of any principal (`--principal`). Passages are printed with control characters
escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rich.text import Text

from callgate._blob_store import MemoryBlobs
from callgate._journal import open_reader
from callgate._terminal_text import one_line
from callgate._tool_loading import load_tools
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import LogOptions, SearchOptions
from callgate.cli._console import field, output, print_json, say
from callgate.cli._journal_location import default_journal
from callgate.cli._journal_reading import refuse_damaged
from callgate.cli._local_times import local_date_and_time
from callgate.cli._log_query import query_of
from callgate.cli._run_names import run_named
from callgate.errors import UsageError
from callgate.tools import ToolRegistry

if TYPE_CHECKING:
    from callgate.memory import FoundPassage, Memory

__all__ = ["open_memory", "rebuild", "search", "status"]


def open_memory(place: str, *, there: bool = False) -> Memory | None:
    """Open the memory in this file. Return None if `place` is empty.

    Args:
        there: Whether the file must exist.

    Raises:
        UsageError: The file cannot be used or does not exist.
    """
    if not place:
        return None
    from callgate.memory import Memory

    refuse_odd_text(memory=place)
    if there and not Path(place).is_file():
        raise UsageError(f"There is no memory at {place}. Give the memory file of a run with --memory.")
    if Path(place).is_dir():
        raise UsageError(f"{place} is a folder. Give a file with --memory, such as {Path(place) / 'memory.db'}.")
    return Memory(place)


def search(words: str, options: SearchOptions) -> int:
    """Print the passages found, the best first; return the exit code."""
    from callgate.memory import PassageKind, PassageQuery

    refuse_odd_text(words=words, principal=options.principal, tool=options.tool, run=options.run, actor=options.actor)
    kinds: tuple[PassageKind, ...] = get_args(PassageKind)
    if options.kind not in (None, *kinds):
        raise UsageError(f"--kind is {options.kind}; it must be one of: {', '.join(kinds)}.")
    if not words.strip():
        raise UsageError("No search words are given. Give some: callgate memory search WORDS.")
    if not 1 <= options.limit <= 50:
        raise UsageError(f"--limit is {options.limit}; it must be from 1 to 50.")
    times = query_of(LogOptions(journal="", since=options.since, until=options.until))
    with _open(options.memory) as memory:
        query = PassageQuery(
            text=words,
            principal=options.principal,
            kinds=tuple(kind for kind in kinds if kind == options.kind),
            actor=options.actor,
            conversation=options.conversation,
            run=None if options.run is None else run_named(options.run, default_journal()),
            tool=options.tool,
            since_ns=times.since_ns,
            until_ns=times.until_ns,
            limit=options.limit,
        )
        found = memory.search(query)
    if options.json:
        print_json([{"score": round(one.score, 6), "snippet": one.snippet, "passage": one.passage} for one in found])
    else:
        for one in found:
            _show(one)
    if not found and not options.json:
        whose = f"of {one_line(options.principal, 40)}" if options.principal else "of nobody in particular (--principal names somebody)"
        say(f"Nothing is found in the memory {whose}.")
    return _exits.OK if found else _exits.FAILED


def _show(found: FoundPassage) -> None:
    passage = found.passage
    when = local_date_and_time(passage.at_ns)
    where = f"{passage.path}:{passage.line}" if passage.kind == "file" else passage.origin if passage.kind == "note" else passage.tool
    screen = output()
    head = "  ".join(field(part, 200) for part in (passage.kind, where, when, passage.call))
    screen.print(Text(head, style="bold"), soft_wrap=True)
    screen.print(Text(field(found.snippet)), soft_wrap=True)


def status(place: str, *, as_json: bool) -> int:
    """Print what the memory holds and what is still to be read or embedded."""
    with _open(place) as memory:
        found = memory.status()
    if as_json:
        print_json(found)
    else:
        for name in found.__struct_fields__:
            if getattr(found, name) != "":
                output().print(Text(f"{name:<8} {field(str(getattr(found, name)))}"), soft_wrap=True)
    return _exits.OK


def rebuild(place: str, journal: str, tools: tuple[str, ...], *, files: bool) -> int:
    """Read a journal into the memory from its first event, and, if requested, the files that its calls wrote."""
    reader = open_reader(journal)
    try:
        with _open(place, there=False) as memory:
            memory.rebuild(reader.find, ToolRegistry(load_tools(tools, MemoryBlobs(), memory)), files=files)
            found = memory.status()
        say(f"{place} has {found.notes} notes, {found.calls} calls and {found.pieces} pieces of files.", "green")
        refuse_damaged(reader, journal)
    finally:
        reader.close()
    return _exits.OK


@contextmanager
def _open(place: str, *, there: bool = True) -> Iterator[Memory]:
    """Open the memory while the block lasts."""
    memory = open_memory(place, there=there)
    assert memory is not None
    with memory:
        yield memory
