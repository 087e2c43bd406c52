"""Print the outcome of one call: its text to standard output, and all other details to standard error."""

from __future__ import annotations

from msgspec import Struct
from rich.text import Text

from callgate._call_summary import CallSummary
from callgate._terminal_text import one_line
from callgate.calls import Aborted, Answered, Outcome, Suspended, ToolResult
from callgate.cli import _exit_codes as _exits
from callgate.cli._console import console, say, status_text, write_text
from callgate.cli._error_advice import at_terminal
from callgate.content_parts import part_text

__all__ = ["ShownWhere", "exit_code", "show_aborted", "show_result"]


class ShownWhere(Struct, frozen=True):
    """Where to find more about a call: its journal, and the command that shows its events."""

    where: str
    more: str
    """The command that shows the call's events."""

    def print(self) -> None:
        say(f"  journal {self.where}\n  more    {self.more}" if self.where else f"  journal {self.more}", "dim")


def exit_code(outcome: Outcome) -> int:
    match outcome:
        case Answered(result):
            return {"ok": _exits.OK, "unknown": _exits.UNKNOWN}.get(result.status, _exits.FAILED)
        case Suspended():
            return _exits.NEEDS_HUMAN
        case Aborted():
            return _exits.FAILED
    return _exits.OK


def show_result(result: ToolResult, shown: ShownWhere) -> None:
    end = one_line(result.metadata.command_end)
    why = end or _failure(result)
    shown_why = Text(f"  {why}" if why else "", style="yellow" if end else "red")
    console().print(Text.assemble(status_text(result.status, end), f"  {one_line(result.name)}", shown_why))
    text = "\n".join(map(part_text, result.content))
    write_text(f"{text if result.metadata.recorded else at_terminal(text)}\n")
    if result.metadata.record_failure:
        say(f"  {at_terminal(result.metadata.record_failure)}", "red")
    for note in result.metadata.notes:
        say(f"  note    {note.kind}: {one_line(note.text)}", "yellow")
    say(f"  {_facts(result)}", "dim")
    shown.print()


def _failure(result: ToolResult) -> str:
    return " · ".join(dict.fromkeys(word for word in (result.failure_class, result.code) if word))


def _facts(result: ToolResult) -> str:
    meta = result.metadata
    facts = [f"{meta.duration_ms:,.0f} ms", f"{meta.bytes:,} bytes"]
    if meta.attempts != 1:
        facts.append(f"{meta.attempts} attempts")
    if meta.cached or meta.replayed or meta.joined:
        facts.append(f"from the {meta.cached} cache" if meta.cached else "replayed" if meta.replayed else "joined")
    if meta.rule:
        facts.append(f"rule {one_line(meta.rule)}")
    return " · ".join(facts)


def show_aborted(outcome: Aborted, summary: CallSummary | None, shown: ShownWhere) -> None:
    """Print an aborted call: the reason, and whether its tool may have taken effect."""
    say(f"{outcome.status}  {one_line(at_terminal(outcome.reason))}", "magenta")
    if summary is not None and summary.starts:
        say(f"  {summary.tool} ran for {summary.duration_ms:,.0f} ms and was ended; its effect is '{summary.effect}'.")
        if summary.effect != "none":
            say("  It may have taken effect in part. Check before you repeat it.", "yellow")
    elif outcome.recorded:
        say("  The tool was not started. Nothing happened.")
    else:
        say("  The journal does not say whether the tool was started. Check before you repeat it.", "yellow")
    shown.print()
