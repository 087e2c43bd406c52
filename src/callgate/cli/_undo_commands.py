"""The words of `undo`, `redo`, `diff` and `checkpoint`, as cyclopts reads them; `_undo` does the work."""

from __future__ import annotations

from cyclopts import App

from callgate.cli._options import Excluded, Paths, RedoOptions, UndoOptions, Workspace
from callgate.cli._shared_options import AsJson

__all__ = ["add_undo"]

checkpoint_app = App(name="checkpoint", help="Moments to go back to: `callgate undo NAME` takes back every call since.")


def add_undo(app: App) -> None:
    """Give the command line these commands."""
    for command in (undo, redo, diff):
        app.command(command)
    app.command(checkpoint_app)


def undo(what: str = "", /, *, options: UndoOptions | None = None) -> int:
    """Take back what calls changed in this folder: exactly, or not at all. Without words: list what was kept.

    ```
    callgate undo last
    callgate undo case-7@2 --path 'src/**' --dry-run
    callgate undo last --exclude notes.md
    ```

    Where not all that the calls changed is undone, it says so, and names what is left and why.

    Exit codes: 0 undone, or partly, as `--path` and `--exclude` ask for · 1 refused: nothing was changed · 2 nothing of this name, or no
    path of it matches.

    Parameters
    ----------
    what
        A call's id or its end, a run, a conversation, `RUN@TURN` or `CONVERSATION@TURN`, a checkpoint, or `last`.
    """
    from callgate.cli._undo import list_changes, take_back

    options = options or UndoOptions()
    return take_back(what, "undo", options) if what else list_changes(options)


def redo(what: str = "last", /, *, options: RedoOptions | None = None) -> int:
    """Make changes again that were undone; the same rules, the other way round.

    ```
    callgate redo
    ```

    Parameters
    ----------
    what
        As for `undo`. Default: what was undone last.
    """
    from callgate.cli._undo import take_back

    return take_back(what, "redo", options or RedoOptions())


def diff(what: str = "last", /, *, paths: Paths = (), exclude: Excluded = (), workspace: Workspace = ".", json: AsJson = False) -> int:
    """Print what calls changed, as a patch: lines that they wrote begin with `+`.

    Written to a file it can be applied: `patch -p0` makes the changes, `patch -p0 -R` takes them back. What no patch can say, as a folder
    or an extended attribute, stands in a line that begins with `#`.

    ```
    callgate diff last
    callgate diff case-7 > changes.patch
    ```

    Parameters
    ----------
    what
        As for `undo`. Default: the newest change that still stands.
    """
    from callgate.cli._undo import show_diff

    return show_diff(what, UndoOptions(workspace=workspace, paths=paths, exclude=exclude, json=json))


@checkpoint_app.command(name="add")
def checkpoint_add(name: str = "", /, *, workspace: Workspace = ".", json: AsJson = False) -> int:
    """Remember this moment.

    Parameters
    ----------
    name
        Letters, digits, `.`, `_` and `-`. Default: a number.
    """
    from callgate.cli._undo import checkpoint

    return checkpoint(name, UndoOptions(workspace=workspace, json=json))


@checkpoint_app.command(name="list")
def checkpoint_list(*, workspace: Workspace = ".", json: AsJson = False) -> int:
    """List them, the oldest first."""
    from callgate.cli._undo import list_checkpoints

    return list_checkpoints(UndoOptions(workspace=workspace, json=json))


@checkpoint_app.command(name="drop")
def checkpoint_drop(name: str, /, *, workspace: Workspace = ".") -> int:
    """Forget one. What was changed since stays kept as long as other changes of its age."""
    from callgate.cli._undo import drop_checkpoint

    return drop_checkpoint(name, UndoOptions(workspace=workspace))


@checkpoint_app.command(name="prune")
def checkpoint_prune(*, keep_days: float = 30.0, workspace: Workspace = ".", json: AsJson = False) -> int:
    """Drop changes that are old and that no checkpoint needs. They can no longer be undone.

    Parameters
    ----------
    keep_days
        How old a change may be. Default: 30.
    """
    from callgate.cli._undo import prune

    return prune(keep_days, UndoOptions(workspace=workspace, json=json))
