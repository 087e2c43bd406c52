"""A journal fails between two times at which the same response is handed in: what was done stays done, and nobody is told otherwise."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from callgate import Answered, Engine, RawCall, Scope, SqliteJournal, tool
from callgate.response_calls import ResponseReply
from tests.provider_responses.shop import claude

IN_RUN = Scope(run="chat", conversation="chat")
MESSAGE = (("pay", {"order": "A7"}), ("refund", {"order": "B8"}), ("close", {"user": "ann"}))


class Shop:
    """The tools of an engine, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def engine(self, path: Path) -> Engine:
        @tool
        def pay(order: str) -> str:
            """Pay an order."""
            self.done.append(f"pay {order}")
            return f"paid {order}"

        @tool(key="refund:{order}")
        def refund(order: str) -> str:
            """Refund an order."""
            self.done.append(f"refund {order}")
            return f"refunded {order}"

        @tool(requires_approval=True)
        def close(user: str) -> str:
            """Close an account."""
            self.done.append(f"close {user}")
            return f"closed {user}"

        return Engine([pay, refund, close], journal=SqliteJournal(path / "calls.db"))


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = writes_bytecode


async def half_done(engine: Engine) -> Any:
    """Return a response of which two calls are done and the third one waits for a human; the human has answered."""
    response = claude(*MESSAGE, message_id="msg_1")
    reply = await engine.respond(response, IN_RUN)
    await engine.approve(reply.suspended[0].approval_id)
    return response


def texts(reply: ResponseReply) -> list[str]:
    return [item["content"] for item in reply.results[0]["content"]]


async def test_a_full_disk_takes_back_no_result_of_a_response_that_is_handed_in_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop()
    async with shop.engine(tmp_path) as engine:
        response = await half_done(engine)
        with no_file_may_grow():
            for _ in range(3):  # the first one finds out, and the run cannot be opened for the later ones
                caplog.clear()
                reply = await engine.respond(response, IN_RUN)
                if reply.ended is None:
                    paid, refunded, closed = texts(reply)
                    assert (paid, refunded) == ("paid A7", "refunded B8")
                    assert "It was not run" in closed
                    assert_for_the_model(closed)
                else:
                    assert (reply.ended, reply.messages, reply.results) == ("held", [], [])
                    assert "this process may not write files of that size" in reply.reason
                assert "ulimit -f" in caplog.text
    assert shop.done == ["pay A7", "refund B8"]


def assert_for_the_model(text: str) -> None:
    assert "ulimit" not in text
    assert "calls.db" not in text
    assert "new engine" not in text
    assert "the operator" in text


async def test_a_deleted_journal_takes_back_no_result_either(tmp_path: Path) -> None:
    shop = Shop()
    async with shop.engine(tmp_path) as engine:
        response = await half_done(engine)
        (tmp_path / "calls.db").rename(tmp_path / "elsewhere.db")
        for _ in range(3):
            reply = await engine.respond(response, IN_RUN)
            if reply.ended is None:
                assert texts(reply)[:2] == ["paid A7", "refunded B8"]
            else:
                assert (reply.ended, reply.messages) == ("held", [])
        (tmp_path / "elsewhere.db").rename(tmp_path / "calls.db")
    async with shop.engine(tmp_path) as engine:
        assert texts(await engine.respond(response, IN_RUN)) == ["paid A7", "refunded B8", "closed ann"]
    assert shop.done == ["pay A7", "refund B8", "close ann"]


async def test_an_engine_that_cannot_read_the_record_does_not_say_that_a_call_never_ran(tmp_path: Path) -> None:
    """It does not know: an earlier engine has run this one."""
    shop = Shop()
    raw = RawCall(id="c1", name="pay", arguments={"order": "A7"})
    async with shop.engine(tmp_path) as engine:
        await engine.call(raw, IN_RUN)
    async with shop.engine(tmp_path) as engine:
        (tmp_path / "calls.db").unlink()
        outcome = await engine.call(raw, IN_RUN)
    assert isinstance(outcome, Answered)
    assert (outcome.result.status, outcome.result.code) == ("error", "record_failed")
    assert "It may have run before" in outcome.result.text
    assert_for_the_model(outcome.result.text)
    assert "calls.db" in outcome.result.metadata.record_failure
    assert shop.done == ["pay A7"]
