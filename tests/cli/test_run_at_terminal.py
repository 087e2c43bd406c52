"""`callgate run` at a terminal: its output, its prompts, and the answers of the user."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callgate.testing import Call, Pause, ScriptedServer
from callgate.testing.scripted_server import Script
from tests.cli.run_process import CRM, DONE, PAYS, TASK, paid
from tests.cli.shell import shell
from tests.cli.terminal import Terminal, command_at_terminal


class AgentAtTerminal:
    """A terminal with a running agent, and its provider."""

    def __init__(self, terminal: Terminal, server: ScriptedServer) -> None:
        self.type = terminal.type
        self.until = terminal.until
        self.end = terminal.end
        self.process = terminal.process
        self.server = server


@asynccontextmanager
async def at_terminal(folder: Path, turns: Sequence[Script], *words: str, **more: str) -> AsyncIterator[AgentAtTerminal]:
    async with (
        ScriptedServer(turns) as server,
        command_at_terminal(folder, *TASK, "--base-url", server.url, *CRM, *words, **more) as terminal,
    ):
        yield AgentAtTerminal(terminal, server)


@pytest.mark.parametrize(
    ("answer", "told", "effects"),
    [("y", "Paid", ["A7 12"]), ("n", "he person at the terminal said no", []), ("x\ny", "Paid", ["A7 12"])],
    ids=["yes", "no", "neither, then yes"],
)
async def test_a_run_asks_for_approval_at_the_terminal_and_continues(folder: Path, answer: str, told: str, effects: list[str]) -> None:
    """A no is a denial that the model reads; the run ends `completed` in both cases."""
    async with at_terminal(folder, [PAYS, DONE], TERM="xterm", COLUMNS="60") as terminal:
        assert b'"order": "A7"' in await terminal.until(b"Run it? [y/N]")
        for line in answer.split("\n"):
            terminal.type(line.encode() + b"\n")
        shown = await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
        sent: Any = terminal.server.requests[1].body_json["messages"]
    assert paid(folder) == effects
    assert told in shown.decode() + json.dumps(sent)


async def test_input_typed_before_a_prompt_does_not_answer_it(folder: Path) -> None:
    """An approval needs a prompt that the user has read: a key pressed twice must not approve the next call."""
    typed = asyncio.Event()
    async with at_terminal(folder, [["I think. ", Pause(typed), *PAYS], DONE]) as terminal:
        await terminal.until(b"I think.")
        terminal.type(b"y\n")
        await terminal.until(b"y\r\n")
        typed.set()
        await terminal.until(b"Run it? [y/N]")
        terminal.type(b"n\n")
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
    assert paid(folder) == []


async def test_a_chat_continues_one_conversation_until_end_of_input(folder: Path) -> None:
    async with at_terminal(folder, [[Call("odd_text")], "Hello.", "Once more hello."], "--chat") as terminal:
        await terminal.until(b"you> ")
        terminal.type(b"Say it again.\n")
        assert b"Once more hello." in await terminal.until(b"you> ")
        terminal.type(b"\x04")
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
        sent: Any = terminal.server.requests[2].body_json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[-1]["content"] == "Say it again."


async def test_ctrl_c_at_an_approval_prompt_leaves_the_question_open(folder: Path) -> None:
    async with at_terminal(folder, [PAYS]) as terminal:
        await terminal.until(b"Run it? [y/N]")
        terminal.process.send_signal(signal.SIGINT)
        assert b"callgate resume run-" in await terminal.until(b"callgate log show")
        assert await terminal.end() == 130
    assert paid(folder) == []


async def test_control_characters_in_model_and_tool_text_are_escaped(folder: Path) -> None:
    turns: list[Script] = [["a\x1b[31m", "b\r", "\nc\u202e", Call("odd_text")], ["\x9bd"]]
    async with at_terminal(folder, turns) as terminal:
        shown = (await terminal.until(b"callgate log show")).decode()
        assert await terminal.end() == 0
    assert "a\\x1b[31mb\r\nc\\u202e\r\n" in shown
    assert "\\x9bd\r\n" in shown
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", shown)


FLOOD = '''
from callgate import ToolContext, tool

@tool(effect="none")
def flood(context: ToolContext, lines: int) -> str:
    """Report many lines."""
    for number in range(lines):
        context.progress(f"line {number}\\n")
    return "all of it"
'''


@pytest.mark.parametrize("lively", [False, True], ids=["plain", "drawn"])
async def test_long_output_is_folded_and_shows_the_command_for_the_full_result(folder: Path, lively: bool) -> None:
    """A command writes faster than a terminal draws: only the first and last lines appear, with the number of the others and a command."""
    turns: list[Script] = [[Call("run_command", {"command": "seq 1 200000"})], "Seen."]
    async with at_terminal(folder, turns, "--yes", "--tools", "builtin", TERM="xterm" if lively else "dumb", COLUMNS="200") as terminal:
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", (await terminal.until(b"callgate log show")).decode())
        assert await terminal.end() == 0
    lines = re.findall("│ (.*?)\r\n", shown)
    assert lines[:10] == [str(number) for number in range(1, 11)]
    assert lines[-10:] == [str(number) for number in range(199_991, 200_001)]
    told = re.search(r"([\d,]+) more lines; the whole result: callgate (log result run-\w+/0/0)", lines[10])
    assert told is not None
    assert (len(lines), told[1]) == (21, "199,980")
    assert json.loads(shell(folder, *told[2].split()).out)["stdout"].splitlines()[100_000] == "100001"


async def test_long_progress_output_of_a_tool_is_folded(folder: Path) -> None:
    (folder / "flood.py").write_text(FLOOD, encoding="utf-8")
    turns: list[Script] = [[Call("flood", {"lines": 5_000})], "Seen."]
    async with at_terminal(folder, turns, "--tools", "flood.py") as terminal:
        shown = (await terminal.until(b"callgate log show")).decode()
        assert await terminal.end() == 0
    assert shown.count("│") == 21
    assert "line 4999" in shown


async def test_the_end_of_long_arguments_is_shown_and_all_of_them_on_request(folder: Path) -> None:
    """What stands after 4,000 characters would run with a yes that nobody meant."""
    order = "begin " + "x" * 3_000 + " middle " + "x" * 3_000 + " rm -rf /"
    pays: Script = [Call("refund", {"order": order, "cents": 12})]
    async with at_terminal(folder, [pays, DONE], TERM="xterm", COLUMNS="20000") as terminal:
        shown = await terminal.until(b"Run it? [y/N, a: show all arguments]")
        assert (b"begin" in shown, b"middle" in shown, b"rm -rf /" in shown) == (True, False, True)
        assert b"characters are not shown here" in shown
        terminal.type(b"a\n")
        assert order.encode() in await terminal.until(b"Run it? [y/N, a: show all arguments]")
        terminal.type(b"n\n")
        assert await terminal.end() == 0
    assert paid(folder) == []
