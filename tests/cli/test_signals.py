"""A signal that ends `callgate run` or `callgate call`: running calls end first, and the terminal is restored."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import psutil
import pytest

from callgate.testing import Call, Pause, Reply, ScriptedServer
from callgate.testing.model_script import Fail
from callgate.testing.scripted_server import Script
from tests.cli.command_process import start_command
from tests.cli.run_process import DONE, PAYS, TASK, paid, running
from tests.cli.runs import ended
from tests.cli.shell import command, environment
from tests.cli.terminal import Screen
from tests.cli.test_run_at_terminal import at_terminal
from tests.waiting import COMMAND_S, soon

SLEEPS: Script = ["I run it.", Call("run_command", {"command": "sleep 600 & echo $! $$; wait"})]
STAYS = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("begun", "w").close()
sys.stdin.read()
open("left", "w").close()
time.sleep(300)
"""
"""The program of a server that starts, never answers, and does not end when its client leaves."""
HANGS = [sys.executable, "-c", STAYS]
BOTH = pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["SIGTERM", "SIGHUP"])


@pytest.mark.process
@BOTH
async def test_a_termination_signal_ends_the_running_tool_and_shows_the_summary(folder: Path, number: signal.Signals, code: int) -> None:
    async with at_terminal(folder, [SLEEPS], "--tools", "builtin", "--yes", TERM="xterm") as terminal:
        shown = await terminal.until(b"\xe2\x94\x82 ")
        while (pids := re.search(rb"\xe2\x94\x82 (\d+) (\d+)", shown)) is None:
            shown += await terminal.until(b"\n")
        terminal.process.send_signal(number)
        shown += await terminal.until(b"callgate log show")
        assert await terminal.end() == code
    assert f"ended by {number.name}".encode() in shown
    assert b"callgate resume run-" in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # the cursor is visible again
    assert not any(psutil.pid_exists(int(pid)) for pid in pids.groups())


@BOTH
async def test_a_termination_signal_at_an_approval_prompt_leaves_the_question_open(folder: Path, number: signal.Signals, code: int) -> None:
    async with at_terminal(folder, [PAYS]) as terminal:
        await terminal.until(b"Run it? [y/N]")
        terminal.process.send_signal(number)
        assert b"callgate resume run-" in await terminal.until(b"callgate log show")
        assert await terminal.end() == code
    assert paid(folder) == []


async def test_a_termination_signal_at_the_chat_prompt_ends_the_chat(folder: Path) -> None:
    async with at_terminal(folder, ["Hello."], "--chat") as terminal:
        await terminal.until(b"you> ")
        terminal.process.send_signal(signal.SIGTERM)
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 143


@pytest.mark.process
async def test_a_termination_signal_ends_a_single_call_and_its_tool(folder: Path) -> None:
    ours, theirs = pty.openpty()
    modes = termios.tcgetattr(theirs)
    words = ("call", "wait", "--tools", "crm.py")
    process = await start_command(folder, *words, stdin=theirs, stdout=theirs, stderr=theirs, variables={"TERM": "xterm"})
    screen = Screen(ours)
    try:
        begun = await screen.until(b"\n")
        while (pid := re.search(rb"begun \\x1b\[2J (\d+)", begun)) is None:
            begun += await screen.until(b"\n")
        process.send_signal(signal.SIGTERM)
        shown = await screen.until(b"callgate log show")
        assert await asyncio.wait_for(process.wait(), COMMAND_S) == 143
        assert b"ended by SIGTERM" in shown
        assert not psutil.pid_exists(int(pid[1]))
        assert termios.tcgetattr(theirs) == modes
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
        os.close(theirs)


@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    [("wait", "--tools", "crm.py"), ("run_command", '{"command": "echo begun $$; (setsid sleep 600 &); sleep 600"}')],
    ids=["a tool in a process", "a command with children"],
)
async def test_after_a_kill_nothing_of_a_call_holds_its_streams_open(folder: Path, words: tuple[str, ...]) -> None:
    """A program that reads them sees their end, although the killed process could clean nothing up."""
    process = await start_command(folder, "call", *words)
    assert process.stderr is not None
    begun = b""
    while (pid := re.search(rb"begun .*?(\d+)\n", begun)) is None:
        line = await asyncio.wait_for(process.stderr.readline(), COMMAND_S)
        assert line, begun
        begun += line
    process.kill()
    await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert await soon(lambda: not psutil.pid_exists(int(pid[1])))


@pytest.mark.process
async def test_an_ignored_signal_stays_ignored(folder: Path) -> None:
    """For example SIGHUP under `nohup`."""
    more = asyncio.Event()
    async with ScriptedServer([["I think. ", Pause(more), "Done."]]) as server:
        words = command((*TASK, "--base-url", server.url))
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *words), cwd=folder, stdout=asyncio.subprocess.PIPE, env=environment()
        )
        while not server.requests:
            await asyncio.sleep(0)
        process.send_signal(signal.SIGHUP)
        more.set()
        out, _ = await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert (process.returncode, out) == (0, b"I think. Done.")


async def test_ctrl_c_in_a_chat_ends_the_turn_and_at_the_prompt_ends_the_chat(folder: Path) -> None:
    never = asyncio.Event()
    async with at_terminal(folder, [["I begin. ", Pause(never)], "Once more.", "Never asked."], "--chat") as terminal:
        await terminal.until(b"I begin.")
        terminal.process.send_signal(signal.SIGINT)
        assert b"stopped at the terminal" in await terminal.until(b"you> ")
        terminal.type(b"Again.\n")
        assert b"Once more." in await terminal.until(b"you> ")
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 0
        sent: Any = terminal.server.requests[1].body_json["messages"]
    assert sent[-1]["content"] == "Again."
    assert len(terminal.server.requests) == 2


@pytest.mark.process
async def test_a_second_ctrl_c_in_a_chat_ends_the_tool_and_the_chat_continues(folder: Path) -> None:
    async with at_terminal(folder, [[Call("wait")], "I am back."], "--chat", "--yes") as terminal:
        await terminal.until(b"begun")
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until(b"Stopping")
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until(b"you> ")
        terminal.type(b"Go on.\n")
        assert b"I am back." in await terminal.until(b"you> ")
        terminal.type(b"\x04")
        await terminal.until(b"callgate log show")
        assert await terminal.end() == 0


BOOM = Reply(turn=Fail("server_error", "boom"), status=500)


async def test_a_run_failed_by_its_provider_is_resumed_with_the_suggested_command(folder: Path) -> None:
    """Completed calls are not repeated: only the model is asked again."""
    async with running(folder, [PAYS, *[BOOM] * 8], "--tools", "crm.py", "--yes") as run:
        code, _, err = await run.end()
    assert code == 1
    shown = re.search(r"^  callgate (resume run-\w+ .*)$", err, re.MULTILINE)
    assert shown is not None
    async with ScriptedServer([DONE]) as server:
        words = [server.url if word.startswith("http:") else word for word in shown[1].split()]
        done = await ended(folder, *words)
        sent: Any = server.requests[0].body_json["messages"]
    assert (done.code, done.out) == (0, "Paid.")
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert paid(folder) == ["A7 12"]


async def test_a_stopped_run_is_resumed_with_the_suggested_command(folder: Path) -> None:
    never = asyncio.Event()
    async with running(folder, [["I begin. ", Pause(never)]]) as run:
        await run.line("callgate run")
        while not run.server.requests:
            await asyncio.sleep(0)
        run.process.send_signal(signal.SIGINT)
        code, _, err = await run.end()
    assert code == 130
    async with ScriptedServer([DONE]) as server:
        (words,) = re.findall(r"^  callgate (resume run-\w+ .*)$", err, re.MULTILINE)
        done = await ended(folder, *(server.url if word.startswith("http:") else word for word in words.split()))
    assert (done.code, done.out) == (0, "Paid.")


@pytest.mark.process
@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)], ids=["Ctrl-C twice", "SIGTERM"])
async def test_the_line_of_an_aborted_call_shows_its_duration(folder: Path, numbers: tuple[signal.Signals, ...]) -> None:
    async with at_terminal(folder, [[Call("wait", {}), Call("refund", {"order": "A7", "cents": 12})]], "--yes") as terminal:
        await terminal.until(b"begun")
        for number in numbers:
            terminal.process.send_signal(number)
            await terminal.until(b"Stopping", b"Killed")
        shown = (await terminal.until(b"callgate log show")).decode()
        await terminal.end()
    assert re.search(r"■ wait  [\d,]+ ms\r\n", shown), shown
    assert re.search(r"■ refund order=A7 cents=12\r\n", shown), shown  # it had not started


@pytest.mark.process
async def test_the_json_event_of_an_aborted_call_contains_its_duration(folder: Path) -> None:
    async with running(folder, [[Call("wait", {})]], "--tools", "crm.py", "--yes", "--json") as run:
        assert run.process.stdout is not None
        while b"call_progress" not in await run.process.stdout.readline():
            pass
        run.process.send_signal(signal.SIGTERM)
        _, out, _ = await run.end()
    (ended_call,) = [event for line in out.splitlines() if (event := json.loads(line))["event"] == "call_ended"]
    assert (ended_call["status"], ended_call["attempts"]) == ("aborted", 1)
    assert ended_call["ms"] > 0


@pytest.mark.process
@pytest.mark.parametrize(
    "words",
    [("mcp", "test", "hangs"), ("mcp", "diff"), ("mcp", "add", "more", "--", *HANGS), ("serve", "check"), ("plugin", "list", "hangs")],
    ids=lambda words: " ".join(words[:2]),
)
async def test_two_signals_at_once_end_a_command_as_one_does(tmp_path: Path, words: tuple[str, ...]) -> None:
    """As from a supervisor that signals the process and its group."""
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"hangs": {"command": HANGS[0], "args": HANGS[1:]}}}), encoding="utf-8")
    (tmp_path / "gate.toml").write_text('mcp_files = [".mcp.json"]\n', encoding="utf-8")
    (tmp_path / "hangs").mkdir()
    manifest = f'[plugin]\nname = "hangs"\nversion = "0.1"\nprotocol = 1\ncommand = {json.dumps(HANGS)}\n'
    (tmp_path / "hangs" / "callgate-plugin.toml").write_text(manifest, encoding="utf-8")
    process = await start_command(tmp_path, *words)
    assert await soon(lambda: list(tmp_path.rglob("begun")))
    process.send_signal(signal.SIGTERM)
    assert await soon(lambda: list(tmp_path.rglob("left")))
    process.send_signal(signal.SIGHUP)
    _, err = await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert process.returncode == 143
    assert b"Traceback" not in err, err.decode()


INTERRUPTED = """
import signal, sys
from importlib.abc import MetaPathFinder
from callgate.cli import main

class Interrupts(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.exit(main(["log", "list"]))
"""
"""A program that gets a Ctrl-C when it imports a module."""


@pytest.mark.process
@pytest.mark.parametrize("module", ["cyclopts", "callgate.cli._app", "callgate.cli._show_log"])
def test_ctrl_c_while_the_command_line_is_imported_ends_it_quietly(tmp_path: Path, module: str) -> None:
    line = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, timeout=COMMAND_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
