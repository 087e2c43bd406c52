"""Demonstration 8: every file write can be undone exactly, or the undo is refused with the reason."""

from __future__ import annotations

from pathlib import Path

from callgate.builtins import command_tools, workspace_tools
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, raw
from callgate.demo._file_snapshot import Facts, facts
from callgate.undo import UndoHistory, UndoRefused, UndoStore

__all__ = ["undo"]

_COMMAND = (
    "rm notes.md && chmod 600 run.sh && mkdir -p out/deep && printf 'a\\0b' > out/deep/data.bin && ln -s run.sh latest && echo >> src.txt"
)


async def undo(stage: DemoRun) -> list[Finding]:
    """Let a tool and a command change a folder. Undo and redo the changes, and refuse to undo over a person's edit."""
    work, kept = stage.root / "work", stage.root / "kept"
    work.mkdir()
    _fill(work)
    before = facts(work)
    async with stage.engine([*workspace_tools(), *command_tools()], undo=UndoStore(kept)) as engine:
        scope = stage.scope(workspace=work)
        await engine.call(raw("write_file", path="src.txt", content="the tool's\n"), scope)
        await engine.call(raw("run_command", command=_COMMAND), stage.scope(iteration=1, workspace=work))
    after = facts(work)
    undo_history = UndoHistory(work, place=kept)
    return [
        finding(
            "two calls changed the folder, one a command without declared writes",
            before != after,
            sorted(before.keys() ^ after.keys()),
        ),
        *_back_and_forth(undo_history, work, before, after),
        *_check_refusal(undo_history, work),
    ]


def _back_and_forth(undo_history: UndoHistory, work: Path, before: Facts, after: Facts) -> list[Finding]:
    done = undo_history.undo("undo")
    found = [finding("undo of the run restores every byte, mode, link, time and absence", facts(work) == before, done.paths)]
    again = undo_history.redo("undo")
    return [*found, finding("redo restores all changes", facts(work) == after, again.paths)]


def _check_refusal(undo_history: UndoHistory, work: Path) -> list[Finding]:
    (work / "src.txt").write_text("my own line\n")
    mine = facts(work)
    try:
        undo_history.undo("undo")
        why = "it was done"
    except UndoRefused as refused:
        why = "; ".join(f"{one.path}: {one.text}" for one in refused.conflicts)
    kept = finding("over a person's edit it is refused and changes nothing", facts(work) == mine and why.startswith("src.txt"), why)
    rest = undo_history.undo("undo", paths=["out/**", "out", "latest"])
    return [kept, finding("paths that nobody else edited can still be undone", not (work / "out").exists(), rest.paths)]


def _fill(work: Path) -> None:
    (work / "src.txt").write_text("yours\n")
    (work / "notes.md").write_bytes(b"\xff\xfe no text, no last line")
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
