"""Hostile approvals through the engine's public interface: what an approval allows, and what needs another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callgate import Answered, Engine, RawCall, Scope, SqliteJournal, Suspended, UsageError, before_call
from callgate.builtins import workspace_tools
from callgate.hooks import Hook
from callgate.stage_types import ValidatedCall
from tests.corpus.fixture_tools import fixture_tools
from tests.corpus.input_files import build, rows
from tests.corpus.test_engine_hostile_calls import assert_alive_and_clean
from tests.effect_ledger import Ledger
from tests.host_fakes import Asks

CANNOT = {"server_command": "a tool that another process serves is the host's own to register: the engine knows no command line of it"}
"""Changes of a tool that the test cannot make, with the reason."""

FILES = "an approval holds for the arguments as they are written, not for what they name; the file tools look at that when they run"


class Approved:
    """One row: an approved call, and what happens between the approval and the run."""

    def __init__(self, row: dict[str, Any], folder: Path, ledger: Ledger) -> None:
        self.row, self._folder, self._ledger = row, folder, ledger
        self.root = folder / "root"
        self.root.mkdir()
        self._scope = Scope(run="r", workspace=str(self.root))

    def engine(self, *hooks: Hook, changed: str = "") -> Engine:
        tools = fixture_tools(self._ledger, self.root)
        for tool in tools:
            if tool.name == self._name and changed == "description":
                tool.description += " And something else."
            elif tool.name == self._name and changed:
                tool.parameters = {**(tool.parameters or {}), changed: "changed"}
        asked = Asks(self._name)
        return Engine(tools, policies=[asked], hooks=hooks, journal=SqliteJournal(self._folder / "journal.db"))

    @property
    def _name(self) -> str:
        return str(self.row.get("tool", "pay"))

    async def approve(self, engine: Engine) -> str:
        """Approve the call, or try to with a guessed id; return `refuse` if that is refused."""
        asked = await engine.call(RawCall(name=self._name, arguments=build(self.row["approved"])), self._scope)
        assert isinstance(asked, Suspended)
        run, iteration, number = asked.approval_id.rsplit("/", 2)
        guessed = f"{run}/{iteration}/{int(number) + 1}"
        try:
            await engine.answer(guessed if "token" in self.row else asked.approval_id, allow=True, by="bob")
        except UsageError:
            return "refuse"
        return ""

    def change_files(self) -> None:
        match self.row.get("fs_change", []):
            case ["symlink", name, target]:
                (self._folder / "outside.txt").write_text("outside")
                (self.root / name).symlink_to(target)
            case []:
                pass
            case other:
                pytest.skip(f"a change of files that is not known here: {other}")

    async def attempt(self, engine: Engine) -> str:
        before = len(self._ledger.lines())
        outcome = await engine.call(RawCall(name=self._name, arguments=build(self.row["attempt"])), self._scope)
        ran = len(self._ledger.lines()) - before
        assert ran <= 1
        if ran:
            return "run"
        if isinstance(outcome, Answered) and outcome.result.failure_class == "invalid_parameters":
            return "ask_again"  # an approval is of no use for arguments that the tool does not accept
        return "ask_again" if isinstance(outcome, Suspended) else "refuse"


def rewriting(changes: dict[str, object]) -> Hook:
    @before_call(kind="transform")
    def rewrites(call: ValidatedCall) -> dict[str, object] | None:
        return {**call.arguments, **changes} if changes.keys() <= call.arguments.keys() else None

    return rewrites


def approvals() -> list[Any]:
    marked = []
    for parameter in rows("hostile/calls.jsonl", kind="approval"):
        (row,) = parameter.values
        marks = [*parameter.marks, *([pytest.mark.xfail(reason=FILES, strict=True)] if "fs_change" in row else [])]
        marked.append(pytest.param(row, id=parameter.id, marks=marks))
    return marked


@pytest.mark.parametrize("row", approvals())
async def test_an_approval_allows_only_the_call_that_was_approved(row: dict[str, Any], tmp_path: Path, ledger: Ledger) -> None:
    """The call runs in another process, which knows the approval only from the journal."""
    if row.get("tool_changed") in CANNOT:
        pytest.skip(CANNOT[row["tool_changed"]])
    one = Approved(row, tmp_path, ledger)
    async with one.engine() as engine:
        outcome = await one.approve(engine)
    one.change_files()
    hooks = [rewriting(row["hook_rewrites"])] if "hook_rewrites" in row else []
    async with one.engine(*hooks, changed=row.get("tool_changed", "")) as engine:
        for _ in range(row.get("replay", 1)):
            outcome = outcome if outcome == "refuse" else await one.attempt(engine)
        await assert_alive_and_clean(engine)
    assert outcome in row["expect"]["outcome"]
    if outcome != "run":
        assert len(ledger.lines()) == row.get("replay", 1)  # the ping, and earlier executions
    assert all(json.loads(line) for line in ledger.lines())


async def test_a_path_replaced_by_a_symlink_after_approval_writes_nothing_outside(tmp_path: Path) -> None:
    """For the rows marked as expected failures: whatever is approved, nothing outside the workspace is written."""
    root, outside = tmp_path / "root", tmp_path / "outside.txt"
    root.mkdir()
    outside.write_text("outside")
    write = RawCall(name="write_file", arguments={"path": "a.txt", "content": "x"})
    scope = Scope(run="r", workspace=str(root))
    async with Engine(workspace_tools(), policies=[Asks("write_file")]) as engine:
        asked = await engine.call(write, scope)
        assert isinstance(asked, Suspended)
        await engine.answer(asked.approval_id, allow=True, by="bob")
        (root / "a.txt").symlink_to("../outside.txt")
        outcome = await engine.call(write, scope)
    assert not isinstance(outcome, Answered) or not outcome.result.success
    assert outside.read_text() == "outside"
