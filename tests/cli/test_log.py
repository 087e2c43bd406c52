"""`callgate log`: commands that read the journal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, tool
from callgate.cli._command_options import LogOptions
from callgate.cli._show_log import follow
from tests.cli.shell import as_any_user, command, environment, shell, write_tools
from tests.waiting import COMMAND_S


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logged")
    write_tools(folder)
    for words in (("refund", "order=A7", "cents=1"), ("refund", "order=A8", "cents=1"), ("odd_text",)):
        policy = () if "order=A7" in words else ("--policy", "rules.toml")
        shell(folder, "call", *words, "--tools", "crm.py", "--run", words[-2] if len(words) > 1 else "odd", *policy)
    return folder


@pytest.fixture
def logged(first: Path, tmp_path: Path) -> Path:
    """Return a folder with three calls: one that ran, one that needs approval, one that was denied."""
    return Path(shutil.copytree(first, tmp_path / "logged"))


def test_calls_are_listed_newest_last_with_status_and_rule(logged: Path) -> None:
    calls = shell(logged, "log", "list", "--json").lines
    assert [(call["tool"], call["status"]) for call in calls] == [("refund", "ok"), ("refund", "asked"), ("odd_text", "error")]
    assert calls[2]["rule"] == "no-odd-text (rules.toml:8)"
    assert calls[0]["duration_ms"] > 0
    table = shell(logged, "log", "list").out
    assert table.index("ok") < table.index("asked") < table.index("policy_denied")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_list_marks_calls_that_got_the_result_of_an_earlier_call(tmp_path: Path, fails: bool) -> None:
    @tool(effect="once")
    async def book() -> dict[str, object]:
        """Book."""
        return {"success": not fails, "error": "no seats"} if fails else {"success": True}

    async with Engine([book], journal=SqliteJournal(tmp_path / "journal.db"), run="r0") as engine:
        for _ in range(2):
            await engine.call(RawCall(name="book", id="c1", arguments={}), Scope(run="r0"))
    ran, repeated = (call["uid"] for call in shell(tmp_path, "log", "list", "--json", "--journal", "journal.db").lines)
    own, other = shell(tmp_path, "log", "list", "--journal", "journal.db").out.splitlines()[1:]
    assert "result of" not in own
    assert repeated in other
    assert f"{'error tool_declared,' if fails else 'ok'} result of {ran}" in other


@pytest.mark.parametrize(
    ("options", "tools"),
    [
        (("--tool", "odd_text"), ["odd_text"]),
        (("--kind", "call.suspended"), ["refund"]),
        (("--run", "order=A7"), ["refund"]),
        (("--after", "4"), ["refund", "odd_text"]),
        (("--tool", "none"), []),
        (("--actor", "nobody"), []),
        (("--field", "status=ok"), ["refund"]),
        (("--field", "metadata.attempts=1", "--kind", "call.completed"), ["refund"]),
        (("--since", "1d"), ["refund", "refund", "odd_text"]),
        (("--since", "2200-01-01"), []),
        (("--until", "1d"), []),
        (("--caused-by", "1", "--kind", "call.completed"), ["refund"]),
        (("--limit", "2"), ["refund", "odd_text"]),
    ],
)
def test_log_list_filters_calls(logged: Path, options: tuple[str, ...], tools: list[str]) -> None:
    assert [call["tool"] for call in shell(logged, "log", "list", "--json", *options).lines] == tools


@pytest.mark.parametrize("identity", ["order=A7/0/0", "order=A7"])
def test_log_show_prints_events_with_their_parents_and_bodies(logged: Path, identity: str) -> None:
    events = shell(logged, "log", "show", identity, "--json").lines
    assert [event["kind"] for event in events] == ["call.received", "call.started", "files.kept", "call.completed"]
    for cause, event in pairwise(events):
        assert event["parents"] == [cause["position"]]
    assert events[1]["body"]["arguments"] == {"order": "A7", "cents": 1}
    assert "  2 call.started" in shell(logged, "log", "show", identity).out


def test_an_unknown_id_is_refused_with_the_latest_ids(logged: Path) -> None:
    done = shell(logged, "log", "show", "nothing")
    assert done.code == 2
    assert "odd/0/0" in done.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("list", "--since", "yesterday"), "is not a time"),
        (("list", "--until", "0000-00-00"), "is not a time"),
        (("list", "--field", "status"), "is not path=value"),
        (("list", "--limit", "-1"), "--limit is -1"),
        (("list", "--caused-by", "99999999999999999999"), "--caused-by"),
        (("list", "--caused-by", "99"), "There is no event 99 in this journal"),
        (("list", "--run", "nothing"), "No run 'nothing' is on record here. The latest runs: odd, order=A8, order=A7."),
        (("show", "odd", "--run", "nothing"), "No run 'nothing' is on record here"),
        (("stats", "--run", "nothing"), "No run 'nothing' is on record here"),
        (("export", "--run", "nothing"), "No run 'nothing' is on record here"),
        (("export", "--run", "nothing", "--to", "all.jsonl"), "No run 'nothing' is on record here"),
        (("tree", "99"), "There is no event 99 in this journal"),
        (("tree", "nothing"), "is not an id in this journal"),
        (("verify", "--tail", "0"), "it must be 1 or more"),
        (("export", "--to", "crm.py"), "exists and was not overwritten"),
        (("export", "--to", "absent/x.jsonl"), "cannot be written"),
        (("stats", "--journal", "postgresql://nobody@127.0.0.1:1/none"), "cannot be reached"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_invalid_log_query_is_refused_with_the_next_step(logged: Path, words: tuple[str, ...], why: str) -> None:
    before = (logged / "crm.py").read_bytes()
    done = shell(logged, "log", *words)
    assert done.code == 2
    assert why in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert (logged / "crm.py").read_bytes() == before


def test_a_list_truncated_by_its_limit_says_so(logged: Path) -> None:
    assert "the newest 2; earlier ones match too" in shell(logged, "log", "list", "--limit", "2").err
    assert "earlier" not in shell(logged, "log", "list").err


@pytest.mark.parametrize("identity", ["order=A7/0/0", "order=A7", "1"], ids=["call", "run", "event"])
def test_log_tree_shows_events_below_their_causes(logged: Path, identity: str) -> None:
    events = shell(logged, "log", "tree", identity, "--json").lines
    assert [(event["kind"], event["depth"]) for event in events] == [
        ("call.received", 0),
        ("call.started", 1),
        ("files.kept", 2),
        ("call.completed", 3),
    ]
    lines = shell(logged, "log", "tree", identity).out.splitlines()
    places = [line.index(event["kind"]) for line, event in zip(lines, events, strict=True)]
    assert places == sorted(set(places))
    shortened = shell(logged, "log", "tree", identity, "--limit", "2")
    assert len(shortened.out.splitlines()) == 2
    assert "2 more events followed" in shortened.err


def test_log_stats_counts_calls_statuses_and_failures(logged: Path) -> None:
    found: dict[str, Any] = shell(logged, "log", "stats", "--json").json
    assert (found["calls"], found["runs"], found["failures"]) == (3, 3, {"denied": 1})
    assert [(tool["tool"], tool["calls"], tool["statuses"]) for tool in found["tools"]] == [
        ("refund", 2, {"ok": 1, "asked": 1}),
        ("odd_text", 1, {"error": 1}),
    ]
    assert found["tools"][0]["p50_ms"] > 0
    shown = shell(logged, "log", "stats").out
    assert "3 calls in 3 runs" in shown
    assert "denied" in shown
    only: dict[str, Any] = shell(logged, "log", "stats", "--json", "--tool", "refund", "--run", "order=A7").json
    assert only["calls"] == 1


def test_an_export_contains_every_body_unchanged(logged: Path) -> None:
    assert shell(logged, "log", "export", "--to", "all.jsonl").code == 0
    text = (logged / "all.jsonl").read_text(encoding="utf-8")
    connection = apsw.Connection(str(logged / ".callgate/journal.db"))
    stored: list[Any] = connection.execute("SELECT position, body, hash FROM events ORDER BY position").fetchall()
    connection.close()
    lines = text.splitlines()
    assert [(json.loads(line)["position"], json.loads(line)["hash"]) for line in lines] == [(row[0], row[2]) for row in stored]
    assert all(row[1].decode() in line for row, line in zip(stored, lines, strict=True))
    assert shell(logged, "log", "export").out == text
    assert len(shell(logged, "log", "export", "--run", "odd", "--kind", "call").lines) == 3


@pytest.mark.parametrize(
    "words",
    [("list", "--kind", "call.late"), ("show", "odd", "--kind", "hook"), ("tree", "odd", "--kind", "hook"), ("export", "--tool", "none")],
    ids=" ".join,
)
def test_a_query_without_matches_says_so(logged: Path, words: tuple[str, ...]) -> None:
    done = shell(logged, "log", *words)
    assert (done.code, done.out) == (0, "")
    assert " match" in done.err


@pytest.mark.parametrize("words", [("list",), ("show", "x"), ("tree", "x"), ("follow",), ("stats",), ("verify",), ("export",)])
def test_a_missing_journal_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = shell(tmp_path, "log", *words, "--journal", "none.db")
    assert done.code == 2
    assert "There is no journal at none.db" in done.err
    assert not (tmp_path / "none.db").exists()


def test_log_follow_shows_new_events_from_a_position_until_ctrl_c(logged: Path) -> None:
    words = command(("log", "follow", "--after", "4", "--json", "--kind", "call.received"))
    with subprocess.Popen(words, cwd=logged, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stdout is not None
        old = [json.loads(running.stdout.readline()), json.loads(running.stdout.readline())]
        shell(logged, "call", "odd_text", "--tools", "crm.py", "--run", "later")
        new = json.loads(running.stdout.readline())
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=COMMAND_S)
    assert [event["run"] for event in (*old, new)] == ["order=A8", "odd", "later"]
    assert running.returncode == 0
    assert "Traceback" not in err


def test_log_follow_waits_for_a_run_that_has_not_started(logged: Path) -> None:
    words = command(("log", "follow", "--json", "--kind", "call.received", "--run", "later"))
    with subprocess.Popen(words, cwd=logged, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        told = running.stderr.readline() + running.stderr.readline()
        shell(logged, "call", "odd_text", "--tools", "crm.py", "--run", "later")
        assert json.loads(running.stdout.readline())["run"] == "later"
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=COMMAND_S)
    assert "No run 'later' is in this journal yet" in told
    assert running.returncode == 0


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'A7', 'B7') AS BLOB) WHERE position = 2", 2),
        ("DELETE FROM events WHERE position = 3", 4),
    ],
    ids=["changed", "removed"],
)
def test_log_verify_fails_for_a_modified_journal(logged: Path, change: str, where: int) -> None:
    assert shell(logged, "log", "verify").code == 0
    connection = apsw.Connection(str(logged / ".callgate/journal.db"))
    connection.execute(change)
    connection.close()
    found: dict[str, Any] = shell(logged, "log", "verify", "--json").json
    assert (found["holds"], found["broken"]["position"]) == (False, where)
    assert shell(logged, "log", "verify").code == 1


def test_the_journal_can_be_set_in_the_environment(logged: Path) -> None:
    calls = shell(logged / "..", "log", "list", "--json", CALLGATE_JOURNAL=str(logged / ".callgate/journal.db")).lines
    assert len(calls) == 3


ODD_BODIES = [
    "[]",
    "null",
    "not json",
    "[" * 100_000,
    '{"details": {"path": ["\\ud800"]}}',
    '{"timeout_s": null, "metadata": null, "name": null, "notes": 5, "status": null, "tool": null, "reason": null}',
    '{"timeout_s": [], "metadata": [1], "name": {}, "notes": [null, {"kind": 1}], "status": 7, "tool": [], "reason": {}}',
    '{"timeout_s": 1e999, "metadata": {"bytes": null, "rule": 5, "truncated": "x"}, "name": "\\ud800", "status": "\\ud800"}',
    '{"timeout_s": NaN, "metadata": {"bytes": 1e999, "duration_ms": -1, "notes": {}}, "name": true}',
    '{"timeout_s": "5", "metadata": {"bytes": "many"}, "arguments": null, "effect": 5, "runner": []}',
]


@pytest.mark.parametrize("body", ODD_BODIES, ids=range(len(ODD_BODIES)))
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_log_commands_show_events_whatever_their_bodies_contain(logged: Path, body: str, options: tuple[str, ...]) -> None:
    connection = apsw.Connection(str(logged / ".callgate/journal.db"))
    connection.execute("UPDATE events SET body = ?", (body.encode(),))
    connection.close()
    listed = shell(logged, "log", "list", *options)
    assert (listed.code, "order=A7/0/0" in listed.out) == (0, True)
    assert shell(logged, "log", "show", "order=A7", *options).code == 0
    assert shell(logged, "log", "tree", "order=A7", *options).code == 0
    assert shell(logged, "log", "stats", *options).code == 0
    assert len(shell(logged, "log", "export").lines) == 10
    assert shell(logged, "log", "verify", *options).code == 1


def test_log_follow_ends_if_its_output_pipe_is_closed(logged: Path) -> None:
    words = command(("log", "follow", "--after", "0", "--json"))
    with subprocess.Popen(words, cwd=logged, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.stdout.close()
        shell(logged, "call", "odd_text", "--tools", "crm.py")
        assert running.wait(timeout=COMMAND_S) == 0
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()


async def _record_many(path: Path) -> None:
    """Record more than a pipe takes before its reader reads, and damage the last event."""

    @tool(effect="none")
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    async with Engine([echo], journal=SqliteJournal(path), run="many") as engine:
        for _ in range(200):
            await engine.call(RawCall(name="echo", arguments={"text": "x" * 500}))
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("UPDATE events SET parents = 'no list' WHERE position = (SELECT max(position) FROM events)")


def test_log_follow_stops_in_the_middle_of_old_events_if_its_output_pipe_is_closed(tmp_path: Path) -> None:
    """It does not come to the last event, which cannot be read."""
    asyncio.run(_record_many(tmp_path / "journal.db"))
    words = command(("log", "follow", "--after", "0", "--json", "--journal", "journal.db"))
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as running:
        assert running.stdout is not None
        assert running.stdout.readline()
        running.stdout.close()
        assert running.stderr is not None
        err = running.stderr.read()
        assert (running.wait(timeout=COMMAND_S), "damaged" in err) == (0, False), err


@pytest.mark.parametrize("words", [("show", "\udcff"), ("list", "--run", "\udcff"), ("list", "--journal", "\udcff")])
def test_an_id_that_is_not_utf_8_is_refused(logged: Path, words: tuple[str, ...]) -> None:
    done = shell(logged, "log", *words)
    assert (done.code, "is not valid UTF-8" in done.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--limit", "0"),
        ("list", "--limit", "-1"),
        ("list", "--caused-by", "0"),
        ("export", "--limit", "0"),
        ("tree", "1", "--limit", "0"),
        ("list", "--after", "-1"),
        ("follow", "--after", "99999999999999999999"),
        ("verify", "--tail", "0"),
    ],
    ids=" ".join,
)
def test_an_out_of_range_number_is_refused_with_its_limits(folder: Path, words: tuple[str, ...]) -> None:
    shell(folder, "call", "list_files")
    done = shell(folder, "log", *words)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "it must be " in done.err


@pytest.mark.parametrize(("words", "calls"), [(("--since", "999999d"), 1), (("--until", "9999-01-01"), 1), (("--since", "9999-01-01"), 0)])
def test_times_beyond_the_stored_range_are_before_or_after_every_event(folder: Path, words: tuple[str, ...], calls: int) -> None:
    shell(folder, "call", "list_files")
    done = shell(folder, "log", "list", *words, "--json")
    assert (done.code, len(done.lines)) == (0, calls)


def test_log_verify_with_or_without_tail_fails_if_the_last_event_is_unreadable(folder: Path) -> None:
    shell(folder, "call", "list_files")
    with contextlib.closing(sqlite3.connect(folder / ".callgate" / "journal.db")) as connection, connection:
        connection.execute("UPDATE events SET parents = 'x' WHERE position = (SELECT max(position) FROM events)")
    for words in ((), ("--tail", "1")):
        done = shell(folder, "log", "verify", *words)
        assert (done.code, "does not hold at event" in done.err) == (1, True)


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read everywhere")
@pytest.mark.parametrize(
    "words",
    [
        ("log", "list", "--journal", "shut/journal.db"),
        ("approvals", "--journal", "shut/journal.db"),
        ("call", "list_files", "--tools", "shut/crm.py"),
        ("memory", "status", "--memory", "shut/memory.db"),
    ],
    ids=" ".join,
)
def test_a_folder_without_access_rights_is_reported_in_one_line(folder: Path, words: tuple[str, ...]) -> None:
    (folder / "shut").mkdir(mode=0)
    done = as_any_user(folder, *words)
    (folder / "shut").chmod(0o700)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "shut/" in done.err
    assert "Permission denied" in done.err or "has no right to it" in done.err


class _Interrupts:
    """Interrupts the process in a finalizer, where Python drops exceptions."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def _interrupted() -> None:
    _Interrupts()


def test_a_keyboard_interrupt_in_a_finalizer_ends_log_follow(logged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops exceptions of finalizers, so the interrupt must not depend on the exception alone."""
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: dropped.append(told.exc_type))
    assert follow(LogOptions(journal=str(logged / ".callgate/journal.db"), after=0), wait=lambda _: _interrupted()) == 0
    assert dropped == [KeyboardInterrupt]


@pytest.mark.parametrize("words", [("list",), ("show", "odd"), ("tree", "odd"), ("follow",), ("export",)], ids=lambda words: words[0])
def test_a_kind_that_does_not_exist_is_refused_with_the_nearest(logged: Path, words: tuple[str, ...]) -> None:
    """`follow` would wait for it for ever."""
    done = shell(logged, "log", *words, "--kind", "call.recieved")
    assert (done.code, "No event has the kind 'call.recieved'. Did you mean call.received?" in done.err) == (2, True)
    done = shell(logged, "log", *words, "--kind", "cal")
    assert (done.code, "No event has the kind 'cal'. Did you mean call? There are: call, effect, hook," in done.err) == (2, True)


def test_a_kind_that_a_newer_version_has_recorded_can_be_listed(logged: Path) -> None:
    with contextlib.closing(sqlite3.connect(logged / ".callgate" / "journal.db")) as connection, connection:
        connection.execute("UPDATE events SET kind = 'run.paused' WHERE kind = 'call.received'")
    assert "run.paused" in shell(logged, "log", "export", "--kind", "run.paused").out


def test_a_known_kind_that_no_event_has_is_no_mistake(logged: Path) -> None:
    assert "No calls match" in shell(logged, "log", "list", "--kind", "call.late").err


def test_a_backup_of_a_journal_that_an_engine_writes_has_all_events_and_large_results(tmp_path: Path) -> None:
    @tool(effect="none")
    def read() -> str:
        """Read much."""
        return "x" * 3_000_000

    engine = Engine([read], journal=SqliteJournal(tmp_path / "calls.db"))
    try:
        engine.call_sync(RawCall(name="read"), Scope(run="case"))
        (tmp_path / "backup").mkdir()
        source, copy = (sqlite3.connect(path) for path in (tmp_path / "calls.db", tmp_path / "backup" / "calls.db"))
        with contextlib.closing(source), contextlib.closing(copy):
            source.backup(copy)
        shutil.copytree(tmp_path / "calls.db.blobs", tmp_path / "backup" / "calls.db.blobs")
        written = shell(tmp_path, "log", "export", "--journal", "calls.db").out
    finally:
        engine.close_sync()
    assert shell(tmp_path, "log", "export", "--journal", "backup/calls.db").out == written
    assert shell(tmp_path, "log", "verify", "--journal", "backup/calls.db").code == 0
    assert len(shell(tmp_path, "log", "result", "case/0/0", "--journal", "backup/calls.db").out) > 2_000_000
