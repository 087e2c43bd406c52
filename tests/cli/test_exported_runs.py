"""`callgate replay --export` of runs that several processes worked on: the exported test passes as long as nothing has changed."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Sequence
from pathlib import Path

import pytest

from callgate.testing import Call, Item, ScriptedServer
from tests.cli.command_process import start_command
from tests.cli.runs import CRM, DONE, begun_run, ended, paid, waiting_run
from tests.cli.shell import pytest_of
from tests.waiting import until

TOOLS = '''
import os, time
from callgate import ToolContext, tool

@tool
def refund(order: str, cents: int) -> str:
    """Pay money back."""
    with open("paid.txt", "a") as ledger:
        ledger.write(f"{order} {cents}\\n")
    return f"paid {cents} for {order}"

@tool(effect="none")
def price(item: str) -> str:
    """Return the price of an item."""
    return f"{item} costs 7"

def first(context: ToolContext) -> bool:
    found = os.path.exists("begun.txt")
    open("begun.txt", "a").close()
    context.progress(f"begun {os.getpid()}\\n")  # at this line the process is killed
    return not found

@tool(runner="process")
def ship(context: ToolContext, order: str) -> str:
    """Ship an order; take long the first time."""
    if first(context):
        time.sleep(300)
    return f"{order} is shipped"

@tool(effect="none", runner="process")
def read(context: ToolContext) -> str:
    """Read; take long the first time."""
    if first(context):
        time.sleep(300)
    return "read"
'''
PAY = Call("refund", {"order": "A7", "cents": 12})
SHIP = Call("ship", {"order": "A7"})
LOOKS: list[Item] = ["I look and pay.", Call("price", {"item": "A7"}), PAY]
STALLS: list[Item] = ["I pay.", PAY, SHIP]


READS: list[Item] = ["I read.", Call("refund", {"order": "A6", "cents": 1}), Call("read"), PAY, SHIP]
TWO: list[Item] = ["I pay twice.", PAY, Call("refund", {"order": "A8", "cents": 13})]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with tools of a user."""
    (tmp_path / "crm.py").write_text(TOOLS, encoding="utf-8")
    return tmp_path


async def exported(folder: Path, run: str, *words: str) -> None:
    """Export a run and run the exported test, which must pass both times and start no tool."""
    before = paid(folder)
    done = await ended(folder, "replay", run, "--export", "test_x.py", *CRM, *words, "--json")
    assert (done.json["differences"], done.code) == ([], 0)
    code, shown = await asyncio.to_thread(pytest_of, folder, "test_x.py")
    assert code == 0, shown
    assert paid(folder) == before


async def answered(folder: Path, approval: str, *words: str) -> None:
    """Answer from a process of its own, while no process works on the run."""
    verb, *options = words
    assert (await ended(folder, verb, approval, *options, "--wait", "0")).code == 0


async def killed_run(folder: Path, server: ScriptedServer) -> str:
    """Start a run, kill its process while its last call works, and return the run's id."""
    process, run = await begun_run(folder, server, "Pay.")
    process.send_signal(signal.SIGKILL)
    await process.wait()
    return run


@pytest.mark.parametrize(
    "answer",
    [("approve",), ("approve", "--arguments", '{"order": "A7", "cents": 3}'), ("deny", "--reason", "not today")],
    ids=["approved", "approved with other arguments", "denied"],
)
async def test_the_exported_test_of_a_run_that_another_process_answered_passes(folder: Path, answer: Sequence[str]) -> None:
    async with ScriptedServer([LOOKS, DONE]) as server:
        over = await waiting_run(folder, server)
        await answered(folder, f"{over['run']}/0/1", *answer)
        assert (await ended(folder, "resume", over["run"], "--base-url", server.url, *CRM)).code == 0
    await exported(folder, over["run"])


async def test_the_exported_test_of_a_run_that_was_answered_call_by_call_passes(folder: Path) -> None:
    """Each answer counts from where it was given: the other calls ask again until then."""
    async with ScriptedServer([TWO, DONE]) as server:
        over = await waiting_run(folder, server)
        resume = ("resume", over["run"], "--base-url", server.url, *CRM)
        assert (await ended(folder, *resume)).code == 4
        await answered(folder, f"{over['run']}/0/1", "approve")
        assert (await ended(folder, *resume)).code == 4
        await answered(folder, f"{over['run']}/0/0", "deny")
        assert ((await ended(folder, *resume)).code, paid(folder)) == (0, ["A8 13"])
    await exported(folder, over["run"])


@pytest.mark.parametrize("answer", ["approve", "deny", ""], ids=["approved", "denied", "not answered"])
async def test_the_exported_test_of_a_run_that_still_waits_passes(folder: Path, answer: str) -> None:
    """An answer that no process has acted on yet changes nothing."""
    async with ScriptedServer([LOOKS]) as server:
        over = await waiting_run(folder, server)
    if answer:
        await answered(folder, f"{over['run']}/0/1", answer)
    await exported(folder, over["run"])


@pytest.mark.parametrize("turn", [STALLS, READS], ids=["in a once call", "in a read"])
async def test_the_exported_test_of_a_run_that_was_killed_and_resumed_passes(folder: Path, turn: list[Item]) -> None:
    async with ScriptedServer([turn, DONE]) as server:
        run = await killed_run(folder, server)
        assert (await ended(folder, "resume", run, "--base-url", server.url, *CRM, "--yes")).code == 0
    await exported(folder, run)


@pytest.mark.parametrize("fact", ["--happened", "--not-happened"])
async def test_the_exported_test_of_a_killed_run_whose_call_was_settled_passes(folder: Path, fact: str) -> None:
    async with ScriptedServer([STALLS, DONE]) as server:
        run = await killed_run(folder, server)
        assert (await ended(folder, "settle", f"{run}/0/1", fact, "--wait", "0")).code == 0
        assert (await ended(folder, "resume", run, "--base-url", server.url, *CRM, "--yes")).code == 0
    await exported(folder, run)


@pytest.mark.parametrize("turn", [STALLS, READS], ids=["in a once call", "in a read, before other calls"])
async def test_the_exported_test_of_a_run_that_was_killed_and_not_resumed_passes(folder: Path, turn: list[Item]) -> None:
    """It compares everything up to the end of the record, and fails if that differs."""
    async with ScriptedServer([turn]) as server:
        run = await killed_run(folder, server)
    await exported(folder, run)
    (folder / "none.toml").write_text('default = "deny"\n', encoding="utf-8")
    other = await ended(folder, "replay", run, "--export", "test_y.py", *CRM, "--policy", "none.toml", "--json")
    assert (other.code, "deny" in other.json["differences"][0]) == (6, True)


async def test_the_exported_test_of_a_call_that_was_asked_again_before_its_answer_passes(folder: Path) -> None:
    """A loop of a user's own hands its call in twice, and gets an answer after that."""
    (folder / "ask.toml").write_text('default = "ask"\n', encoding="utf-8")
    words = ("call", "refund", "order=A7", "cents=5", "--run", "case-7", "--policy", "ask.toml", *CRM)
    assert [(await ended(folder, *words)).code for _ in range(2)] == [4, 4]
    await answered(folder, "case-7/0/0", "approve")
    assert ((await ended(folder, *words)).code, paid(folder)) == (0, ["A7 5"])
    await exported(folder, "case-7", "--policy", "ask.toml")


async def test_the_exported_test_of_a_killed_call_that_was_settled_and_sent_again_passes(folder: Path) -> None:
    """The call is refused while its outcome is unknown, and runs after an operator has settled it."""
    words = ("call", "ship", "order=A7", "--run", "case-7", *CRM)
    process = await start_command(folder, *words, stdout=DEVNULL, stderr=DEVNULL)
    await until((folder / "begun.txt").exists)
    process.kill()
    await process.wait()
    assert (await ended(folder, *words)).code == 3
    assert (await ended(folder, "settle", "case-7/0/0", "--not-happened", "--wait", "0")).code == 0
    assert (await ended(folder, *words)).code == 0
    await exported(folder, "case-7")
