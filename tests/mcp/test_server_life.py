"""The life of a server: its process, its end in the middle of a call, its restarts, and its quarantine."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, Scope, ToolResult
from callgate._server_processes import child_process
from callgate.errors import UsageError
from callgate.mcp import McpServer, mcp
from callgate.mcp._revisions import Era
from tests.engine_calls import call, result_of, said
from tests.mcp.fakes import ANSWER, Fake
from tests.runners.runner_requests import marked
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process

DAEMON = "import os,time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(600)"
"""A program that leaves a daemon behind."""


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_call_of_a_server_that_is_killed_is_unknown_and_the_next_call_restarts_it(tmp_path: Path, era: str) -> None:
    fake = Fake(tmp_path, {"until_cancelled": True}, era=era)
    async with Engine(servers=[fake.server()]) as engine:
        calling = asyncio.ensure_future(engine.call(call("work", order=7)))
        await until(fake.calls)
        os.kill(fake.pids[0], signal.SIGKILL)
        lost = result_of(await calling)
        assert (lost.status, lost.code) == ("unknown", "tool_crashed")
        assert "killed by SIGKILL" in str(lost.error)
        assert (await said(engine, call("echo", text="again"))).text == "again"
        assert len(fake.pids) == 2
        await until(lambda: len(fake.calls()) == 2)
    assert [params["name"] for params in fake.calls()] == ["work", "echo"]


async def test_the_log_says_once_that_a_server_which_had_ended_runs_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fake = Fake(tmp_path)
    async with Engine(servers=[fake.server()]) as engine:
        assert "runs" not in caplog.text
        os.kill(fake.pids[0], signal.SIGKILL)
        await until(lambda: "killed by SIGKILL" in caplog.text)
        assert (await said(engine, call("echo", text="again"))).text == "again"
    told = [(record.levelname, record.getMessage()) for record in caplog.records if "runs again" in record.getMessage()]
    assert told == [("WARNING", "The MCP server 'fake' runs again")]


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_a_server_whose_output_begins_with_a_byte_order_mark_is_understood(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, era: str
) -> None:
    fake = Fake(tmp_path, ANSWER, era=era, begins_with="\ufeff")
    async with Engine(servers=[fake.server()]) as engine:
        assert (await said(engine, call("work"))).text == "done"
    assert len(fake.pids) == 1
    assert "is ignored" not in caplog.text


async def test_a_reading_call_of_a_server_that_ends_is_sent_again(tmp_path: Path) -> None:
    fake = Fake(tmp_path, {"exit_after_first": True}, ANSWER)
    async with Engine(servers=[fake.server(effects={"work": "none"})]) as engine:
        assert (await said(engine, call("work"))).text == "done"
    assert len(fake.calls()) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")
async def test_processes_that_a_server_leaves_behind_end_with_the_engine(tmp_path: Path) -> None:
    fake = Fake(tmp_path, {"spawn": DAEMON}, ANSWER)
    async with Engine(servers=[fake.server(env={"FAKE_MARK": str(tmp_path)})]) as engine:
        assert (await said(engine, call("work"))).text == "done"
        assert len(marked(str(tmp_path))) >= 2
    assert marked(str(tmp_path)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc")
def test_no_process_of_a_server_outlives_an_engine_that_is_killed(tmp_path: Path) -> None:
    fake = Fake(tmp_path, {"spawn": DAEMON}, ANSWER, stays=True)
    program = (
        "import asyncio, sys; sys.path[:] = sys.argv[4:]\n"
        "from callgate import Engine, RawCall\nfrom callgate.mcp import mcp\n"
        "async def main():\n"
        "  server = mcp([sys.executable, *sys.argv[1:4]], env={'FAKE_MARK': sys.argv[3]})\n"
        "  async with Engine(servers=[server]) as engine:\n"
        "    await engine.call(RawCall(name='work', arguments='{}')); print('ready', flush=True); await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    arguments = [sys.modules["tests.mcp.fake_server"].__file__ or "", str(fake.script), str(fake.log)]
    with subprocess.Popen([sys.executable, "-c", program, *arguments, *sys.path], stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "ready\n"
        mark = f"FAKE_MARK={fake.log}"
        assert len(marked(mark)) >= 2
        engine.send_signal(signal.SIGKILL)
        end = time.monotonic() + PATIENCE_S
        while marked(mark) and time.monotonic() < end:
            time.sleep(0.02)
        assert marked(mark) == []


async def test_a_stopped_server_is_replaced_after_its_call_has_timed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._SILENT_S", 0.05)
    fake = Fake(tmp_path, ANSWER)
    async with Engine(servers=[fake.server(timeout_s=0.3)]) as engine:
        os.kill(fake.pids[0], signal.SIGSTOP)
        lost = await said(engine, call("work"))
        assert (lost.status, lost.code) == ("unknown", "timeout")
        await until(lambda: len(fake.pids) == 2)
    assert len(fake.calls()) <= 1


async def test_a_server_that_is_slow_to_answer_one_call_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._SILENT_S", 0.05)
    fake = Fake(tmp_path, {"until_cancelled": True})
    async with Engine(servers=[fake.server(options={"work": {"timeout_s": 0.2}})]) as engine:
        assert (await said(engine, call("work"))).code == "timeout"
        assert (await said(engine, call("echo", text="alive"))).text == "alive"
        assert len(fake.pids) == 1


async def test_a_program_that_does_not_exist_is_named_and_other_tools_work(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER)
    missing = mcp("no-such-program --flag", tools=("look",))
    async with Engine(servers=[missing, fake.server()]) as engine:
        assert (await said(engine, call("work"))).success
        named = await said(engine, call("look"))
        unnamed = await said(engine, call("other"))
    assert (named.status, named.code) == ("error", "tool_unavailable")
    assert "there is no program 'no-such-program' in PATH" in named.text
    assert unnamed.code == "unknown_tool"


async def test_the_reason_of_a_server_without_known_tools_is_told_when_an_unknown_name_is_called(tmp_path: Path) -> None:
    async with Engine(servers=[mcp("no-such-program")]) as engine:
        result = await said(engine, call("look"))
    assert result.code == "unknown_tool"
    assert "there is no program 'no-such-program' in PATH" in result.text


async def test_an_engine_does_not_start_without_a_server_that_it_requires(tmp_path: Path) -> None:
    fake = Fake(tmp_path, exit_at_start=3)
    with pytest.raises(UsageError) as caught:
        await Engine(servers=[fake.server(required=True)]).__aenter__()
    assert caught.value.code == "server_unavailable"
    assert "it exited with code 3" in str(caught.value)
    assert "this server does not start" in str(caught.value)


async def test_what_a_server_wrote_is_told_if_it_had_ended_before_the_event_loop_could_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = child_process._spawn

    def spawn_slowly(*given: Any) -> Any:
        channel, process = spawn(*given)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return channel, process

    monkeypatch.setattr(child_process, "_spawn", spawn_slowly)
    command = [sys.executable, "-c", "import sys; sys.exit('no licence found')"]
    with pytest.raises(UsageError, match="no licence found"):
        async with Engine(servers=[mcp(command, required=True)]):
            pass


@pytest.mark.parametrize(
    ("exits_on", "era", "told"),
    [
        ("server/discover", None, True),
        ("initialize", None, False),
        ("tools/list", None, False),
        ("server/discover", "stateless", False),
        ("initialize", "handshake", False),
    ],
)
async def test_the_problem_of_a_server_that_ends_when_it_is_asked_for_its_era_names_the_option(
    tmp_path: Path, exits_on: str, era: Era | None, told: bool
) -> None:
    fake = Fake(tmp_path, exits_on=exits_on, era="stateless" if era == "stateless" else "handshake")
    async with Engine(servers=[fake.server(era=era)]) as engine:
        (status,) = engine.servers_status()
    assert "it exited with code 4" in status.problem
    assert ("set its era to handshake" in status.problem) is told


async def test_that_option_lets_the_server_start(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER, exits_on="server/discover", era="handshake")
    async with Engine(servers=[fake.server(era="handshake")]) as engine:
        assert (await said(engine, call("work"))).success


async def test_a_server_that_fails_again_and_again_is_quarantined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._FIRST_WAIT_S", 0.001)
    fake = Fake(tmp_path, exit_at_start=3)
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine(servers=[fake.server(tools=("work",))]) as engine:
            await until(lambda: len(fake.pids) == 5 and caplog.text.count("exited with code 3") == 5)
            result = await said(engine, call("work"))
            assert len(fake.pids) == 5
    assert (result.status, result.code) == ("error", "tool_unavailable")


async def test_a_quarantined_server_is_tried_again_by_a_later_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._FIRST_WAIT_S", 0.001)
    monkeypatch.setattr("callgate.mcp._supervised_session._QUARANTINE_S", 0.001)
    fake = Fake(tmp_path, {"exit": 1})
    async with Engine(servers=[fake.server()]) as engine:
        for number in range(5):
            assert (await said(engine, call("work", number=number))).status == "unknown"
        assert (await said(engine, call("echo", text="back"))).text in ("back", "")
    assert len(fake.calls()) in (5, 6)


async def test_an_answer_of_a_server_that_is_none_is_logged_once_and_without_advice_for_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake = Fake(tmp_path, '{"jsonrpc":"2.0","id":{ID}}\n')
    async with Engine(servers=[fake.server()]) as engine:
        assert (await said(engine, call("work"))).code == "protocol_error"
    (warned,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "its outcome is unknown" in warned


async def fails_from_now_on(engine: Engine, fake: Fake) -> asyncio.Task[ToolResult]:
    """Make a call of `work`, during which the server ends, so that it fails at each start; return the call."""
    calling = asyncio.ensure_future(said(engine, call("work")))
    await until(fake.calls)
    fake.write(exit_at_start=3)
    os.kill(fake.pids[0], signal.SIGKILL)
    return calling


async def test_a_call_of_a_quarantined_server_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._FIRST_WAIT_S", 0.001)
    fake = Fake(tmp_path, {"until_cancelled": True})
    async with Engine(servers=[fake.server()]) as engine:
        await (await fails_from_now_on(engine, fake))
        await until(lambda: engine.servers_status()[0].state == "quarantined")
        refused = await said(engine, call("echo", text="now"))
    assert (refused.status, refused.code) == ("error", "not_started")
    assert refused.metadata.attempts == 1


async def test_a_call_that_was_sent_and_cannot_be_sent_again_is_not_told_to_be_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.mcp._supervised_session._FIRST_WAIT_S", 0.001)
    fake = Fake(tmp_path, {"until_cancelled": True})
    async with Engine(servers=[fake.server(effects={"work": "idempotent"})]) as engine:
        result = await (await fails_from_now_on(engine, fake))
    assert (result.status, result.failure_class, result.code) == ("unknown", "exception", "tool_crashed")
    assert "got no answer to an earlier attempt, and was not started again" in result.text


async def test_concurrent_first_calls_start_one_process_and_two_engines_two(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER)
    server = fake.server()
    one, other = Engine(servers=[server]), Engine(servers=[server])
    await asyncio.gather(*(one.call(call("echo", text=str(number)), Scope(run=f"r{number}")) for number in range(8)))
    assert len(fake.pids) == 1
    await said(other, call("echo", text="x"))
    assert len(fake.pids) == 2
    await asyncio.gather(one.close(), other.close())


@pytest.mark.skipif(sys.platform != "linux", reason="looks in /proc")
async def test_a_server_gets_no_variables_of_this_process_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_ENGINE", "hunter2")
    fake = Fake(tmp_path, ANSWER)
    async with Engine(servers=[fake.server(env={"ITS_OWN": "yes"})]):
        assert fake.pids[0] in marked("ITS_OWN=yes")
        assert fake.pids[0] not in marked("hunter2")


async def test_closing_an_engine_ends_a_server_that_ignores_the_end_of_its_input(tmp_path: Path) -> None:
    fake = Fake(tmp_path, ANSWER, stays=True)
    async with Engine(servers=[fake.server(env={"FAKE_MARK": str(tmp_path)})]):
        (pid,) = fake.pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_program_that_is_given_with_its_arguments_in_one_text_is_told_apart_from_one_that_is_not_installed() -> None:
    async with Engine(servers=[McpServer(name="shop", command=("python3 shop.py",))]) as engine:
        await engine.start()
        (status,) = engine.servers_status()
    assert "give the program alone, and then its arguments" in status.problem
