"""Print where the record of a run at the terminal is, and the commands that resume it, show more of it, or undo what it changed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from callgate._terminal_text import printable
from callgate.agent import RunResult
from callgate.cli._command_options import RunOptions
from callgate.cli._console import say
from callgate.cli._error_advice import at_terminal
from callgate.cli._journal_location import CommandJournal, default_journal
from callgate.cli._named_servers import shown_server
from callgate.models._credential_redaction import redact_url

__all__ = ["say_next_commands"]


def say_next_commands(result: RunResult, options: RunOptions, record: CommandJournal, *, conversation: str, undoable: bool) -> None:
    """Print the commands for a run that has ended.

    Args:
        conversation: The conversation of the run.
        undoable: Whether a call has changed files that can be restored.
    """
    if result.status == "waiting":
        flags = "" if record.path is None else " with --allow or --deny,"
        say(f"None of the calls in question has run. Answer at a terminal,{flags} or with rules:", "cyan")
        say(f"  {_resume_command(result, options, record)}")
    elif result.status in ("failed", "stopped") and record.name and result.recorded:
        say("It can be resumed:", "cyan")
        say(f"  {_resume_command(result, options, record)}")
    if not result.recorded and result.status == "completed":
        say(f"  {printable(at_terminal(result.reason))}", "red")
    if record.name:
        say(f"  record  {record.name}", "dim")
    say(f"  more    {record.show_command(result.run)}", "dim")
    if undoable:
        say(f"  undo    {shlex.join(('callgate', 'undo', conversation, *_undo_options(options, record)))}", "dim")


def _undo_options(options: RunOptions, record: CommandJournal) -> list[str]:
    """Return the options that `callgate undo` needs to find the workspace and the journal."""
    workspace = str(Path(options.workspace).resolve())
    words = [] if workspace == str(Path.cwd()) else ["--workspace", workspace]
    path = record.path
    return words + ([] if path is None or str(path) == default_journal() else ["--journal", str(path)])


def _resume_command(result: RunResult, given: RunOptions, record: CommandJournal) -> str:
    """Return the command that resumes the run, without the credentials of the model's URL.

    If the run is not recorded, return the command that starts it again.
    """
    if not record.name:
        return shlex.join(("callgate", "run", *(_without_credentials(word, given) for word in sys.argv[2:])))
    approvals = result.pending.approvals if result.pending is not None else ()
    words = [word for asked in dict.fromkeys(one.approval_id for one in approvals) for word in ("--allow", asked)]
    named = (
        *(("--model", given.model), ("--base-url", redact_url(given.base_url)), ("--rules", given.rules)),
        *(("--judge", given.judge), ("--system", given.system), ("--memory", given.memory)),
        ("--preset", given.preset if given.preset != "agent" else ""),
        ("--text-calls", given.text_calls if given.text_calls != "auto" else ""),
        ("--max-iterations", str(2 * max(1, result.spent.iterations)) if result.turn_status == "budget_exhausted" else ""),
    )
    words += [word for name, value in named if value for word in (name, value)]
    words += [word for tools in given.tools if given.tools != ("builtin",) for word in ("--tools", tools)]
    words += [word for server in given.mcp for word in ("--mcp", shown_server(server))]
    words += [word for plugin in given.plugin for word in ("--plugin", plugin)]
    words += ["--yes"] if given.yes else []
    words += [] if record.name == default_journal() else ["--record", record.name]
    return shlex.join(("callgate", "resume", result.run, *words))


def _without_credentials(word: str, options: RunOptions) -> str:
    """Return a word of the command line without the credentials of the model's URL and of the MCP servers."""
    if options.base_url:
        word = word.replace(options.base_url, redact_url(options.base_url))
    for server in options.mcp:
        word = word.replace(server, shown_server(server)) if server else word
    return word
