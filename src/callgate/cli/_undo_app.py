"""The words of `undo`, `redo`, `diff` and `checkpoint`, as cyclopts reads them; `_undo` does the work."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from callgate.cli._record import default_journal

__all__ = ["add_undo"]

Paths = Annotated[
    list[str] | None, Parameter(name="--path", help="Only paths that match this glob, as in `src/**`. May be repeated.", negative="")
]
Workspace = Annotated[str, Parameter(help="The folder that the calls worked in. Default: the current one.")]
Journal = Annotated[str | None, Parameter(help="The journal that is told. Default: `CALLGATE_JOURNAL`, or `.callgate/journal.db` here.")]
AsJson = Annotated[bool, Parameter(name="--json", help="Write strict JSON, for programs.", negative="")]
Flag = Parameter(negative="")

checkpoint_app = App(name="checkpoint", help="Moments to go back to: `callgate undo NAME` takes back every call since.")


def add_undo(app: App) -> None:
    """Give the command line these commands."""
    for command in (undo, redo, diff):
        app.command(command)
    app.command(checkpoint_app)


def undo(
    what: str = "",
    /,
    *,
    path: Paths = None,
    workspace: Workspace = ".",
    journal: Journal = None,
    dry_run: Annotated[bool, Flag] = False,
    interrupted: Annotated[bool, Flag] = False,
    json: AsJson = False,
) -> int:
    """Take back what calls changed in this folder: exactly, or not at all. Without words: list what was kept.

    ```
    callgate undo last
    callgate undo case-7@2 --path 'src/**' --dry-run
    ```

    Parameters
    ----------
    what
        A call's id or its end, a run, a conversation, `RUN@TURN` or `CONVERSATION@TURN`, a checkpoint, or `last`.
    dry_run
        Check everything, change nothing.
    interrupted
        Also calls whose end nobody saw, because the engine was killed.
    """
    from callgate.cli._undo import UndoOptions, list_changes, take_back

    options = UndoOptions(
        workspace=workspace,
        journal=journal or default_journal(),
        paths=tuple(path or ()),
        dry_run=dry_run,
        interrupted=interrupted,
        json=json,
    )
    return take_back(what, "undo", options) if what else list_changes(options)


def redo(
    what: str = "last",
    /,
    *,
    path: Paths = None,
    workspace: Workspace = ".",
    journal: Journal = None,
    dry_run: Annotated[bool, Flag] = False,
    json: AsJson = False,
) -> int:
    """Make changes again that were undone; the same rules, the other way round.

    ```
    callgate redo
    ```

    Parameters
    ----------
    what
        As for `undo`. Default: what was undone last.
    dry_run
        Check everything, change nothing.
    """
    from callgate.cli._undo import UndoOptions, take_back

    options = UndoOptions(workspace=workspace, journal=journal or default_journal(), paths=tuple(path or ()), dry_run=dry_run, json=json)
    return take_back(what, "redo", options)


def diff(what: str = "last", /, *, path: Paths = None, workspace: Workspace = ".", json: AsJson = False) -> int:
    """Show what an undo would change, line by line.

    ```
    callgate diff last
    ```

    Parameters
    ----------
    what
        As for `undo`. Default: the newest change that still stands.
    """
    from callgate.cli._undo import UndoOptions, show_diff

    return show_diff(what, UndoOptions(workspace=workspace, journal="", paths=tuple(path or ()), json=json))


@checkpoint_app.command(name="add")
def checkpoint_add(name: str = "", /, *, workspace: Workspace = ".", json: AsJson = False) -> int:
    """Remember this moment.

    Parameters
    ----------
    name
        Letters, digits, `.`, `_` and `-`. Default: a number.
    """
    from callgate.cli._undo import UndoOptions, checkpoint

    return checkpoint(name, UndoOptions(workspace=workspace, journal="", json=json))


@checkpoint_app.command(name="list")
def checkpoint_list(*, workspace: Workspace = ".", json: AsJson = False) -> int:
    """List them, the oldest first."""
    from callgate.cli._undo import UndoOptions, list_checkpoints

    return list_checkpoints(UndoOptions(workspace=workspace, journal="", json=json))


@checkpoint_app.command(name="drop")
def checkpoint_drop(name: str, /, *, workspace: Workspace = ".") -> int:
    """Forget one. What was changed since stays kept as long as other changes of its age."""
    from callgate.cli._undo import UndoOptions, drop_checkpoint

    return drop_checkpoint(name, UndoOptions(workspace=workspace, journal=""))


@checkpoint_app.command(name="prune")
def checkpoint_prune(*, keep_days: float = 30.0, workspace: Workspace = ".", json: AsJson = False) -> int:
    """Drop changes that are old and that no checkpoint needs. They can no longer be undone.

    Parameters
    ----------
    keep_days
        How old a change may be. Default: 30.
    """
    from callgate.cli._undo import UndoOptions, prune

    return prune(keep_days, UndoOptions(workspace=workspace, journal="", json=json))
