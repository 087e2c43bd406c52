"""`callgate demo`: what it shows is verified, and a false claim makes the exit code 1."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from callgate.demo import DEMOS, verify_crash, verify_repair
from callgate.testing import Call, Item, ReceivedRequest, ScriptedServer
from tests.cli.shell import Ended, as_any_user, environment, shell
from tests.waiting import COMMAND_S

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the result of the main demonstration, which runs once."""
    place = tmp_path_factory.mktemp("demo")
    done = shell(place, "demo", "--json", TMPDIR=str(place))
    assert done.code == 0, done.out
    outcome: dict[str, Any] = done.json
    return outcome


def test_the_repair_demo_repairs_the_repository_and_verifies_its_claims(repaired: dict[str, Any]) -> None:
    assert (repaired["ok"], repaired["problems"]) == (True, [])
    assert len(repaired["proven"]) == 18
    ended = [(call["tool"], call["failure_class"] or call["status"]) for call in repaired["calls"]]
    assert ended[4:] == [
        ("run_command", "ok"),
        ("run_command", "denied"),
        ("order_history", "ok"),
        ("find_invoice", "ok"),
        ("search_result", "ok"),
        ("check_format", "timeout"),
        ("legacy_export", "exception"),
        ("edit_file", "truncated_arguments"),
        ("edit_file", "ok"),
        ("run_command", "ok"),
        ("run_command", "outcome_unknown"),
    ]


def test_the_journal_of_the_demo_can_be_read_with_the_log_commands(repaired: dict[str, Any], tmp_path: Path) -> None:
    journal = ("--journal", repaired["journal"])
    assert len(shell(tmp_path, "log", "list", "--json", *journal).lines) == len(repaired["calls"])
    assert shell(tmp_path, "log", "verify", *journal).code == 0
    assert "tests-stay (policy.toml:23)" in shell(tmp_path, "log", "show", "2/5", *journal).out


def change(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def an_effect_twice(root: Path) -> None:
    ledger = root / "ledger.jsonl"
    first = ledger.read_text(encoding="utf-8").splitlines()[0]
    ledger.write_text(f"{ledger.read_text(encoding='utf-8')}{first}\n", encoding="utf-8")


def an_effect_missing(root: Path) -> None:
    ledger = root / "ledger.jsonl"
    lines = [line for line in ledger.read_text(encoding="utf-8").splitlines() if json.loads(line)["tool"] != "edit_file"]
    ledger.write_text("\n".join(lines) + "\n", encoding="utf-8")


def a_process_left(root: Path) -> None:
    ledger = root / "ledger.jsonl"
    change(ledger, '"kind": "process"', '"kind": "left"')


def code_not_repaired(root: Path) -> None:
    change(root / "repaired/shop/prices.py", "// 100", "/ 100")


def other_tests(root: Path) -> None:
    change(root / "repaired/tests/test_prices.py", "10)", "9)")


def never_red(root: Path) -> None:
    connection = apsw.Connection(str(root / "journal.db"))
    connection.execute("UPDATE events SET body = CAST(replace(CAST(body AS TEXT), '\"exit_code\":1', '\"exit_code\":0') AS BLOB)")
    connection.close()


def a_result_never_told(root: Path) -> None:
    change(root / "requests.jsonl", '"tool_call_id": "call_b1"', '"tool_call_id": "call_x1"')


def not_put_back(root: Path) -> None:
    (root / "repository/README.md").chmod(0o600)


def left_behind(root: Path) -> None:
    (root / "repository/new.txt").touch()


def never_killed(root: Path) -> None:
    change(root / "killed.json", "-9", "0")


def never_resumed(root: Path) -> None:
    connection = apsw.Connection(str(root / "journal.db"))
    connection.execute("UPDATE events SET kind = 'run.other' WHERE kind = 'run.resumed'")
    connection.close()


def nothing_early(root: Path) -> None:
    connection = apsw.Connection(str(root / "journal.db"))
    sealed = "(SELECT min(position) FROM events WHERE kind = 'emission.sealed')"
    connection.execute(f"UPDATE events SET kind = 'call.late' WHERE kind = 'call.started' AND position < {sealed}")
    connection.close()


@pytest.mark.parametrize(
    ("sabotage", "claim"),
    [
        (a_result_never_told, "the model was told each result once"),
        (nothing_early, "a read started while the model still streamed"),
        (an_effect_twice, "every effect happened exactly once"),
        (an_effect_missing, "every effect happened exactly once"),
        (a_process_left, "the tool that hung in C"),
        (code_not_repaired, "one file was repaired"),
        (other_tests, "one file was repaired"),
        (never_red, "the tests were red"),
        (never_red, "the journal verifies"),
        (never_killed, "its engine was killed"),
        (never_resumed, "its engine was killed"),
        (an_effect_twice, "its engine was killed"),
        (not_put_back, "undo put everything back"),
        (left_behind, "undo put everything back"),
    ],
)
def test_verification_of_the_repair_demo_finds_contradicting_evidence(
    repaired: dict[str, Any], tmp_path: Path, sabotage: Callable[[Path], None], claim: str
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(repaired["folder"], root)
    assert all(finding.holds for finding in verify_repair(root))
    sabotage(root)
    assert any(finding.claim.startswith(claim) for finding in verify_repair(root) if not finding.holds)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demonstration of kills left its evidence; run once, as a person sees it."""
    place = tmp_path_factory.mktemp("crash")
    done = shell(place, "demo", "crash", TMPDIR=str(place))
    assert_shown(done)
    assert done.out.count("✓ ") == 15
    (folder,) = place.glob("callgate-demo-crash-*")
    return folder


def no_effect(root: Path) -> None:
    (root / "ledger.jsonl").write_text("", encoding="utf-8")


def not_by_a_kill(root: Path) -> None:
    change(root / "kills.json", "-9, 0", "1, 0")


def nothing_to_check(root: Path) -> None:
    connection = apsw.Connection(str(root / "journal.db"))
    said, vague = "Check whether", "Something went wrong with"
    connection.execute(f"UPDATE events SET body = CAST(replace(CAST(body AS TEXT), '{said}', '{vague}') AS BLOB)")
    connection.close()


def ended_twice(root: Path) -> None:
    connection = apsw.Connection(str(root / "journal.db"))
    connection.execute("UPDATE events SET kind = 'run.ended' WHERE kind = 'run.began' AND run = 'read'")
    connection.execute("UPDATE events SET body = CAST('{\"status\":\"completed\"}' AS BLOB) WHERE kind = 'run.ended'")
    connection.close()


def told_twice(root: Path) -> None:
    change(root / "requests.jsonl", '"role": "tool"', '"role": "user"')


@pytest.mark.parametrize(
    ("sabotage", "claim"),
    [
        (an_effect_twice, "no effect happened twice"),
        (no_effect, "each result is true"),
        (no_effect, "a charge had moved the money"),
        (not_by_a_kill, "every process died of kill -9"),
        (nothing_to_check, "each result is true"),
        (nothing_to_check, "the journal verifies"),
        (ended_twice, "every run ended once"),
        (told_twice, "the model was told each result once"),
    ],
)
def test_verification_of_the_crash_demo_finds_contradicting_evidence(
    crashed: Path, tmp_path: Path, sabotage: Callable[[Path], None], claim: str
) -> None:
    root = tmp_path / "copy"
    shutil.copytree(crashed, root)
    assert all(finding.holds for finding in verify_crash(root))
    sabotage(root)
    assert any(finding.claim.startswith(claim) for finding in verify_crash(root) if not finding.holds)


async def test_the_demo_gives_its_task_to_the_model_of_a_configured_server(tmp_path: Path) -> None:
    """The demo verifies only the final state, and that every effect went through the engine."""
    async with ScriptedServer(repairs) as server:
        done = await asyncio.to_thread(shell, tmp_path, "demo", "--json", TMPDIR=str(tmp_path), OPENAI_BASE_URL=server.url)
    assert (done.code, done.json["problems"]) == (0, [])
    assert "the tests are green: exit code 0" in done.json["proven"]
    assert [call["tool"] for call in done.json["calls"]] == ["read_file", "edit_file", "run_command"]


def task_of(received: ReceivedRequest) -> str:
    return str(next(message["content"] for message in json.loads(received.body)["messages"] if message["role"] == "user"))


def repairs(received: ReceivedRequest) -> list[Item]:
    """Play a model that repairs the bug at once; it reads the test command from its task."""
    old, new = "int(price_cents * quantity * (1 - discount_percent / 100))", "price_cents * quantity * (100 - discount_percent) // 100"
    task = task_of(received)
    turns: list[list[Item]] = [
        ["I look. ", Call("read_file", {"path": "shop/prices.py"})],
        ["I see.", Call("edit_file", {"path": "shop/prices.py", "old": old, "new": new})],
        [Call("run_command", {"command": json.loads(task[task.index("[") :])})],
        ["Repaired."],
    ]
    return turns[received.number]


async def test_the_demo_runs_unittest_if_pytest_is_missing(tmp_path: Path) -> None:
    code = "import sys; sys.modules['pytest'] = None; from callgate.cli import main; sys.exit(main(['demo', '--json']))"
    async with ScriptedServer(repairs) as server:
        places = environment(TMPDIR=str(tmp_path), OPENAI_BASE_URL=server.url)
        words = [sys.executable, "-c", code]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=COMMAND_S, env=places)
    assert done.returncode == 0, done.stdout
    assert "unittest" in task_of(server.requests[0])
    assert "the tests are green: exit code 0" in json.loads(done.stdout)["proven"]


async def test_the_demo_fails_if_the_effect_log_contains_a_forged_effect(tmp_path: Path) -> None:
    """While it runs, somebody writes an effect into the ledger that the engine knows nothing of."""

    def forges(received: ReceivedRequest) -> list[Item]:
        if received.number == 2:  # it has edited the file
            (ledger,) = tmp_path.glob("callgate-demo-repair-*/ledger.jsonl")
            entry = {"kind": "effect", "call": "forged/0/0", "tool": "edit_file", "pid": 1, "created": 0.0, "what": ""}
            with ledger.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        return repairs(received)

    async with ScriptedServer(forges) as server:
        done = await asyncio.to_thread(shell, tmp_path, "demo", TMPDIR=str(tmp_path), OPENAI_BASE_URL=server.url)
    assert done.code == 1
    assert "✗ every effect happened exactly once" in done.out
    assert "failed" in done.err


async def test_the_demo_fails_if_the_model_does_not_repair_the_code(tmp_path: Path) -> None:
    async with ScriptedServer(["It looks fine to me."]) as server:
        done = await asyncio.to_thread(shell, tmp_path, "demo", "--json", TMPDIR=str(tmp_path), OPENAI_BASE_URL=server.url)
    assert (done.code, done.json["problems"]) == (1, ["the tests are green: exit code 1"])


@pytest.mark.parametrize("name", [name for name in DEMOS if name not in ("repair", "crash", "folder")])
def test_each_demo_verifies_its_claims(tmp_path: Path, name: str) -> None:
    assert_shown(shell(tmp_path, "demo", name, TMPDIR=str(tmp_path)))


def assert_shown(done: Ended) -> None:
    assert done.code == 0, done.out
    for words in ("✓", "journal", "callgate log list --journal"):
        assert words in done.out


def test_the_folder_demo_only_reads_the_given_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "large.txt").write_text("one more line\n" * 2_000, encoding="utf-8")
    before = tree_hash(folder)
    done = shell(elsewhere, "demo", "--dir", str(folder), "--json", TMPDIR=str(elsewhere))
    assert (done.code, done.json["problems"]) == (0, [])
    assert {call["tool"] for call in done.json["calls"]} == {"list_files", "glob_files", "grep_files", "read_file", "search_result"}
    assert tree_hash(folder) == before


def test_the_folder_demo_reports_an_unlistable_folder_without_raising(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o311)
    done = as_any_user(folder, "demo", "--dir", str(closed), "--json")
    assert (done.code, done.json["problems"]) == (0, [])
    assert {call["status"] for call in done.json["calls"]} == {"error"}


def tree_hash(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        digest.update(f"{path.relative_to(root)} {path.lstat().st_mode} {path.lstat().st_mtime_ns}".encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def test_demos_are_listed_by_name(tmp_path: Path) -> None:
    assert [entry["name"] for entry in shell(tmp_path, "demo", "--list", "--json").json] == list(DEMOS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nothing",), "The demonstrations are: repair, stop, crash, cut-off, early, side-by-side, large, undo, replay, eras, folder"),
        (("folder",), "callgate demo --dir PATH"),
        (("--dir", "nowhere"), "nowhere is not a folder"),
        (("stop", "--dir", "."), "makes its own folder"),
    ],
)
def test_a_demo_that_cannot_run_explains_why(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    done = shell(tmp_path, "demo", *words)
    assert done.code == 2
    assert told in done.err
