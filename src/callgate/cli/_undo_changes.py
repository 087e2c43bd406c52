"""`callgate undo`, `redo`, `diff` and `checkpoint`: list, undo and redo what calls changed in a folder.

The folder's path determines the undo store, so no journal is needed. If there is a journal, the undo is recorded in it,
and a run is not undone if the journal says that changes of its calls were not stored. If an undo is refused, one line
per path is printed and the exit code is 1.
"""

from __future__ import annotations

import asyncio
import glob
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from callgate._journal import is_url, open_reader
from callgate._run_state.event_bodies import Reason, clean
from callgate._terminal_text import one_line
from callgate.cli import _exit_codes as _exits
from callgate.cli._call_arguments import refuse_odd_text
from callgate.cli._command_options import UndoOptions
from callgate.cli._console import field, grid, output, print_json, say, write_text
from callgate.cli._journal_location import MEMORY, CommandJournal, journal_option
from callgate.cli._local_times import local_date_and_time
from callgate.errors import CallgateError, UsageError
from callgate.event_queries import EventQuery
from callgate.events import Draft
from callgate.undo import Change, Conflict, UndoFailed, UndoHistory, Undone, UndoRefused

__all__ = ["checkpoint", "drop_checkpoint", "list_changes", "list_checkpoints", "prune", "show_diff", "take_back"]

_KINDS = {"undo": "files.undone", "redo": "files.redone"}
_DONE = {
    ("undo", "changed"): "changed back",
    ("undo", "made"): "put back",
    ("undo", "removed"): "removed",
    ("redo", "changed"): "changed again",
    ("redo", "made"): "made again",
    ("redo", "removed"): "removed again",
}
_NEXT = {"undo": "Undone: {}. `callgate redo last{}` makes it again.", "redo": "Made again: {}. `callgate undo last{}` takes it back."}
_NAMED = 5


def take_back(words: str, direction: str, options: UndoOptions) -> int:
    """Undo or redo; return the exit code."""
    refuse_odd_text(call=words)
    undo_history = UndoHistory(options.workspace)
    try:
        if direction == "undo":
            _refuse_unkept(words, undo_history, options)
            done = undo_history.undo(
                words, paths=options.paths, exclude=options.exclude, dry_run=options.dry_run, interrupted=options.interrupted
            )
        else:
            done = undo_history.redo(words, paths=options.paths, exclude=options.exclude, dry_run=options.dry_run)
    except UndoRefused as refused:
        return _report_refusal(refused, f"callgate {direction} {shlex.quote(words)}{_elsewhere(options)}", options)
    except UndoFailed as failed:
        say(str(failed), "red")
        return _exits.FAILED
    if done.left and not (done.paths or done.already):
        raise UsageError(f"No path of these calls matches. They changed: {_paths(done.left)}. Nothing was done.")
    if done.commit:
        _record(done, options)
    _show(done, options)
    return _exits.FAILED if done.not_kept and not (done.paths or done.already) else _exits.OK


def _refuse_unkept(words: str, undo_history: UndoHistory, options: UndoOptions) -> None:
    """Raise `UndoRefused` if a whole run is to be undone and the changes of one of its calls were not stored.

    Raises:
        UsageError: The journal, which knows it, cannot be read.
    """
    if options.paths or options.exclude or not _is_there(options.journal):
        return
    name = words.rpartition("@")[0] or words
    runs = {name, *(change.call.run for change in undo_history.changes() if change.call.conversation == name)}
    try:
        reader = open_reader(options.journal)
    except UsageError as error:
        raise UsageError(f"{error} To undo what is stored, without the journal, add --journal {MEMORY}.") from error
    try:
        unkept = [event.call for run in sorted(runs) for event in reader.find(EventQuery(run=run, kinds=("files.not_kept",)))]
    finally:
        reader.close()
    if unkept:
        text = f"what {', '.join(dict.fromkeys(unkept))} changed was not kept. Choose paths with --path, or undo single calls."
        raise UndoRefused((Conflict(path="*", why="not_kept", text=text),))


def _report_refusal(refused: UndoRefused, command: str, options: UndoOptions) -> int:
    if options.json:
        print_json({"status": "refused", "conflicts": msgspec.to_builtins(refused.conflicts)})
    else:
        say(str(refused), "red")
        paths = [one.path for one in refused.conflicts]
        if "*" not in paths and len(paths) <= _NAMED:
            excludes = " ".join(f"--exclude {shlex.quote(glob.escape(path))}" for path in paths)
            say(f"`{one_line(f'{command} {excludes}', 400)}` leaves out the paths above.")
    return _exits.FAILED


def _record(done: Undone, options: UndoOptions) -> None:
    """Record the undo in the journal, if there is one."""
    if not _is_there(options.journal):
        return
    details = {"commit": done.commit, "calls": [clean(uid) for uid in done.calls], "paths": [clean(path) for path in done.paths[:50]]}
    body = Reason(reason=f"{done.direction} at the terminal", details={**details, "count": len(done.paths)})
    try:
        journal = CommandJournal.open(options.journal).journal
        for run in done.runs:
            journal.append(Draft(kind=_KINDS[done.direction], run=run, body=body))
        asyncio.run(journal.close())
    except CallgateError as error:
        say(f"It is done, and kept as commit {done.commit[:12]}, but could not be recorded in the journal: {error}", "yellow")


def _is_there(journal: str) -> bool:
    return is_url(journal) or (journal != MEMORY and os.path.exists(journal))


def _show(done: Undone, options: UndoOptions) -> None:
    if options.json:
        status = "dry_run" if options.dry_run else "partial" if done.partial else "ok"
        print_json({"status": status, **msgspec.to_builtins(done)})
        return
    for path in done.paths:
        what = _DONE[done.direction, done.actions[path]]
        output().print(f"{f'would be {what}' if options.dry_run else what}  {field(path, 400)}")
    for path in done.already:
        say(f"already done  {one_line(path, 400)}", "dim")
    for path in done.left:
        say(f"left  {one_line(path, 400)}: not asked for", "yellow")
    for path in done.stay:
        say(f"stays  {one_line(path, 400)}: the folder holds more")
    for line in done.told:
        say(f"note   {field(line)}", "yellow")
    if not done.paths and done.not_kept:
        say("Nothing was undone: what changed was not kept.", "red")
    elif not done.paths:
        say("Nothing had to be changed.")
    elif not options.dry_run:
        say(("Partly: some changes remain. " if done.partial else "") + _NEXT[done.direction].format(_calls(done), _elsewhere(options)))


def _workspace_option(options: UndoOptions) -> str:
    """Return the option that names this folder, with a leading space; empty for the current one."""
    folder = Path(options.workspace).resolve()
    return "" if folder == Path.cwd() else f" --workspace {shlex.quote(str(folder))}"


def _elsewhere(options: UndoOptions) -> str:
    """Return the options with which another command finds the same folder and journal."""
    return f"{_workspace_option(options)}{journal_option(options.journal)}"


def _paths(paths: Sequence[str]) -> str:
    return ", ".join(one_line(path) for path in paths[:_NAMED]) + (f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else "")


def _calls(done: Undone) -> str:
    named = ", ".join(one_line(uid) for uid in done.calls[:_NAMED])
    return f"call {named}" if len(done.calls) == 1 else f"{len(done.calls)} calls, {named}{', …' if len(done.calls) > _NAMED else ''}"


def list_changes(options: UndoOptions) -> int:
    """Print the stored changes, the newest last.

    Raises:
        UsageError: An option is given that is only valid when a call, run or checkpoint is undone.
    """
    if options.paths or options.exclude or options.dry_run or options.interrupted:
        raise UsageError("Nothing to undo is named. Name a call, a run or a checkpoint, or `last` for the newest call.")
    changes = UndoHistory(options.workspace).changes()
    if options.json:
        for change in changes:
            print_json(_change_json(change))
        return _exits.OK
    if not changes:
        say("No changes of calls are kept for this folder.")
        return _exits.OK
    table = grid("time", "call", "what", "paths", right=())
    for change in changes:
        what = one_line(change.call.tool) + (" (interrupted)" if change.interrupted else "")
        paths = ", ".join(one_line(step.path) for step in change.steps[:3]) + (" …" if len(change.steps) > 3 else "")
        paths += "".join(f" (not kept: {gap.count:,})" for gap in change.gaps if gap.why == "left_out")
        table.add_row(local_date_and_time(change.at_ns), one_line(change.call.uid), what, paths)
    output().print(table, soft_wrap=False)
    workspace = _workspace_option(options)
    say(f"`callgate diff CALL{workspace}` shows a change, `callgate undo CALL{_elsewhere(options)}` undoes it; `last` is the newest.")
    return _exits.OK


def _change_json(change: Change) -> dict[str, object]:
    return {
        "call": change.call.uid,
        "run": change.call.run,
        "turn": change.call.turn,
        "tool": change.call.tool,
        "kind": change.kind,
        "at_ns": change.at_ns,
        "commit": change.commit,
        "interrupted": change.interrupted,
        "paths": [step.path for step in change.steps],
        "not_kept": [path for gap in change.gaps if gap.why == "left_out" for path in gap.paths],
    }


def show_diff(words: str, options: UndoOptions) -> int:
    """Print what the calls changed, as a patch."""
    refuse_odd_text(call=words)
    found = UndoHistory(options.workspace).diff(words, paths=options.paths, exclude=options.exclude)
    for one in found:
        if options.json:
            print_json({"path": one.path, "text": one.text})
        else:
            write_text(one.text)
    if not found:
        say("All of these changes are undone, so there is nothing to show.")
    return _exits.OK


def checkpoint(name: str, options: UndoOptions) -> int:
    one = UndoHistory(options.workspace).checkpoint(name)
    if options.json:
        print_json(one)
    else:
        output().print(field(one.name))
        say(f"`callgate undo {shlex.quote(one.name)}{_elsewhere(options)}` undoes every call since.")
    return _exits.OK


def list_checkpoints(options: UndoOptions) -> int:
    found = UndoHistory(options.workspace).checkpoints.all()
    if not found:
        say(f"There are no checkpoints here. `callgate checkpoint add NAME{_workspace_option(options)}` makes one.")
    for one in found:
        if options.json:
            print_json(one)
        else:
            output().print(f"{local_date_and_time(one.at_ns)}  {field(one.name)}  {field(one.kind)}")
    return _exits.OK


def drop_checkpoint(name: str, options: UndoOptions) -> int:
    UndoHistory(options.workspace).checkpoints.drop(name)
    return _exits.OK


def prune(keep_days: float, options: UndoOptions) -> int:
    if not 0 <= keep_days < 36_500:
        raise UsageError(f"--keep-days is {keep_days:g}; it must be from 0 to 36,500.")
    gone = UndoHistory(options.workspace).prune(keep_days=keep_days)
    if options.json:
        print_json({"dropped": gone})
    else:
        say(f"{gone:,} changes were dropped and can no longer be undone. No file was changed.")
    return _exits.OK
