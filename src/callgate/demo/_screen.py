"""Show a demonstration's events as they happen, and afterwards as a table and a timeline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.status import Status
from rich.table import Table
from rich.text import Text

from callgate._call_summary import CallSummary, body_of
from callgate._terminal_text import one_line, printable
from callgate.agent.run_events import AgentEvent, MessageBegan, MessageEnded
from callgate.demo._checks import Finding
from callgate.events import Bus, Event, Progress
from callgate.models.model_events import CallOpened, Finished, TextDelta

__all__ = ["Screen"]

_STYLES = {"ok": "green", "error": "red", "unknown": "yellow", "aborted": "magenta", "asked": "cyan", "command": "yellow"}
_SIGNS = {"ok": "✓", "error": "✗", "unknown": "?", "aborted": "■", "asked": "…", "command": "!"}
"""The sign of each status. `command` means: the call is `ok`, but its command ended with an exit code other than 0."""
_BAR = 44
_MANY = 8
_PLACE = re.compile(r"\((?P<file>[^()]+):(?P<line>\d+)\)$")


class Screen:
    """The screen of one demonstration. Without a console it shows nothing.

    Args:
        console: The console to draw on.
        root: The folder that contains the rule files to quote.
    """

    def __init__(self, console: Console | None, root: Path) -> None:
        self._console = console
        self._root = root
        self._message = ""
        self._told = False
        """Whether the model's messages are shown as they stream."""
        self._streaming = False
        self._line_open = False
        self._tools: dict[str, str] = {}
        self._running: dict[str, str] = {}
        self._status: Status | None = console.status("") if console is not None and console.is_terminal else None

    def title(self, text: str) -> None:
        self._print(Text(f"callgate demo · {text}", style="bold"))

    @property
    def lively(self) -> bool:
        """Whether the console is a terminal."""
        return self._console is not None and self._console.is_terminal

    @property
    def width(self) -> int | None:
        """The console's width in characters; None without a console."""
        return None if self._console is None else self._console.width

    def after_kill(self, text: str) -> None:
        """Restore the cursor and the line after a process that drew here was killed, then print a text."""
        if self._console is not None and self._console.is_terminal:
            self._console.show_cursor(True)
            self._console.control(Control((ControlType.CARRIAGE_RETURN,), (ControlType.ERASE_IN_LINE, 2)))
        self._print()
        self._print(Text(printable(text), style="bold red"))

    def note(self, text: str) -> None:
        self._print(Text(printable(text), style="dim"))

    def watch(self, bus: Bus) -> None:
        if self._console is not None:
            self._end_watch = bus.subscribe(self._hear)

    def pause(self) -> None:
        """Stop showing events; the remaining calls appear in the table."""
        if self._console is not None:
            self._end_watch()

    def _print(self, part: Table | Text | None = None) -> None:
        """Print one line, cut to the console's width, or a table."""
        if self._console is None:
            return
        self._end_line()
        if isinstance(part, Text):
            part.truncate(self._console.width, overflow="ellipsis")
        self._console.print("" if part is None else part, soft_wrap=not isinstance(part, Table))

    # Events

    def tell(self, event: AgentEvent) -> None:
        """Show an event of an agent; the model's text is shown piece by piece."""
        if self._console is None:
            return
        match event:
            case MessageBegan(iteration=iteration):
                self._told = self._streaming = True
                self._print()
                self._piece(f"{iteration + 1}  ")
            case TextDelta(text=text):
                self._piece(printable(text))
            case CallOpened():
                self._end_line()
            case Finished() | MessageEnded():
                self._streaming = False
                self._end_line()

    def _piece(self, text: str) -> None:
        assert self._console is not None
        self._console.print(Text(text, style="bold"), end="")
        self._line_open = True

    def _end_line(self) -> None:
        if self._line_open and self._console is not None:
            self._console.print()
        self._line_open = False

    def _hear(self, topic: str, item: object) -> None:
        if isinstance(item, Progress):
            self._progress(item)
        elif isinstance(item, Event):
            body = body_of(item)
            show = getattr(self, f"_on_{topic.removeprefix('call.')}", None)
            if show is not None and topic.startswith("call."):
                show(item, body)
        self._refresh()

    def _on_received(self, event: Event, body: dict[str, Any]) -> None:
        message = event.call.rpartition("/")[0]
        if message != self._message and not self._told:
            self._message = message
            number = int(message.rpartition("/")[2]) + 1
            said = f": {one_line(body['reasoning'])}" if body.get("reasoning") else ""
            self._print()
            self._print(Text(f"{number}  {one_line(body.get('origin', ''), 40)}{said}", style="bold"))
        self._tools[event.call] = one_line(str(body.get("name", "")), 40)
        cut = Text("  ← cut off", style="red") if body.get("closed") == "cut" else ""
        self._print(
            Text.assemble("   → ", (self._tools[event.call], "cyan"), " ", (one_line(str(body.get("arguments", "")), 88), "dim"), cut)
        )

    def _on_verdict(self, event: Event, body: dict[str, Any]) -> None:
        """Show a call's notes if it may run, or the rule that denied it."""
        for note in body.get("notes") or []:
            self._print(Text(f"     note  {one_line(note.get('text', ''), 110)}", style="yellow"))
        if body.get("verdict") == "deny":
            rule = str(body.get("rule", ""))
            self._print(Text(f"     denied by {one_line(rule)}", style="red"))
            for line in self._rule_lines(rule):
                self._print(Text(f"       {one_line(line, 110)}", style="dim"))

    def _rule_lines(self, rule: str) -> list[str]:
        """Return the lines of the rule file that define the rule."""
        place = _PLACE.search(rule)
        path = self._root / place["file"] if place else None
        if place is None or path is None or not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8").splitlines()[int(place["line"]) - 1 :]
        end = next((index for index, line in enumerate(lines) if not line.strip()), len(lines))
        return lines[:end]

    def _on_started(self, event: Event, body: dict[str, Any]) -> None:
        if event.call not in self._tools:
            self._tools[event.call] = one_line(str(body.get("tool", "")), 40)
            self._print(Text.assemble("   ↻ ", (self._tools[event.call], "cyan"), " is resumed"))
        elif self._streaming:
            self._print(Text(f"     {self._tools.get(event.call, '')} starts while the message still streams", style="green"))
        self._running[event.call] = str(body.get("tool", ""))
        self._on_verdict(event, body)

    def _progress(self, piece: Progress) -> None:
        for line in printable(piece.text).splitlines():
            if line.strip():
                self._print(Text(f"     │ {line[:110]}", style="dim"))

    def _on_completed(self, event: Event, body: dict[str, Any]) -> None:
        self._running.pop(event.call, None)
        status, meta = str(body.get("status")), body.get("metadata") or {}
        took = f"{meta.get('duration_ms', 0):,.0f} ms  " if meta.get("attempts") else ""
        end = one_line(str(meta.get("command_end", "")))
        why = body.get("error") or end or _brief(body, meta)
        self._end("command" if end else status, event.call, f"{took}{one_line(str(why), 120)}")

    def _on_aborted(self, event: Event, body: dict[str, Any]) -> None:
        self._running.pop(event.call, None)
        self._end("aborted", event.call, one_line(f"{body.get('status', '')}: {body.get('reason', '')}", 120))

    def _end(self, status: str, call: str, told: str) -> None:
        name = self._tools.get(call, "")
        self._print(Text.assemble("   ", (f"{_SIGNS.get(status, '·')} {name}", _STYLES.get(status, "")), f"  {told}"))

    def _refresh(self) -> None:
        if self._status is None:
            return
        if self._running:
            self._status.update(Text(f"running: {one_line(', '.join(self._running.values()))}", style="dim"))
            self._status.start()
        else:
            self._status.stop()

    # Results

    def table(self, calls: Sequence[CallSummary]) -> None:
        table = _grid("call", "tool", "status", "ms", "tries", "rule, notes", right=("ms", "tries"))
        for call, more in _group_alike(calls):
            status = Text.assemble((call.status, _STYLES.get(call.status, "")), f" {call.failure_class}" if call.failure_class else "")
            told = [one_line(part, 64) for part in (call.rule, *call.notes) if part]
            table.add_row(
                call.short, one_line(call.tool, 24) + more, status, f"{call.duration_ms:,.0f}", str(call.attempts), "\n".join(told)
            )
        self._print()
        self._print(table)

    def timeline(self, calls: Sequence[CallSummary]) -> None:
        """Print a bar for each call, from its arrival to its end. Dots show the time before it started."""
        ended = [call.ended for call in calls if call.ended is not None]
        if not ended:
            return
        first = min(call.began for call in calls)
        total = max(max(ended) - first, 0.001)
        scale = f"0 … {total:.1f} s" if total >= 1 else f"0 … {total * 1000:.0f} ms"
        table = _grid("call", "tool", scale, "ms", right=("ms",))
        for call, more in _group_alike(calls):
            table.add_row(call.short, one_line(call.tool, 24) + more, _bar(call, first, total), f"{call.duration_ms:,.0f}")
        self._print()
        self._print(table)

    def findings(self, findings: Sequence[Finding]) -> None:
        self._print()
        for one in findings:
            sign = ("✓", "green") if one.holds else ("✗", "bold red")
            self._print(Text.assemble(sign, f" {printable(one.claim)}  ", (printable(one.observed), "dim" if one.holds else "red")))

    def where(self, lines: Sequence[tuple[str, str]]) -> None:
        self._print()
        for name, value in lines:
            if self._console is not None:
                self._console.print(Text.assemble((f"{name:<8}", "dim"), printable(value)), soft_wrap=True)


def _grid(*titles: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return table


def _group_alike(calls: Sequence[CallSummary]) -> list[tuple[CallSummary, str]]:
    """Return the calls to show; of many similar calls in a row only the first, with their number."""
    shown: list[tuple[CallSummary, str]] = []
    for _, group in groupby(calls, key=lambda call: (call.short.split("/")[0], call.tool, call.status)):
        alike = list(group)
        shown += [(alike[0], f" x {len(alike)}")] if len(alike) > _MANY else [(call, "") for call in alike]
    return shown


def _bar(call: CallSummary, first: float, total: float) -> Text:
    def column(at: float) -> int:
        return min(_BAR - 1, int((at - first) / total * _BAR))

    ended = call.ended if call.ended is not None else first + total
    came, went = column(call.began), column(ended)
    started = column(call.starts[0]) if call.starts else went
    ran = max(1, went - started + 1)
    return Text.assemble(" " * came, ("·" * (started - came), "dim"), ("█" * ran, _STYLES.get(call.status, "")))


def _brief(body: dict[str, Any], meta: dict[str, Any]) -> str:
    """Return a short description of a result. For a truncated result, return its sizes."""
    shown = sum(len(part.get("text", "").encode()) for part in body.get("content") or [])
    if meta.get("truncated") and meta.get("blob"):
        return f"{meta.get('bytes', 0):,} bytes stored as {str(meta.get('blob'))[:12]}…, {shown:,} shown to the model"
    value = body.get("structured")
    if isinstance(value, dict) and "exit_code" in value:
        return f"exit code {value['exit_code']}"
    return " ".join(str(part.get("text", "")) for part in body.get("content") or [])[:400]
