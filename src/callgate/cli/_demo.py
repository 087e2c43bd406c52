"""`callgate demo`: run a demonstration. The exit code says whether all of its claims held."""

from __future__ import annotations

from pathlib import Path

from callgate.cli import _exit_codes as _exits
from callgate.cli._console import grid, output, print_json, say
from callgate.demo import DEMOS, Outcome, run_demo
from callgate.errors import UsageError

__all__ = ["demo", "list_demos"]


def list_demos(*, as_json: bool) -> int:
    if as_json:
        print_json([{"name": name, "title": entry.title} for name, entry in DEMOS.items()])
        return _exits.OK
    table = grid("", "")
    for name, entry in DEMOS.items():
        table.add_row(f"callgate demo {name}", entry.title)
    output().print(table, soft_wrap=False)
    return _exits.OK


def demo(name: str, folder: str | None, *, as_json: bool) -> int:
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"{folder} is not a folder. Give an existing one with --dir.")
    if folder is not None and name != "folder":
        raise UsageError(f"--dir works only with the demonstration 'folder'; '{name}' makes its own folder. Leave one of them out.")
    outcome = run_demo(name, folder=Path(folder).resolve() if folder is not None else None, screen=None if as_json else output())
    if as_json:
        print_json(_as_json(outcome))
    elif outcome.problems:
        say(f"This demonstration failed. Its record is in {outcome.root}.", "bold red")
    return _exits.FAILED if outcome.problems else _exits.OK


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {
        "demo": outcome.name,
        "ok": not outcome.problems,
        "problems": outcome.problems,
        "proven": outcome.proven,
        "calls": [
            {
                "call": call.uid,
                "tool": call.tool,
                "status": call.status,
                "failure_class": call.failure_class or None,
                "ms": round(call.duration_ms, 1),
                "attempts": call.attempts,
                "rule": call.rule or None,
                "notes": call.notes,
            }
            for call in outcome.calls
        ],
        "folder": str(outcome.root),
        "journal": str(outcome.journal),
        "ledger": str(outcome.ledger),
    }
