"""`callgate call`: one call through the whole route, from a shell."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from callgate import SqliteJournal
from tests.cli.shell import command, environment, shell
from tests.waiting import COMMAND_S

SITE = '''
from callgate import Image, tool

@tool(requires_approval=True)
def publish(page: str) -> str:
    """Publish a page."""
    return f"{page} is public"

@tool
def logo() -> Image:
    """Return the logo."""
    return Image(data="UE5H", mime_type="image/png")
'''
REFUND = ("call", "refund", "--tools", "crm.py")


def paid(folder: Path) -> list[str]:
    ledger = folder / "paid.txt"
    return ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []


def test_call_writes_the_result_to_stdout_and_the_summary_to_stderr(folder: Path) -> None:
    done = shell(folder, *REFUND, "order=A7", "cents=12")
    assert (done.code, done.out) == (0, "paid 12 for A7\n")
    assert done.err.startswith("ok  refund\n")
    assert "coerced: cents" in done.err
    assert "journal .callgate/journal.db" in done.err
    assert "callgate log show cli-" in done.err


def test_json_output_contains_the_complete_result(folder: Path) -> None:
    done = shell(folder, *REFUND, '{"order": "A7", "cents": 12}', "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["status"] == "ok"
    assert done.json["structured"] == "paid 12 for A7"
    assert done.json["metadata"]["attempts"] == 1


@pytest.mark.parametrize("words", [("order=5", "cents:=12"), ("@args.json",), ("-",)], ids=["words", "file", "standard input"])
def test_arguments_are_accepted_as_words_from_a_file_or_from_stdin(folder: Path, words: tuple[str, ...]) -> None:
    text = '{"order": "5", "cents": 12}'
    (folder / "args.json").write_text(text, encoding="utf-8")
    assert shell(folder, *REFUND, *words, stdin=text).code == 0
    assert paid(folder) == ["5 12"]


def test_a_call_with_the_same_run_and_key_runs_once_across_processes(folder: Path) -> None:
    words = (*REFUND, "order=A7", "cents=12", "--run", "case", "--key", "k", "--json")
    first, second = shell(folder, *words).json, shell(folder, *words).json
    assert (first["structured"], second["structured"]) == ("paid 12 for A7", "paid 12 for A7")
    assert second["metadata"]["replayed"] is True
    assert paid(folder) == ["A7 12"]


@pytest.mark.process
def test_a_shell_command_that_failed_is_shown_with_its_exit_code(folder: Path) -> None:
    done = shell(folder, "call", "run_command", "command=exit 3")
    assert "ok  run_command  exit code 3" in done.err
    assert "exit code" not in shell(folder, "call", "run_command", "command=exit 0").err


def test_piped_tool_text_is_written_unescaped(folder: Path) -> None:
    assert shell(folder, "call", "odd_text", "--tools", "crm.py").out == "a\x1b[31mb\u202ec\U000e0041\n"


def test_a_call_cannot_write_the_rules_that_judge_it(folder: Path) -> None:
    (folder / "allow.toml").write_text('default = "allow"\n')
    done = shell(folder, "call", "write_file", "path=./allow.toml", "content=x", "--policy", "allow.toml")
    assert (done.code, (folder / "allow.toml").read_text()) == (1, 'default = "allow"\n')
    assert "configures the command that makes this call" in done.out
    assert shell(folder, "call", "write_file", "path=new.txt", "content=x", "--policy", "allow.toml").code == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("call", "broken", "--tools", "crm.py"), 1, "no such thing"),
        (("call", "refnd", "--tools", "crm.py"), 1, "refund"),
        ((*REFUND, '{"order": "A7", "cents": 1'), 1, "cut off"),
        ((*REFUND, '{"order": "A7", "cents": 1,}'), 1, "not valid JSON"),
        ((*REFUND, '{"order": "A7", "cents": true}'), 1, "expected an integer"),
        (("call", "odd_text", "--tools", "crm.py", "--policy", "rules.toml"), 1, "no-odd-text (rules.toml:8)"),
        ((*REFUND, "order=A7", "cents=1", "--policy", "rules.toml"), 4, "Really pay?"),
    ],
    ids=["raises", "unknown tool", "cut off", "malformed", "wrong type", "denied", "asked"],
)
def test_an_unsuccessful_call_reports_the_reason_and_has_no_effect(folder: Path, words: tuple[str, ...], code: int, told: str) -> None:
    done = shell(folder, *words)
    assert done.code == code
    assert told in done.out + done.err
    assert paid(folder) == []


def test_malformed_arguments_are_repaired_with_the_repair_option(folder: Path) -> None:
    done = shell(folder, *REFUND, "{'order': 'A7', 'cents': 1,}", "--repair")
    assert done.code == 0
    assert "json_repaired" in done.err
    assert paid(folder) == ["A7 1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("call", "refund", "order"), "'order' is not an argument"),
        (("call", "refund", "a=1", "a=2"), "'a' is given twice"),
        (("call", "refund", "a:=x"), "not followed by JSON"),
        (("call", "refund", "@none.json"), "none.json cannot be read"),
        (("call", "refund", "--tools", "none.py"), "There is no file none.py"),
        (("call", "refund", "--tools", "none:x"), "There is no module 'none'"),
        (("call", "refund", "--tools", "crm.py:nothing"), "Tools there: refund, odd_text, broken, wait"),
        (("call", "refund", "--tools", "json"), "holds no tools"),
        (("call", "refund", "--tools", "wrong.py"), "SyntaxError"),
        (("call", "refund", "--tools", "leaving.py"), "cannot be loaded: SystemExit: 9"),
        (("call", "refund", "--policy", "none.toml"), "none.toml cannot be read"),
        (("call", "refund", "--policy", "crm.py"), "not valid TOML"),
        (("call", "refund", "--workspace", "nowhere"), "nowhere is not a folder"),
        (("call", "refund", "--journal", "crm.py"), "not a database"),
        (("call", "refund", "--journal", "/proc/none/j.db"), "Give another file with --journal"),
        (("call", "refund", "--timeout", "0"), "--timeout is 0"),
        (("call", "refund", "--timeout", "soon"), "soon"),
        (("call",), "TOOL"),
        (("cal", "refund"), "cal"),
        (("call", "refund", "--nonsense"), "--nonsense"),
    ],
)
def test_wrong_usage_is_explained_and_runs_nothing(folder: Path, words: tuple[str, ...], told: str) -> None:
    (folder / "wrong.py").write_text("def (", encoding="utf-8")
    (folder / "leaving.py").write_text("raise SystemExit(9)", encoding="utf-8")
    done = shell(folder, *words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err


async def test_a_call_in_a_run_held_by_another_process_is_refused(folder: Path) -> None:
    journal = SqliteJournal(folder / "busy.db")
    await journal.acquire_lease("case")
    done = shell(folder, *REFUND, "order=A7", "cents=1", "--journal", "busy.db", "--run", "case")
    assert (done.code, paid(folder)) == (1, [])
    assert f"worked on by process {os.getpid()}" in " ".join((done.out + done.err).split())
    assert shell(folder, *REFUND, "order=A7", "cents=1", "--journal", "busy.db").code == 0
    assert paid(folder) == ["A7 1"]
    await journal.close()


def test_a_call_with_an_in_memory_journal_leaves_no_files(folder: Path) -> None:
    done = shell(folder, "call", "odd_text", "--tools", "crm.py", "--journal", ":memory:")
    assert done.code == 0
    assert not (folder / ".callgate").exists()


@pytest.mark.process
def test_an_unknown_outcome_has_its_own_exit_code(folder: Path) -> None:
    for timeout in ("0.5", "5", "75"):
        done = shell(folder, "call", "wait", "--tools", "crm.py", "--timeout", timeout, "--json")
        if done.json["code"] != "not_started":  # the timeout passed before the worker process had started
            break
    assert done.code == 3
    assert done.json["status"] == "unknown"


@pytest.mark.process
def test_output_is_shown_while_the_tool_runs_and_ctrl_c_ends_the_tool(folder: Path) -> None:
    words = command(("call", "wait", "--tools", "crm.py"))
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stderr is not None
        begun = next(line for line in running.stderr if line.startswith("begun"))
        assert "\\x1b[2J" in begun
        pid = int(begun.split()[-1])
        assert psutil.pid_exists(pid)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=COMMAND_S)
    assert running.returncode == 130
    assert "It may have taken effect in part" in err
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(("answer", "code", "effects"), [("y", 0, ["A7 1"]), ("n", 1, [])])
def test_a_call_asks_for_approval_at_the_terminal(folder: Path, answer: str, code: int, effects: list[str]) -> None:
    ours, theirs = pty.openpty()
    words = command((*REFUND, "order=A7", "cents=1", "--policy", "rules.toml"))
    with subprocess.Popen(words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment()) as running:
        os.close(theirs)
        read_until(ours, b"Run it? [y/N]")
        os.write(ours, answer.encode() + b"\n")
        read_until(ours, b"callgate log show")
        assert running.wait(timeout=COMMAND_S) == code
    os.close(ours)
    assert paid(folder) == effects


@pytest.mark.parametrize(("answer", "code", "out"), [("y", 0, "pic.png is public"), ("n", 1, "said no")])
def test_a_tool_that_requires_approval_asks_at_the_terminal(tmp_path: Path, answer: str, code: int, out: str) -> None:
    (tmp_path / "pages.py").write_text(SITE, encoding="utf-8")
    ours, theirs = pty.openpty()
    words = command(("call", "publish", "--tools", "pages.py", "page=pic.png"))
    with subprocess.Popen(words, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment()) as running:
        os.close(theirs)
        assert b"Run publish with" in read_until(ours, b"Run it? [y/N]")
        os.write(ours, answer.encode() + b"\n")
        assert out.encode() in read_until(ours, b"callgate log show")
        assert running.wait(timeout=COMMAND_S) == code
    os.close(ours)


def test_a_tool_that_requires_approval_does_not_run_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "pages.py").write_text(SITE, encoding="utf-8")
    done = shell(tmp_path, "call", "publish", "--tools", "pages.py", "page=news")
    assert (done.code, done.out) == (4, "")
    assert 'Run publish with {"page":"news"}?' in done.err


def test_an_image_is_written_as_its_type_also_from_the_record(tmp_path: Path) -> None:
    (tmp_path / "pages.py").write_text(SITE, encoding="utf-8")
    done = shell(tmp_path, "call", "logo", "--tools", "pages.py", "--run", "r")
    assert (done.code, done.out) == (0, "[image/png]\n")
    assert shell(tmp_path, "log", "result", "r").out == "[image/png]\n"


def read_until(terminal: int, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        seen += os.read(terminal, 4096)
    return seen


@pytest.mark.parametrize("timeout", ["inf", "nan", "-1", "0", "1e400", "soon"])
def test_an_invalid_timeout_is_wrong_usage(folder: Path, timeout: str) -> None:
    done = shell(folder, *REFUND, "order=A7", "cents=1", "--timeout", timeout)
    assert done.code == 2
    assert "--timeout" in done.err
    assert paid(folder) == []


@pytest.mark.parametrize("option", ["tool", "--run", "--key", "--actor", "--principal", "--journal"])
def test_a_name_that_is_not_utf_8_is_refused_before_anything_runs(folder: Path, option: str) -> None:
    odd = b"\xff\xfe".decode("utf-8", "surrogateescape")
    words = ("call", odd) if option == "tool" else (*REFUND, "order=A7", "cents=1", option, odd)
    done = shell(folder, *words)
    assert done.code == 2
    assert f"The {option.removeprefix('--')} '\\udcff\\udcfe' is not valid UTF-8" in done.err
    assert paid(folder) == []


def redirected(folder: Path, where: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = shlex.join(command((*REFUND, "order=A7", "cents=1", *more)))
    done = subprocess.run(
        ["sh", "-c", f"{words} {where}"], cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, env=environment()
    )
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_a_call_does_not_run_if_stdout_is_closed(folder: Path, more: tuple[str, ...]) -> None:
    done = redirected(folder, ">&-", *more)
    assert done.returncode == 2
    assert "Standard output is closed" in done.stderr
    assert paid(folder) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_an_unwritable_result_fails_and_names_the_log_command(folder: Path, more: tuple[str, ...]) -> None:
    done = redirected(folder, ">/dev/full", *more)
    assert done.returncode == 1
    assert "could not be written: No space left on device" in done.stderr
    assert "callgate log list" in done.stderr
    assert paid(folder) == ["A7 1"]
    assert shell(folder, "log", "list", "--json").json["status"] == "ok"


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", "<&-"])
def test_the_result_is_written_without_a_usable_stderr_or_stdin(folder: Path, where: str) -> None:
    done = redirected(folder, where)
    assert (done.returncode, done.stdout) == (0, "paid 1 for A7\n")


def test_a_closed_output_pipe_is_not_a_failure(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            command((*REFUND, "order=A7", "cents=1")),
            cwd=folder,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=COMMAND_S,
            env=environment(),
        )
    finally:
        os.close(writing)
    assert (ended.returncode, b"Traceback" in ended.stderr, b"Exception" in ended.stderr) == (0, False, False)


def test_a_call_says_that_its_journal_is_new_if_its_name_may_be_mistyped(folder: Path) -> None:
    words = ("call", "list_files", "--key", "once")
    assert "is a new journal: there was none" not in shell(folder, *words).err
    assert "typo.db is a new journal: there was none" in shell(folder, *words, "--journal", "typo.db").err
    assert "is a new journal" not in shell(folder, *words, "--journal", "typo.db").err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_lost_list_is_not_said_to_be_in_the_log(folder: Path) -> None:
    words = shlex.join(command(("tools", "list")))
    line = ["sh", "-c", f"{words} >/dev/full"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, env=environment())
    assert (done.returncode, "The output could not be written" in done.stderr, "log list" in done.stderr) == (1, True, False)
