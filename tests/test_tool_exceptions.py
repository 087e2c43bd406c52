"""The exception of a tool is told to its author: in the log at DEBUG, in the record and in `callgate log show`; never to the model."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RetryPolicy, SqliteJournal, Tool, after_call, tool
from callgate.cli import main
from callgate.testing import ManualClock
from tests.engine_calls import bodies, call, said


class Hunter2Redactor:
    def redact(self, body: bytes) -> bytes:
        return body.replace(b"hunter2", b"[secret]")


def load(path: str) -> str:
    try:
        return {"a": "b"}[path]
    except KeyError as error:
        raise ValueError(f"there is no {path}") from error


@tool(name="look", effect="none", retryable=False)
async def look(path: str) -> str:
    """Look."""
    return load(path)


@tool(name="look", effect="none", retryable=False)
def look_in_a_thread(path: str) -> str:
    """Look."""
    return load(path)


@tool(name="look", effect="none", retryable=False, runner="process")
def look_in_a_process(path: str) -> str:
    """Look."""
    return load(path)


@pytest.mark.parametrize("looking", [look, look_in_a_thread, look_in_a_process], ids=["inline", "thread", "process"])
async def test_the_type_and_traceback_of_an_exception_are_logged_and_recorded_but_not_told_to_the_model(
    looking: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="callgate"):
        async with Engine([looking]) as engine:
            result = await said(engine, call("look", path="x"))
            (raised,) = bodies(engine, "call.raised")
    assert (raised["exception"], raised["error"]) == ("ValueError", "there is no x")
    trace = str(raised["traceback"])
    assert [line for line in trace.splitlines() if "KeyError" in line or "ValueError: " in line] == [
        "KeyError: x" if "KeyError: x" in trace else "KeyError: 'x'",
        "ValueError: there is no x",
    ]
    assert 'return {"a": "b"}[path]' in trace
    assert "_runners" not in trace
    assert any(trace in record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG)
    assert "Traceback" not in result.text
    assert not any(word in result.text for word in ("KeyError", "test_tool_exceptions", "load"))


async def test_each_attempt_that_raises_is_recorded() -> None:
    @tool(effect="none", retry=RetryPolicy(attempts=3, base_s=0.0, max_s=0.0))
    async def ask() -> None:
        """Ask."""
        raise ConnectionError("reset")

    async with Engine([ask]) as engine:
        await said(engine, call("ask"))
        attempts = [event.attempt for event in engine.journal.read() if event.kind == "call.raised"]
    assert attempts == [1, 2, 3]


async def test_the_log_and_record_of_an_exception_are_redacted_and_bounded(caplog: pytest.LogCaptureFixture) -> None:
    @tool(effect="none", retryable=False)
    async def login() -> None:
        """Log in."""
        raise ValueError("hunter2 " * 50_000)

    with caplog.at_level(logging.DEBUG, logger="callgate"):
        async with Engine([login], redactor=Hunter2Redactor()) as engine:
            await said(engine, call("login"))
            (raised,) = bodies(engine, "call.raised")
    assert "[secret]" in str(raised)
    assert "hunter2" not in str(raised) + caplog.text
    assert len(str(raised["traceback"])) < 8_500


async def test_of_an_exception_that_a_hook_may_withhold_only_the_type_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    @tool(effect="none", retryable=False)
    async def login() -> None:
        """Log in."""
        raise ValueError("hunter2 is wrong")

    @after_call(kind="reject")
    def withhold(call: object, result: object) -> str:
        return "not for the model"

    with caplog.at_level(logging.DEBUG, logger="callgate"):
        async with Engine([login], hooks=[withhold]) as engine:
            await said(engine, call("login"))
            assert bodies(engine, "call.raised") == [{"exception": "ValueError"}]
    assert "hunter2" not in caplog.text


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Hidden(Exception):
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class HiddenKind(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class HiddenClass(Exception, metaclass=HiddenKind):
    pass


def raising(error: BaseException, effect: Any, runner: str) -> Tool:
    @tool(name="ask", effect=effect, retryable=False)
    async def ask() -> None:
        """Ask."""
        raise error

    @tool(name="ask", effect=effect, retryable=False)
    def ask_in_a_thread() -> None:
        """Ask."""
        raise error

    return ask if runner == "inline" else ask_in_a_thread


BROKEN: dict[str, tuple[BaseException, str, str]] = {
    "its text": (Silent("x"), "Silent", "its message cannot be shown"),
    "its attributes": (Hidden("why"), "Hidden", ""),
    "its class": (HiddenClass("why"), "HiddenClass", ""),
}


@pytest.mark.parametrize("runner", ["inline", "thread"])
@pytest.mark.parametrize("effect", ["none", "once"])
@pytest.mark.parametrize(("error", "kind", "text"), BROKEN.values(), ids=BROKEN)
async def test_an_exception_whose_class_is_broken_ends_its_call_as_any_other(
    error: BaseException, kind: str, text: str, effect: str, runner: str
) -> None:
    async with Engine([raising(error, effect, runner)]) as engine:
        result = await said(engine, call("ask"))
        (raised,) = bodies(engine, "call.raised")
    assert (result.status, result.code) == ("error" if effect == "none" else "unknown", "tool_raised")
    assert (raised["exception"], kind in result.text, text in result.text) == (kind, False, True)
    assert "raise error" in str(raised["traceback"])


PLAIN: dict[str, tuple[BaseException, str]] = {
    "with a message": (ValueError("bad account"), "ask failed: bad account."),
    "without a message": (AssertionError(), "ask failed: it gave no message."),
    "a group": (
        ExceptionGroup("two", [KeyError("a"), OSError("gone")]),
        "ask failed: two (2 sub-exceptions): the key 'a' was not found; gone.",
    ),
    "a key": (KeyError("sofa"), "ask failed: the key 'sofa' was not found."),
    "a number as a key": (KeyError(3), "ask failed: the key 3 was not found."),
    "a message as a key": (KeyError("there is no sofa"), "ask failed: 'there is no sofa'."),
}


@pytest.mark.parametrize("effect", ["none", "once", "idempotent"])
@pytest.mark.parametrize(("error", "text"), PLAIN.values(), ids=PLAIN)
async def test_the_model_is_told_the_message_of_an_exception_and_never_its_type(error: BaseException, text: str, effect: str) -> None:
    async with Engine([raising(error, effect, "inline")]) as engine:
        result = await said(engine, call("ask"))
        (raised,) = bodies(engine, "call.raised")
    assert str(result.error).startswith(text)
    assert not any(
        kind in f"{result.text} {result.structured}" for kind in ("ValueError", "AssertionError", "KeyError", "OSError", "Group")
    )
    assert raised["exception"] == type(error).__name__


async def test_the_exception_of_a_validator_is_logged_for_its_author_and_not_told_to_the_model(caplog: pytest.LogCaptureFixture) -> None:
    def check(arguments: dict[str, Any]) -> None:
        raise KeyError("account")

    @tool(validate=check)
    async def ask() -> None:
        """Ask."""

    with caplog.at_level(logging.DEBUG, logger="callgate"):
        async with Engine([ask]) as engine:
            result = await said(engine, call("ask"))
    assert (result.code, "KeyError" in result.text) == ("validator_failed", False)
    assert any(record.exc_info is not None and record.exc_info[0] is KeyError for record in caplog.records)


async def test_log_show_prints_the_traceback_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal.db"
    async with Engine([look], journal=SqliteJournal(path), clock=ManualClock()) as engine:
        uid = (await said(engine, call("look", path="x"))).uid
    assert main(["log", "show", uid, "--journal", str(path)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"\n( +\| )  File .*test_tool_exceptions.py.*\n\1    return ", shown), "the indentation of the traceback is lost"
    lines = [line.lstrip(" |").rstrip() for line in shown.splitlines()]
    assert "exception: ValueError" in lines
    assert 'return {"a": "b"}[path]' in lines
    assert "ValueError: there is no x" in lines
