"""Show a run: the model's text on standard output as it streams, everything else on standard error.

At a terminal, running calls are drawn below the last line and removed when they end; elsewhere each start and each end is one plain line.
All text comes from models and tools, so control characters are escaped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

from rich.text import Text

from callgate._terminal_text import one_line, printable
from callgate.cli._console import SIGNS, STYLES, console, tool_count, write_text
from callgate.cli._error_advice import RECORD_FAILURE, at_terminal
from callgate.cli._folded_output import HEAD_LINES, FoldedOutput
from callgate.cli._live_rows import LiveRows
from callgate.cli._run_events import (
    ApprovalAnswered,
    CallAnswered,
    CallArrived,
    CallOpening,
    CallOutput,
    CallRetried,
    CallRunning,
    CommandEvent,
    ModelMessageBegan,
    Noticed,
    PassEnded,
    ReasoningWritten,
    RunBegan,
    RunFinished,
    RunInterrupted,
    TextWritten,
)

__all__ = ["RunScreen"]

_RUN_STYLES = {"completed": "green", "waiting": "cyan", "stopped": "yellow", "failed": "bold red"}
_ARGUMENTS = 72
_REASON = 600
_COMMAND_END = 60
_SAID_ABOVE = "The record could not be written, as said above."


class RunScreen:
    """Prints the events of one run.

    Args:
        result_command: Returns the command that prints a call's whole result, or a text that says it is not kept.
    """

    def __init__(self, result_command: Callable[[str], str]) -> None:
        self._console = console()
        self._result_command = result_command
        self._text = _AnswerText()
        self._drawing = LiveRows(self._console)
        self._calls: dict[str, str] = {}
        """Each call that has not ended, as one short line."""
        self._output: dict[str, FoldedOutput] = {}
        self._record_failure_said = False
        """Whether the reason why the journal could not be written was shown in this turn."""

    def starting(self, servers: Sequence[str]) -> None:
        """Show that these servers start, until the next event."""
        if servers:
            self._wait_for(f"starting {', '.join(servers)}")

    def show(self, event: CommandEvent) -> None:
        """Show an event."""
        match event:
            case RunBegan():
                self._drawing.clear()
                self._say(f"callgate run · {event.model} · {tool_count(len(event.tools))} · {event.workspace}", "dim")
                for problem in event.problems:
                    self._say(f"  {problem}", "yellow")
            case ModelMessageBegan():
                self._text.begin_message()
                self._wait_for("the model answers")
            case TextWritten(text=text):
                self._drawing.clear()
                self._text.write(text)
            case ReasoningWritten():
                self._wait_for("the model thinks")
            case CallOpening(tool=tool):
                self._end_line()
                self._wait_for(f"the model writes a call of {one_line(tool, 40)}")
            case CallArrived():
                self._calls[event.call] = _line(event.tool, event.arguments)
            case CallRunning():
                self._begin(event)
            case CallOutput():
                self._progress(event.call, event.text)
            case CallRetried():
                self._say(f"  attempt {event.attempt} failed: {one_line(event.reason)}; trying again", "yellow")
            case CallAnswered():
                self._end(event)
            case PassEnded():
                self._end_line()
                self._wait_for("")
            case Noticed(text=text):
                self._say(f"  {one_line(text)}", "yellow")
            case ApprovalAnswered(elsewhere=True):
                runs = "runs" if event.allowed else "does not run"
                self._say(f"  {one_line(event.approval, 120)} was answered by {one_line(event.by, 80)}: the call {runs}.", "dim")
            case ApprovalAnswered(allowed=False):
                self._say("  The call does not run.", "dim")
            case RunInterrupted(how="stop"):
                self._say("Stopping: running calls finish, no others start. Ctrl-C again ends them at once.", "yellow")
            case RunInterrupted():
                self._say("Killed: running calls are being ended.", "yellow")
            case RunFinished():
                self._sum_up(event)

    def close(self) -> None:
        """End the last line, and remove the drawing below it."""
        self._end_line()
        self._drawing.stop()

    def _end_line(self) -> None:
        if self._text.has_open_line:
            self._drawing.stop()
            self._text.end_line()
            self._draw()

    # Calls

    def _begin(self, event: CallRunning) -> None:
        self._drawing.start(event.call, lambda: f"{self._calls.get(event.call, event.call)}{self._describe_output(event.call)}")
        if not self._drawing.is_possible and event.attempt == 1:
            self._say(f"→ {self._calls.get(event.call, one_line(event.tool))}{'  early' if event.early else ''}")
        self._draw()

    def _progress(self, call: str, text: str) -> None:
        for line in self._output.setdefault(call, FoldedOutput()).take(text):
            self._output_line(line)

    def _output_line(self, line: str) -> None:
        self._say(f"  │ {printable(line.expandtabs(4).rstrip())}".rstrip(), "dim", cut=True)

    def _end_output(self, call: str) -> None:
        output = self._output.pop(call, None)
        if output is None:
            return
        left_out, tail = output.end()
        if left_out:
            self._say(f"  │ … {left_out:,} more lines; the whole result: {self._result_command(call)}", "dim")
        for line in tail:
            self._output_line(line)

    def _end(self, event: CallAnswered) -> None:
        self._end_output(event.call)
        self._drawing.end(event.call)
        line = self._calls.pop(event.call, one_line(event.tool))
        if event.status == "asked":  # the question follows at the end of the message
            self._draw()
            return
        took = f"  {event.ms:,.0f} ms" if event.attempts else ""
        tries = f"  {event.attempts} attempts" if event.attempts > 1 else ""
        early = "  early" if event.early else ""
        end = one_line(event.command_end or event.failure_class or "", _COMMAND_END)
        why = f"  {end}" if end else ""
        kind = "command" if event.command_end else event.status
        tail = f"{took}{tries}{early}{why}"
        room = max(12, self._console.width - len(tail) - 2)
        self._print(Text.assemble((SIGNS.get(kind, "·"), STYLES.get(kind, "")), f" {one_line(line, room)}", (tail, "dim")), cut=True)
        self._say_reason(event)
        self._draw()

    def _say_reason(self, event: CallAnswered) -> None:
        """Print which of its arguments were changed, and why a call did not succeed."""
        if event.changed:
            self._say(f"  {one_line(event.changed, _REASON)}", "yellow")
        if event.reason and event.status != "ok":
            reason = self._record_failure_once(event.reason) if event.code == "record_failed" else event.reason
            self._say(f"  {one_line(reason, _REASON)}", STYLES.get(event.status, ""))

    def _record_failure_once(self, reason: str) -> str:
        """Return the reason with advice for the command line.

        The cause of a failed journal is included only once per turn.
        """
        said, self._record_failure_said = self._record_failure_said, self._record_failure_said or bool(RECORD_FAILURE.search(reason))
        return at_terminal(RECORD_FAILURE.sub(_SAID_ABOVE, reason) if said else reason)

    # The end

    def _sum_up(self, event: RunFinished) -> None:
        self._wait_for("")
        failed = f" ({event.failed} failed)" if event.failed else ""
        refused = f", {event.refused} refused" if event.refused else ""
        facts = [
            _count(event.iterations, "round"),
            f"{_count(event.calls, 'call')}{failed}{refused}",
            f"{event.input_tokens:,} tokens in, {event.output_tokens:,} out",
            f"{event.seconds:.1f} s",
        ]
        self._end_line()
        self._print(Text.assemble((event.status, _RUN_STYLES.get(event.status, "")), f" · {' · '.join(facts)}"))
        if event.reason and event.status != "completed":
            self._say(f"  {printable(self._record_failure_once(event.reason))}", _RUN_STYLES.get(event.status, ""))
        self._record_failure_said = False

    # Running calls

    def _wait_for(self, what: str) -> None:
        self._drawing.wait_for(what)
        self._draw()

    def _draw(self) -> None:
        """Draw the running calls, unless the last line of text is incomplete."""
        if not self._text.has_open_line:
            self._drawing.draw()

    def _describe_output(self, call: str) -> str:
        """Return the number of output lines and the latest line. Empty as long as all lines are shown."""
        output = self._output.get(call)
        return f"  {output.lines:,} lines: {output.latest.strip()}" if output is not None and output.lines > HEAD_LINES else ""

    # Lines

    def _say(self, line: str, style: str = "", *, cut: bool = False) -> None:
        self._print(Text(printable(line), style=style), cut=cut)

    def _print(self, line: Text, *, cut: bool = False) -> None:
        self._end_line()
        if cut:
            line.truncate(max(1, self._console.width), overflow="ellipsis")
        self._console.print(line)


class _AnswerText:
    """The model's text on standard output."""

    def __init__(self) -> None:
        self._line_open = False
        self._held = ""
        """A carriage return that may be the first half of a line end."""
        self._piped_line_open = False
        """Whether the last text on a standard output that is not a terminal had no line end."""
        self._separator_due = False

    @property
    def has_open_line(self) -> bool:
        """Whether the terminal's last line has text of the model and no end."""
        return self._line_open or bool(self._held)

    def begin_message(self) -> None:
        """Separate the next text from that of the message before, where no terminal does it."""
        self._separator_due = self._piped_line_open

    def write(self, text: str) -> None:
        if not sys.stdout.isatty():
            write_text(f"\n{text}" if self._separator_due else text)
            self._separator_due, self._piped_line_open = False, not text.endswith("\n")
            return
        text, self._held = self._held + text, ""
        if text.endswith("\r"):
            text, self._held = text[:-1], "\r"
        if text:
            write_text(text)
            self._line_open = not text.endswith("\n")

    def end_line(self) -> None:
        sys.stdout.write("\n")
        sys.stdout.flush()
        self._line_open, self._held = False, ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _line(tool: str, arguments: str) -> str:
    """Return a call as one short line."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return f"{one_line(tool, 64)} {one_line(arguments, _ARGUMENTS)}"
    words = (f"{key}={item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}" for key, item in value.items())
    return f"{one_line(tool, 64)} {one_line(' '.join(words), _ARGUMENTS)}".rstrip()
