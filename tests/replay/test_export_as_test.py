"""The text of an exported test, for any run name and task."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from callgate import Engine, Scope
from callgate.agent import Agent
from callgate.events import Draft
from callgate.replay import Replay
from callgate.replay.export_as_test import as_test
from tests.agent.scripted_model import Script, says
from tests.effect_ledger import Ledger
from tests.replay.sample_runs import tools_of


@pytest.mark.parametrize("run", ["case-7", '"""; import os', "a\\", "läuft 🜁", "{x}", "7"])
async def test_run_names_and_tasks_never_become_code_of_an_exported_test(run: str, ledger: Ledger, tmp_path: Path) -> None:
    """Text of a user or a model may appear in the file, but never as code."""
    async with Engine(tools_of(ledger)) as engine, Agent(Script(says("Done.")), engine) as agent:
        await agent.run(f'{run}\n"""\nraise SystemExit\n{run * 40}', scope=Scope(run=run))
        replay = Replay.of(engine.journal, run)
    text = as_test(
        replay, tmp_path / "test_x.py", tmp_path / f"{run[:3]}.jsonl", tools=["builtin", "a b/c.py:both", "m:x"], policy='r"s.toml'
    )
    tree = ast.parse(text)
    kinds = [type(node).__name__ for node in tree.body]
    assert kinds == ["Expr", "ImportFrom", "ImportFrom", "ImportFrom", "ImportFrom", "Assign", "Assign", "FunctionDef"]
    assert "raise SystemExit" not in [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    assert all(len(line) <= 140 for line in text.splitlines())


async def test_how_a_run_ended_never_becomes_code_of_an_exported_test(ledger: Ledger, tmp_path: Path) -> None:
    """The word is part of the journal, whose file may come from somebody else."""
    async with Engine(tools_of(ledger)) as engine, Agent(Script(says("Done.")), engine) as agent:
        await agent.run("Go.", scope=Scope(run="r"))
        body = json.dumps({"status": "completed", "turn_status": 'done."""\n    raise SystemExit\n    """'}).encode()
        await engine.journal.durable(engine.journal.append(Draft(kind="run.ended", run="r", body=body)))
        replay = Replay.of(engine.journal, "r")
    text = as_test(replay, tmp_path / "test_x.py", tmp_path / "x.jsonl", tools=["builtin"], policy="")
    assert "raise SystemExit" not in [ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
