"""Define `undo`, `redo`, `diff` and `checkpoint` for cyclopts; `_undo_changes` does the work."""

from __future__ import annotations

from cyclopts import App

from callgate.cli._command_options import Excluded, Paths, RedoOptions, UndoOptions, Workspace
from callgate.cli._shared_options import AsJson

__all__ = ["add_undo"]

checkpoint_app = App(name="checkpoint", help="Mark moments to go back to: `callgate undo NAME` undoes every call since.")


def add_undo(app: App) -> None:
    """Add the undo, redo, diff and checkpoint commands to the command line."""
    for command in (undo, redo, diff):
        app.command(command)
    app.command(checkpoint_app)


def undo(what: str = "", /, *, options: UndoOptions | None = None) -> int:
    """Undo what calls changed in this folder, exactly or not at all. Without arguments: list the stored changes.

    ```
    callgate undo last
    callgate undo case-7@2 --path 'src/**' --dry-run
    callgate undo last --exclude notes.md
    ```

    Changes that are not undone are listed with the reason.

    Exit codes: 0 undone, or partly because of `--path` and `--exclude` · 1 refused: nothing was changed · 2 no such
    call, run or checkpoint, or no path matches.

    Parameters
    ----------
    what
        A call's id or its last part, a run, a conversation, `RUN@TURN`, `CONVERSATION@TURN`, a checkpoint, or `last`.
    """
    from callgate.cli._undo_changes import list_changes, take_back

    options = options or UndoOptions()
    return take_back(what, "undo", options) if what else list_changes(options)


def redo(what: str = "last", /, *, options: RedoOptions | None = None) -> int:
    """Redo changes that were undone, exactly or not at all.

    ```
    callgate redo
    ```

    Parameters
    ----------
    what
        As for `undo`. Default: the last undo.
    """
    from callgate.cli._undo_changes import take_back

    return take_back(what, "redo", options or RedoOptions())


def diff(what: str = "last", /, *, paths: Paths = (), exclude: Excluded = (), workspace: Workspace = ".", json: AsJson = False) -> int:
    """Print what calls changed, as a patch: lines that they wrote begin with `+`.

    `patch -p0` applies the patch, `patch -p0 -R` reverses it. Changes that a patch cannot express, such as folders and extended attributes,
    are lines that begin with `#`.

    ```
    callgate diff last
    callgate diff case-7 > changes.patch
    ```

    Parameters
    ----------
    what
        As for `undo`. Default: the newest change that is not undone.
    """
    from callgate.cli._undo_changes import show_diff

    return show_diff(what, UndoOptions(workspace=workspace, paths=paths, exclude=exclude, json=json))


@checkpoint_app.command(name="add")
def checkpoint_add(name: str = "", /, *, workspace: Workspace = ".", json: AsJson = False) -> int:
    """Add a checkpoint.

    Parameters
    ----------
    name
        Letters, digits, `.`, `_` and `-`. Default: a number.
    """
    from callgate.cli._undo_changes import checkpoint

    return checkpoint(name, UndoOptions(workspace=workspace, json=json))


@checkpoint_app.command(name="list")
def checkpoint_list(*, workspace: Workspace = ".", json: AsJson = False) -> int:
    """List the checkpoints, the oldest first."""
    from callgate.cli._undo_changes import list_checkpoints

    return list_checkpoints(UndoOptions(workspace=workspace, json=json))


@checkpoint_app.command(name="drop")
def checkpoint_drop(name: str, /, *, workspace: Workspace = ".") -> int:
    """Remove a checkpoint.

    Changes that only this checkpoint protected are then removed by `prune` when they are old.
    """
    from callgate.cli._undo_changes import drop_checkpoint

    return drop_checkpoint(name, UndoOptions(workspace=workspace))


@checkpoint_app.command(name="prune")
def checkpoint_prune(*, keep_days: float = 30.0, workspace: Workspace = ".", json: AsJson = False) -> int:
    """Remove old changes that no checkpoint needs. They can no longer be undone.

    Parameters
    ----------
    keep_days
        The maximum age of a change, in days. Default: 30.
    """
    from callgate.cli._undo_changes import prune

    return prune(keep_days, UndoOptions(workspace=workspace, json=json))
