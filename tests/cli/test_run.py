"""`callgate run`: the real command with a provider on the loopback interface, used by a person or a program."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from callgate.models.model_events import Usage
from callgate.testing import Call, Drop, Fail, Item, Pause, Reply, ScriptedServer
from callgate.testing.scripted_server import Script
from tests.cli.run_process import CRM, DONE, PAYS, TASK, paid, ran, running
from tests.cli.runs import ended
from tests.cli.shell import command, environment, shell
from tests.waiting import COMMAND_S

REFUSED = Reply(turn=Fail("invalid_api_key", "Incorrect API key provided."), status=401)
LOOK: list[Item] = [
    "I look. ",
    Call("odd_text"),
    Call("refund", {"order": "A7", "cents": "12"}),
    Usage(input_tokens=1200, output_tokens=34),
]
WAITS: list[Item] = ["I wait.", Call("wait", {"seconds": 600})]


async def test_a_run_shows_its_text_calls_and_summary(folder: Path) -> None:
    done = await ran(folder, [LOOK, DONE], *CRM, "--yes")
    assert (done.code, done.out) == (0, "I look. \nPaid.")
    assert paid(folder) == ["A7 12"]
    assert re.search(r"✓ odd_text  [\d,]+ ms", done.err)
    assert re.search(r"✓ refund order=A7 cents=12  [\d,]+ ms", done.err)
    assert re.search(r"completed · 1 round · 2 calls · 2,500 tokens in, 36 out · [\d.]+ s", done.err)
    assert "record  .callgate/journal.db" in done.err
    run = re.search(r"callgate log show (run-\w+)", done.err)
    assert run is not None
    assert "call.completed" in shell(folder, "log", "show", run[1]).out


async def test_piped_output_has_no_colours_and_no_spinners(folder: Path) -> None:
    done = await ran(folder, [LOOK, DONE], *CRM, "--yes", COLUMNS="40", FORCE_COLOR="")
    assert "\x1b" not in done.out + done.err
    assert "\r" not in done.out + done.err
    assert max(len(line) for line in done.err.splitlines() if line.startswith(("→", "✓"))) <= 40


async def test_json_output_is_one_event_per_line_in_order(folder: Path) -> None:
    done = await ran(folder, [LOOK, DONE], *CRM, "--yes", "--json")
    assert (done.code, done.err) == (0, "")
    names = [line["event"] for line in done.lines]
    assert names[:2] == ["run_began", "message_began"]
    assert names[-1] == "run_ended"
    assert "".join(line["text"] for line in done.lines if line["event"] == "text") == "I look. Paid."
    ended = {line["tool"]: line for line in done.lines if line["event"] == "call_ended"}
    assert {tool: line["status"] for tool, line in ended.items()} == {"odd_text": "ok", "refund": "ok"}
    assert ended["refund"]["text"] == "paid 12 for A7"
    last = done.lines[-1]
    assert (last["status"], last["text"], last["calls"], last["input_tokens"]) == ("completed", "Paid.", 2, 2500)


async def test_json_output_contains_no_control_or_invisible_characters(folder: Path) -> None:
    """Beyond ASCII, too, there are characters that control a terminal or are invisible."""
    said = "\x9b2Jred\u202edesrever\U000e0041 and Grüße"
    done = await ran(folder, [said], "--json")
    assert done.lines[-1]["text"] == said
    assert all(character.isprintable() for character in done.out.replace("\n", ""))
    assert "Grüße" in done.out


async def test_a_call_that_started_early_is_marked(folder: Path) -> None:
    """The provider sends the rest of its message only after the call has started."""
    begun = asyncio.Event()
    turns: list[Script] = [["I look. ", Call("list_files", {"path": "."}), Pause(begun), "And on."], DONE]
    async with running(folder, turns) as run:
        await run.line("→ list_files path=.  early")
        begun.set()
        code, _, err = await run.end()
    assert code == 0
    assert re.search(r"✓ list_files path=\.  [\d,]+ ms  early", err)


async def test_piped_text_is_exactly_the_text_of_the_model(folder: Path) -> None:
    """Output to a pipe is not wrapped, escaped or changed in any other way. A line break separates messages."""
    first = "Wide " * 60 + "\r\n\n\t[bold]x[/bold] :smile: \x1b[31m\u200d\u202e\r"
    last = "# Title\n\n" + "y" * 300 + "\n\n"
    async with running(folder, [[*first, Call("list_files", {"path": "."})], [last]], COLUMNS="40") as run:
        out, _ = await asyncio.wait_for(run.process.communicate(), COMMAND_S)
    assert out == f"{first}\n{last}".encode()


async def test_piped_text_gets_no_trailing_newline(folder: Path) -> None:
    assert (await ran(folder, ["42"])).out == "42"


async def test_control_characters_in_call_names_and_arguments_are_escaped(folder: Path) -> None:
    turns: list[Script] = [[Call("odd\x1b]0;x\x07_text", '{"\x1b[2J": 1}')], [Call("odd_text"), "\x9bd"]]
    done = await ran(folder, [*turns, "e"], *CRM)
    assert "odd" in done.err
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", done.err)


async def test_a_failed_call_shows_the_reason_and_the_run_continues(folder: Path) -> None:
    done = await ran(folder, [[Call("broken")], "It is broken."], *CRM, "--yes")
    assert done.code == 0
    assert re.search(r"✗ broken  [\d,]+ ms  exception\n.*no such thing", done.err)
    assert "1 call (1 failed)" in done.err


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"command": "exit 3"}, "exit code 3"),
        ({"command": "kill -KILL $$"}, "killed by SIGKILL"),
        ({"command": "sleep 600", "timeout_s": 0.3}, "timed out after 0.3 s"),
        ({"command": "head -c 1500000 /dev/zero; exit 4"}, "exit code 4"),
    ],
    ids=["exit code", "signal", "timeout", "large output"],
)
async def test_a_failed_shell_command_is_shown_with_its_exit_code_signal_or_timeout(
    folder: Path, arguments: dict[str, object], told: str
) -> None:
    """The call has the status `ok`, because its result reports how the command ended."""
    turns: list[Script] = [[Call("run_command", arguments)], "I see."]
    done = await ran(folder, turns, "--yes")
    assert re.search(rf"^! run_command .*  [\d,]+ ms  {told}$", done.err, re.MULTILINE)
    assert "✓" not in done.err
    (listed,) = shell(folder, "log", "list", "--json").lines
    assert (listed["status"], listed["command_end"]) == ("ok", told)
    assert told in shell(folder, "log", "list").out
    events = (await ran(folder, turns, "--yes", "--json")).lines
    assert [(event["status"], event["command_end"]) for event in events if event["event"] == "call_ended"] == [("ok", told)]


async def test_calls_refused_by_the_loop_are_counted_separately_in_the_summary(folder: Path) -> None:
    """A number of failed calls greater than the number of calls would look like a counting error."""
    done = await ran(folder, [[Call("odd_text")]] * 7, *CRM)
    assert "7 rounds · 4 calls, 3 refused ·" in done.err


@pytest.mark.process
async def test_ctrl_c_lets_the_running_call_finish_and_starts_no_more_calls(folder: Path) -> None:
    (folder / "short.py").write_text(SHORT, encoding="utf-8")
    turns: list[Script] = [["I work.", Call("work")], "Never asked."]
    async with running(folder, turns, "--tools", "short.py", "--yes") as run:
        await run.line("begun")
        run.process.send_signal(signal.SIGINT)
        await run.line("Stopping")
        (folder / "go").touch()
        code, out, err = await run.end()
        assert len(run.server.requests) == 1
    assert (code, out) == (130, "I work.")
    assert "stopped · 0 rounds" in err or "stopped · 1 round" in err
    assert (folder / "done").exists()


SHORT = '''
import os, time
from callgate import ToolContext, tool

@tool(runner="process")
def work(context: ToolContext) -> str:
    """Work until told to go."""
    context.progress("begun\\n")
    while not os.path.exists("go"):
        time.sleep(0.01)
    open("done", "w").close()
    return "done"
'''


@pytest.mark.process
async def test_a_second_ctrl_c_kills_the_running_call(folder: Path) -> None:
    async with running(folder, [WAITS], *CRM, "--yes") as run:
        pid = int((await run.line("begun")).split()[-1])
        assert psutil.pid_exists(pid)
        run.process.send_signal(signal.SIGINT)
        await run.line("Stopping")
        run.process.send_signal(signal.SIGINT)
        await run.line("Killed")
        code, _, err = await run.end()
    assert code == 130
    assert "■ wait seconds=600" in err
    assert not psutil.pid_exists(pid)


async def test_ctrl_c_ends_a_model_request_at_once(folder: Path) -> None:
    async with running(folder, [["I think", Pause(asyncio.Event())]], *CRM) as run:
        assert run.process.stdout is not None
        await run.process.stdout.readexactly(len("I think"))
        run.process.send_signal(signal.SIGINT)
        code, _, err = await run.end()
        await asyncio.wait_for(run.server.requests[0].gone.wait(), COMMAND_S)
    assert code == 130
    assert "stopped at the terminal" in err


async def test_without_a_terminal_a_question_suspends_the_run_and_shows_how_to_answer(folder: Path) -> None:
    done = await ran(folder, [PAYS], *CRM)
    assert (done.code, paid(folder)) == (4, [])
    assert "waiting · 1 round" in done.err
    assert re.search(r"callgate resume (run-\S+) --allow \1/0/0 --model any --base-url \S+ --tools crm.py\n", done.err)
    machine = await ran(folder, [PAYS], *CRM, "--json")
    (question,) = [line for line in machine.lines if line["event"] == "question"]
    assert (machine.code, question["tool"], question["arguments"]) == (4, "refund", {"order": "A7", "cents": 12})


async def test_a_question_without_a_kept_journal_suggests_running_again(folder: Path) -> None:
    done = await ran(folder, [PAYS], *CRM, "--record", ":memory:")
    assert "Answer at a terminal, or with rules:\n  callgate run 'Do it.'" in done.err


async def test_the_model_cannot_write_the_files_that_configure_its_run(folder: Path) -> None:
    """Else it could allow itself in this run what the rules deny in the next one, or start another server then."""
    (folder / "allow.toml").write_text('default = "allow"\n')
    (folder / ".mcp.json").write_text('{"mcpServers": {}}')
    (folder / "link").symlink_to("allow.toml")
    (folder / "notes.txt").write_text("old")
    files = ("allow.toml", "./link", ".mcp.json", ".mcp.accepted.json", "new.txt")
    writes: list[Item] = [Call("write_file", {"path": path, "content": "x"}) for path in files]
    edits: list[Item] = [Call("edit_file", {"path": path, "old": "l", "new": "x"}) for path in ("allow.toml", "notes.txt")]
    done = await ran(folder, [writes, edits, DONE], "--rules", "allow.toml", "--mcp", ".mcp.json", "--json")
    calls = [line for line in done.lines if line["event"] == "call_ended"]
    assert [line["status"] for line in calls] == ["error"] * 4 + ["ok", "error", "ok"]
    assert (folder / "allow.toml").read_text() == 'default = "allow"\n'
    assert not (folder / ".mcp.accepted.json").exists()
    assert (folder / "new.txt").read_text() == "x"


async def test_given_rules_replace_the_default_policy(folder: Path) -> None:
    done = await ran(folder, [[Call("odd_text"), Call("broken")], "Denied."], *CRM, "--rules", "rules.toml")
    assert done.code == 0
    assert re.search(r"✗ odd_text  denied\n", done.err)
    rules = [line["rule"] for line in shell(folder, "log", "list", "--json").lines]
    assert rules == ["no-odd-text (rules.toml:8)", "default (rules.toml)"]


async def test_calls_with_effects_need_approval_by_default(folder: Path) -> None:
    done = await ran(folder, [[Call("fetch_url", {"url": "https://example.com/"})]])
    assert (done.code, "Ask the network for this address?" in done.err) == (4, True)


async def test_an_exhausted_budget_has_its_own_exit_code(folder: Path) -> None:
    done = await ran(folder, [[Call("odd_text")], [Call("odd_text")]], *CRM, "--max-iterations", "1")
    assert done.code == 5
    assert "stopped · 1 round" in done.err


async def test_the_task_and_the_system_prompt_can_be_read_from_stdin_and_a_file(folder: Path) -> None:
    (folder / "system.txt").write_text("Be brief.", encoding="utf-8")
    (folder / "task.txt").write_text("Count.", encoding="utf-8")
    async with ScriptedServer(["One."]) as server:
        with (folder / "task.txt").open() as task:
            process = await asyncio.create_subprocess_exec(
                *command(("run", "-", "--base-url", server.url, "--system", "@system.txt")),
                cwd=folder,
                stdin=task,
                stdout=asyncio.subprocess.PIPE,
                env=environment(CALLGATE_MODEL="qwen3:8b"),
            )
            out, _ = await process.communicate()
        sent: Any = server.requests[0].body_json
    assert (process.returncode, out) == (0, b"One.")
    assert [message["content"] for message in sent["messages"]] == ["Be brief.", "Count."]
    assert sent["model"] == "qwen3:8b"


async def test_tools_are_described_as_text_to_a_model_without_native_tools(folder: Path) -> None:
    async with running(folder, ["Nothing to do."], *CRM, "--text-calls", "always") as run:
        code, _, _ = await run.end()
        sent: Any = run.server.requests[0].body_json
    assert code == 0
    assert "tools" not in sent
    assert "odd_text" in json.dumps(sent["messages"])


async def test_an_answer_cut_off_by_a_lost_connection_fails_the_run_and_starts_no_call(folder: Path) -> None:
    done = await ran(folder, [["Half an ans", Call("refund", {"order": "A7", "cents": 1}), Drop()]], *CRM, "--yes")
    assert (done.code, done.out) == (1, "Half an ans")
    assert "was cut off" in done.err
    assert paid(folder) == []


async def test_a_refused_api_key_is_reported_with_the_next_step_and_never_printed(folder: Path) -> None:
    async with ScriptedServer([REFUSED]) as server:
        words = ("run", "Hi.", "--model", "openai:any", "--base-url", server.url)
        done = await asyncio.to_thread(shell, folder, *words, OPENAI_API_KEY="sk-test-000")
    assert (done.code, done.out) == (1, "")
    assert "answered 401" in done.err
    assert "Check the key in OPENAI_API_KEY" in done.err
    assert "sk-test-000" not in done.err


def test_an_unreachable_server_is_reported_with_its_address(folder: Path) -> None:
    done = shell(folder, *TASK, "--base-url", "http://127.0.0.1:9/v1")
    assert done.code == 1
    assert "could not be reached at http://127.0.0.1:9" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run",), "TASK"),
        (("run", " ", "--model", "openai:x"), "The task is empty"),
        (("run", "x"), "No model is named"),
        (("run", "x", "--model", "nobody:x"), "No provider is called 'nobody'"),
        (("run", "x", "--model", "openai"), "does not name a model"),
        (("run", "x", "--model", "openai:x"), "Set OPENAI_API_KEY"),
        (("run", "x", "--model", "openai-compatible:x"), "has no default URL"),
        ((*TASK, "--base-url", "http://x", "--tools", "none.py"), "There is no file none.py"),
        ((*TASK, "--base-url", "http://x", "--workspace", "nowhere"), "nowhere is not a folder"),
        ((*TASK, "--base-url", "http://x", "--rules", "none.toml"), "none.toml cannot be read"),
        ((*TASK, "--base-url", "http://x", "--record", "/proc/none/j.db"), "cannot be used as a journal"),
        ((*TASK, "--base-url", "http://x", "--system", "@none.txt"), "The file none.txt with the system prompt cannot be read"),
        ((*TASK, "--base-url", "http://x", "--max-iterations", "-1"), "--max-iterations is -1"),
        ((*TASK, "--base-url", "http://x", "--preset", "wild"), "wild"),
        ((*TASK, "--base-url", "http://x", "--chat"), "--chat needs a person at a terminal"),
        ((*TASK, "--base-url", "http://x", "--text-calls", "often"), "often"),
    ],
)
def test_wrong_usage_of_run_is_explained(folder: Path, words: tuple[str, ...], told: str) -> None:
    done = shell(folder, *words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


@pytest.mark.parametrize(
    ("words", "variables", "why"),
    [
        (("--model", "any", "--base-url", "ftp://files.example/v1"), {}, "cannot use ftp://files.example"),
        (("--model", "any", "--base-url", b"http://\xff".decode(errors="surrogateescape")), {}, "is not valid UTF-8"),
        (("--model", "any", "--base-url", "http://"), {}, "begins with http:// or https:// and names a host"),
        (("--model", "openai:m"), {"OPENAI_BASE_URL": "ftp://u:secret@files.example", "OPENAI_API_KEY": "k"}, "in OPENAI_BASE_URL"),
    ],
)
def test_an_invalid_base_url_is_wrong_usage(folder: Path, words: tuple[str, ...], variables: dict[str, str], why: str) -> None:
    done = shell(folder, "run", "Look.", *words, **variables)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert why in done.err
    assert "secret" not in done.err
    assert not (folder / ".callgate").exists()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("call", "list_files"), "TOOL_EXECUTION_TIMEOUT_MS"),
        (("run", "Look.", "--model", "any", "--base-url", "http://127.0.0.1:9"), "TOOL_EXECUTION_TIMEOUT_MS"),
        (("run", "Look.", "--model", "any", "--base-url", "http://127.0.0.1:9"), "STREAM_SDK_CALL_TIMEOUT_MS"),
    ],
    ids=["call", "run", "silence"],
)
def test_an_invalid_timeout_in_the_environment_is_refused_before_a_journal_is_made(folder: Path, words: tuple[str, ...], name: str) -> None:
    done = shell(folder, *words, **{name: "soon"})
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert f"{name} is 'soon'; it must be a whole number of milliseconds up to 2147483647" in done.err
    assert not (folder / ".callgate").exists()


@pytest.mark.parametrize("journal", [(), ("--record", ":memory:")], ids=["resume", "run again"])
@pytest.mark.parametrize("scheme", ["http://", ""], ids=["with a scheme", "without"])
async def test_the_suggested_resume_command_contains_no_credentials_of_the_base_url(
    folder: Path, scheme: str, journal: tuple[str, ...]
) -> None:
    """The command appears on the screen and in logs; the user adds the credentials again."""
    async with ScriptedServer([PAYS]) as server:
        place = server.url.removeprefix("http://")
        url = f"{scheme}bob:s3cret@{place}?api_key=k3y"
        done = await ended(folder, *TASK, "--base-url", url, *CRM, *journal)
    assert done.code == 4, done.err
    assert f"--base-url {scheme}{place}" in done.err
    assert not [word for word in ("bob", "s3cret", "k3y") if word in done.err]


async def test_a_run_whose_end_is_not_recorded_does_not_offer_to_resume(folder: Path) -> None:
    tool = (
        'import os\nfrom callgate import tool\n\n@tool\ndef cut() -> str:\n    "Cut."\n'
        '    os.truncate(".callgate/journal.db", 0)\n    return ""\n'
    )
    (folder / "cut.py").write_text(tool, encoding="utf-8")
    done = await ran(folder, [[Call("cut", {})], DONE], "--tools", "cut.py", "--yes")
    assert (done.code, "the end of this run is not on record" in done.err) == (1, True), done.err
    assert "can go on" not in done.err
