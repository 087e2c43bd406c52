"""Set up a demonstration: a new folder with a journal and a ledger, an engine that uses them, and a screen that shows the engine's
events."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from rich.console import Console

from callgate._blob_store import DirectoryBlobs
from callgate._call_summary import CallSummary, summarise
from callgate._journal import SqliteJournal, open_reader
from callgate.calls import Answered, RawCall, Scope, ToolResult
from callgate.calls import Outcome as CallOutcome
from callgate.demo._effect_log import EffectLog, watch_processes
from callgate.demo._processes import Order
from callgate.demo._screen import Screen
from callgate.engine import Engine
from callgate.event_queries import EventQuery
from callgate.events import Event, Progress
from callgate.mcp import McpServer
from callgate.policy import Rules
from callgate.protocols import WriteLog
from callgate.tools import Tool

__all__ = ["DemoRun", "calls_in", "events_in", "killed_at", "overlap", "raw", "result_of"]


class DemoRun:
    """The environment of one demonstration. Its files are in `root`, which is not deleted.

    Args:
        name: The name of the demonstration and of its run.
        console: The console to show it on; None shows nothing.
        root: The folder of an earlier process; None makes a new folder.
    """

    def __init__(self, name: str, console: Console | None, root: Path | None = None) -> None:
        self.name = name
        self.root = root or Path(tempfile.mkdtemp(prefix=f"callgate-demo-{name}-"))
        self.journal = self.root / "journal.db"
        self.ledger = EffectLog(self.root / "ledger.jsonl")
        self.blobs = DirectoryBlobs(self.root / "blobs")
        self.screen = Screen(console, self.root)

    def engine(self, tools: Iterable[Tool | McpServer], *, rules: str = "", repair: bool = False, undo: WriteLog | None = None) -> Engine:
        """Return an engine that uses this journal and shows its events.

        Args:
            rules: The name of a rule file among the scripts; empty for none.
            repair: See `Engine`.
            undo: See `Engine`.
        """
        policies = (self._rules(rules),) if rules else ()
        engine = Engine(
            tools,
            policies=policies,
            journal=SqliteJournal(self.journal),
            blobs=self.blobs,
            repair=repair,
            undo=undo,
            run=self.name,
            timeout_s=60,
        )
        watch_processes(engine.bus, self.ledger)
        self.screen.watch(engine.bus)
        return engine

    def order(self, url: str, *, goes_on: bool = False) -> Order:
        """Return the instructions for an engine that runs in another process."""
        width = self.screen.width
        return Order(root=str(self.root), url=url, demo=self.name, run=self.name, goes_on=goes_on, shown=width is not None, width=width)

    def scope(self, *, iteration: int = 0, workspace: Path | None = None) -> Scope:
        return Scope(
            run=self.name,
            conversation=self.name,
            iteration=iteration,
            workspace=str(workspace) if workspace is not None else "",
            extra={"ledger": str(self.ledger.path)},
        )

    def _rules(self, name: str) -> Rules:
        """Load the rule file and copy it into the folder, so that users can open the lines that decisions name."""
        text = files("callgate.demo").joinpath("_scripts", f"{name}.toml").read_text(encoding="utf-8")
        text = text.replace('"{{python}}"', json.dumps(sys.executable))
        (self.root / "policy.toml").write_text(text, encoding="utf-8")
        return Rules.parse(text, where="policy.toml")


@contextmanager
def killed_at(engine: Engine, conversation: str, words: str) -> Iterator[None]:
    """Kill the conversation, like a user would, when a tool's output starts with `words`."""

    def heard(topic: str, item: object) -> None:
        if isinstance(item, Progress) and item.text.startswith(words):
            engine.control.kill(conversation, "killed by the user")

    end = engine.bus.subscribe(heard, "call.progress")
    try:
        yield
    finally:
        end()


def raw(name: str, /, *, id: str = "", **arguments: object) -> RawCall:
    return RawCall(name=name, arguments=json.dumps(arguments), id=id, origin="demonstration")


def result_of(outcome: CallOutcome) -> ToolResult | None:
    return outcome.result if isinstance(outcome, Answered) else None


def events_in(journal: Path) -> list[Event]:
    """Return every event of a journal file."""
    reader = open_reader(journal)
    try:
        return list(reader.find(EventQuery()))
    finally:
        reader.close()


def calls_in(journal: Path) -> list[CallSummary]:
    return summarise(events_in(journal))


def overlap(one: CallSummary, other: CallSummary) -> bool:
    """Return whether the tools of two calls ran at the same time."""
    spans: Sequence[tuple[float, float]] = [(call.starts[0], call.ended) for call in (one, other) if call.starts and call.ended is not None]
    return len(spans) == 2 and max(span[0] for span in spans) < min(span[1] for span in spans)
