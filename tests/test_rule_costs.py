"""The cost of judging: time is at most linear in the size of the call and bounded, and the event loop does not access the file system."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType
from typing import Any, SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Engine, Limits, RawCall, Rules, Scope, ToolResult, tool
from callgate._engine_limits import RULE_COMMAND_CHARS, RULE_LIST_ITEMS, RULE_PATH_BYTES, RULE_TEXT_CHARS, RULE_URL_CHARS
from callgate._globs import glob_regex
from callgate.builtins import workspace_tools
from tests.engine_calls import call, said

ROOMY = Limits(arguments_bytes=16_777_216, arguments_keys=2_000_000)


@tool(effect="none")
async def read(path: str) -> str:
    """Read."""
    return "text"


@tool(effect="none")
async def run(command: str | list[str]) -> str:
    """Run."""
    return "ran"


@tool(effect="none")
async def fetch(url: str) -> str:
    """Fetch."""
    return "page"


@tool(effect="none")
async def send(to: list[str], text: str = "") -> str:
    """Send."""
    return "sent"


@contextmanager
def lines_run() -> Iterator[list[int]]:
    """Count the lines of Python that this thread runs."""
    count = [0]

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        count[0] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


async def judged(rules: str, raw: RawCall, workspace: str = "", limits: Limits = ROOMY) -> ToolResult:
    async with Engine([read, run, fetch, send], policies=[Rules.parse(rules, where="rules.toml")], limits=limits) as engine:
        return await said(engine, raw, Scope(workspace=workspace))


def about(fact: str, condition: str, verdict: str = "deny") -> str:
    return f'[[rule]]\nid = "r"\nverdict = "{verdict}"\nwhen = {{ "{fact}" = {condition} }}\n'


async def lines_for(rules: str, raw: RawCall) -> int:
    async with Engine([read, run, fetch, send], policies=[Rules.parse(rules)], limits=ROOMY) as engine:
        await said(engine, raw)  # compute what is computed once per tool
        with lines_run() as count:
            await said(engine, raw)
    return count[0]


@pytest.mark.parametrize(
    ("rules", "small", "large"),
    [
        (about("command", '"x"'), call("run", command="a " * 100), call("run", command="a " * 30_000)),
        (about("command.program", '"x"'), call("run", command="a" * 100), call("run", command="a" * 60_000)),
        (about("command", '"x"'), call("run", command="a " * 100), call("run", command="a" * 1_000_000)),
        (about("path.inside", "false"), call("read", path="a/" * 4_000), call("read", path="a/" * 400_000)),
        (about("url.host", '"x"'), call("fetch", url="http://" + "a." * 50), call("fetch", url="http://" + "a." * 500_000)),
        (about("url.host", '"x"'), call("fetch", url="http://[" + "1:" * 50), call("fetch", url="http://[" + "1:" * 500_000)),
        (
            about("arguments.text", '{ glob = "*a*b*c*d" }'),
            call("send", to=["x"], text="a" * 50),
            call("send", to=["x"], text="a" * 60_000),
        ),
    ],
    ids=["words", "one word", "a huge command", "path", "host", "address", "pattern"],
)
async def test_the_python_cost_of_judging_does_not_grow_with_the_value(rules: str, small: RawCall, large: RawCall) -> None:
    """A loop in Python over a million characters would take seconds, so a model could block the process with one valid call."""
    few, many = await lines_for(rules, small), await lines_for(rules, large)
    assert many < few + 500


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
@pytest.mark.parametrize(
    ("fact", "condition", "raw", "told"),
    [
        ("command", '"x"', call("run", command="a" * (RULE_COMMAND_CHARS + 1)), f"`command` has {RULE_COMMAND_CHARS + 2:,} characters"),
        ("command.program", '"x"', call("run", command=["a"] * RULE_COMMAND_CHARS), f"`command` has {2 * RULE_COMMAND_CHARS:,} characters"),
        ("path", '"x"', call("read", path="ä" * RULE_PATH_BYTES), f"`path` has {2 * RULE_PATH_BYTES:,} bytes"),
        ("path.inside", "true", call("read", path="/" * (RULE_PATH_BYTES + 1)), f"rules judge at most {RULE_PATH_BYTES:,}"),
        ("path.bytes", "5", call("read", path="a/" * RULE_PATH_BYTES), f"rules judge at most {RULE_PATH_BYTES:,}"),
        ("url.host", '"x"', call("fetch", url="http://x/" + "a" * RULE_URL_CHARS), f"rules judge at most {RULE_URL_CHARS:,}"),
        ("arguments.to", '"x"', call("send", to=["x"] * (RULE_LIST_ITEMS + 1)), f"`to` has {RULE_LIST_ITEMS + 1:,} items"),
        ("arguments.text", '"x"', call("send", to=["x"], text="x" * (RULE_TEXT_CHARS + 1)), f"rules judge at most {RULE_TEXT_CHARS:,}"),
    ],
)
async def test_a_value_that_is_too_large_to_judge_is_denied_with_the_limit(
    verdict: str, fact: str, condition: str, raw: RawCall, told: str, tmp_path: Path
) -> None:
    result = await judged(about(fact, condition, verdict), raw, str(tmp_path))
    assert result.failure_class == "denied"
    assert told in str(result.error)


async def test_a_large_value_that_no_rule_reads_is_accepted() -> None:
    text = "x" * (RULE_TEXT_CHARS + 1)
    rules = about("arguments.to", '"bob"') + '[[rule]]\nid = "s"\nverdict = "deny"\nwhen = { "arguments.text" = "y", tool = "run" }\n'
    assert (await judged(rules, call("send", to=["ann"], text=text))).success


async def test_paths_are_resolved_in_a_thread_and_not_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_in: set[int] = set()
    resolve = os.path.realpath

    def resolved(path: Any, **options: Any) -> Any:
        asked_in.add(threading.get_ident())
        return resolve(path, **options)

    monkeypatch.setattr(os.path, "realpath", resolved)
    for fact, condition in (("path", '"x"'), ("path.inside", "false"), ("path.bytes", "5")):
        assert (await judged(about(fact, condition), call("read", path="a.txt"), str(tmp_path))).success
    assert asked_in
    assert threading.get_ident() not in asked_in


async def test_a_hanging_file_system_denies_the_call_at_the_policy_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop runs meanwhile, and so does a call that needs no file system."""
    resolve, hangs, let_go = os.path.realpath, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hanging(path: Any, **options: Any) -> Any:
        loop.call_soon_threadsafe(hangs.set)
        let_go.wait(60)
        return resolve(path, **options)

    policies = [Rules.parse(about("path.inside", "false"))]
    async with Engine([read, run], policies=policies, limits=Limits(policy_timeout_s=0.2)) as engine:
        monkeypatch.setattr(os.path, "realpath", hanging)
        hung = asyncio.ensure_future(said(engine, call("read", path="a.txt"), Scope(workspace=str(tmp_path))))
        await hangs.wait()
        assert (await said(engine, call("run", command="ls"))).success
        result = await hung
        let_go.set()
    assert (result.failure_class, result.code) == ("denied", "policy_failed")


async def test_a_large_value_is_compared_in_a_thread(started_threads: list[str]) -> None:
    """The comparison of a long text must not block other calls. For a short text a thread is not worth its cost."""
    async with Engine([send], policies=[Rules.parse(about("arguments.text", '{ glob = "*secret*" }'))], limits=ROOMY) as engine:
        assert (await said(engine, call("send", to=["x"], text="a" * 10))).success
        assert started_threads == []
        assert (await said(engine, call("send", to=["x"], text="a" * 500_000))).success
        assert started_threads == ["callgate work", "callgate policy"], "one thread must parse and one must compare"
        assert (await said(engine, call("send", to=["x"], text="a" * 500_000 + "secret"))).failure_class == "denied"


class Counted(str):
    """A string that counts the characters that are searched in it or sliced from it."""

    looked_at = 0

    def count(self, sub: str, start: Any = 0, end: Any = None) -> int:
        Counted.looked_at += (len(self) if end is None else int(end)) - int(start)
        return super().count(sub, start, len(self) if end is None else end)

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        Counted.looked_at += len(found)
        return found


@pytest.mark.parametrize("quotes", ['"', '"""', "'''"])
def test_the_cost_of_parsing_rules_is_linear_in_their_text(quotes: str) -> None:
    """Counting the lines anew for each rule would take half a minute for thirty thousand rules."""
    text = Counted("".join(f'[[rule]]\nid = "r{n}"\nverdict = "deny"\nreason = {quotes}[[rule]]{quotes}\n' for n in range(2_000)))
    Counted.looked_at = 0
    rules = Rules.parse(text)
    assert [rule.where for rule in rules.rules] == [f"rules:{4 * n + 1}" for n in range(2_000)]
    assert Counted.looked_at <= 2 * len(text)


UNCLOSED = ["[", "[!", "[a", "[]", "[a-", "a["]


def lines_to_read(rules: str) -> int:
    with lines_run() as count:
        Rules.parse(rules)
    return count[0]


@pytest.mark.parametrize("piece", UNCLOSED)
@pytest.mark.parametrize("place", ["condition", "tool"])
def test_the_cost_of_reading_a_glob_in_a_rule_is_linear(piece: str, place: str) -> None:
    """Searching for the end of each bracket would take seven seconds for 20,000 unclosed brackets."""

    def rules(size: int) -> str:
        glob = piece * size
        one = about("arguments.text", f"{{ glob = '{glob}' }}")
        return one if place == "condition" else one.replace("verdict", f"optional = true\ntool = '{glob}'\nverdict")

    lines_to_read(rules(10))
    few, many = lines_to_read(rules(200)), lines_to_read(rules(800))
    assert many <= 5 * few


@pytest.mark.parametrize("piece", UNCLOSED)
async def test_a_huge_glob_from_a_model_is_read_before_the_timeout(piece: str, tmp_path: Path) -> None:
    """Searching for the end of each bracket would take hours for a megabyte of them."""
    (tmp_path / "a.txt").write_text("text")
    asked = call("glob_files", pattern=piece * (900_000 // len(piece)))
    async with Engine(workspace_tools()) as engine:
        given = await said(engine, asked, Scope(workspace=str(tmp_path)))
    assert given.failure_class != "timeout"


PARTS = st.lists(st.sampled_from(["[", "]", "!", "-", "*", "?", "a", "b", "^", "\\", "&&"]), max_size=12).map("".join)


@settings(max_examples=2_000, deadline=None)
@given(PARTS, PARTS)
def test_a_glob_matches_like_fnmatch_of_the_standard_library(glob: str, text: str) -> None:
    assert (re.match(glob_regex(glob), text) is not None) == fnmatchcase(text, glob)
