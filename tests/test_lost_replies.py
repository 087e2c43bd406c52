"""Lost replies: a tool raises after its effect may have happened. The outcome is unknown unless it is proven that nothing happened."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from callgate import Engine, NotDone, Retryable, RetryPolicy, Scope, SqliteJournal, ToolContext, UsageError, Verified, tool
from tests.effect_ledger import Ledger
from tests.engine_calls import call, said
from tests.runners import fixture_tools

QUICK = RetryPolicy(base_s=0.0, max_s=0.0)
LOST = [
    TimeoutError("read timed out"),
    ConnectionResetError("reset by peer"),
    ValueError("bad answer"),
    SystemExit(3),
    asyncio.CancelledError(),
]


def paying(ledger: Ledger, error: BaseException | None, **settings: Any) -> Any:
    """Return `pay(to)`, which writes one line to the ledger and then raises `error`."""

    @tool(name="pay", retry=QUICK, **settings)
    async def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        if error is not None:
            raise error
        return f"paid {to}"

    return pay


def paying_in_a_thread(ledger: Ledger, error: BaseException, **settings: Any) -> Any:
    @tool(name="pay", retry=QUICK, **settings)
    def pay(to: str) -> str:
        """Pay somebody."""
        ledger.write(to)
        raise error

    return pay


@pytest.mark.parametrize("make", [paying, paying_in_a_thread])
@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
async def test_an_exception_of_a_once_tool_makes_the_outcome_unknown(
    error: BaseException, make: Callable[..., Any], ledger: Ledger
) -> None:
    async with Engine([make(ledger, error)]) as engine:
        first = await said(engine, call("pay", id="c1", to="A7"))
        again = await said(engine, call("pay", id="c2", to="A7"))
        other = await said(engine, call("pay", id="c3", to="B8"))
    assert (first.status, first.failure_class, first.code) == ("unknown", "exception", "tool_raised")
    assert (first.structured, type(error).__name__ in first.text) == (None, False)
    assert "may have taken effect" in first.text
    assert "another way" not in first.text
    assert (again.status, other.status) == ("unknown", "unknown")
    assert ledger.lines() == ["A7", "B8"]


@pytest.mark.parametrize("found", [True, Verified(happened=True)], ids=["a bool", "without a result"])
async def test_a_verified_effect_is_a_success_although_its_result_is_not_known(found: object) -> None:
    @tool(verify=lambda arguments, key: found)
    def pay(to: str) -> str:
        """Pay."""
        raise ValueError("the receipt is lost")

    async with Engine([pay]) as engine:
        assert (await said(engine, call("pay", id="c1", to="A7"))).status == "ok"


@pytest.mark.process
@pytest.mark.parametrize("how", ["raise", "exit", "crash"])
async def test_a_process_tool_that_fails_after_its_effect_has_an_unknown_outcome(how: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "paid")
    async with Engine([fixture_tools.pay_and_fail]) as engine:
        first = await said(engine, call("pay_and_fail", id="c1", to="A7", ledger=str(ledger.path), how=how))
        again = await said(engine, call("pay_and_fail", id="c2", to="A7", ledger=str(ledger.path), how=how))
    assert (first.status, again.status, ledger.lines()) == ("unknown", "unknown", ["A7"])


@pytest.mark.process
@pytest.mark.parametrize("how", ["not_done", "declared"])
async def test_a_process_tool_can_report_that_nothing_happened(how: str, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "paid")
    async with Engine([fixture_tools.pay_and_fail]) as engine:
        results = [
            await said(engine, call("pay_and_fail", id=each, to="A7", ledger=str(ledger.path), how=how)) for each in ("c1", "c2", "c1")
        ]
    assert [(one.status, one.code) for one in results] == [("error", "not_done")] * 3
    assert ledger.lines() == ["A7"] * 3


async def test_an_unknown_outcome_stays_unknown_for_the_next_engine_on_the_journal(ledger: Ledger, tmp_path: Path) -> None:
    for each in ("c1", "c2", "c1"):
        async with Engine([paying(ledger, TimeoutError("lost"))], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
            assert (await said(engine, call("pay", id=each, to="A7"), Scope(run="case"))).status == "unknown"
    assert ledger.lines() == ["A7"]


@pytest.mark.parametrize("settings", [{"effect": "none"}, {"effect": "none", "category": "safe_chain"}])
async def test_an_exception_of_a_tool_without_effects_is_an_error(settings: dict[str, Any], ledger: Ledger) -> None:
    async with Engine([paying(ledger, ValueError("no such page"), **settings)]) as engine:
        result = await said(engine, call("pay", to="A7"))
    assert (result.status, result.code) == ("error", "tool_raised")
    assert "another way" not in result.text


class TestVerify:
    """The tool's `verify` is called before an outcome is reported as unknown."""

    @pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
    async def test_an_effect_confirmed_by_verify_is_reported_as_success(self, error: BaseException, ledger: Ledger) -> None:
        asked: list[tuple[dict[str, Any], str]] = []

        def verify(arguments: dict[str, Any], key: str) -> Verified:
            asked.append((arguments, key))
            return Verified(happened=True, result="paid, receipt 17")

        async with Engine([paying(ledger, error, verify=verify)]) as engine:
            first = await said(engine, call("pay", id="c1", to="A7"))
            same = await said(engine, call("pay", id="c1", to="A7"))
        assert (first.status, first.text) == ("ok", first.text)
        assert first.text.startswith("paid, receipt 17\n")
        assert [note.text for note in first.metadata.notes] == ["pay failed, and then verified that it had taken effect."]
        assert same.metadata.replayed
        assert ([arguments for arguments, _ in asked], ledger.lines()) == ([{"to": "A7"}], ["A7"])

    async def test_a_call_that_verify_finds_not_done_may_be_sent_again(self, ledger: Ledger) -> None:
        async with Engine([paying(ledger, TimeoutError("lost"), verify=lambda *_: False)]) as engine:
            first = await said(engine, call("pay", id="c1", to="A7"))
            again = await said(engine, call("pay", id="c1", to="A7"))
        assert (first.status, first.code) == ("error", "not_done")
        assert "may be sent again" in first.text
        assert (again.metadata.replayed, len(ledger.lines())) == (False, 2)

    @pytest.mark.parametrize("answer", [None, "perhaps", 1])
    async def test_an_undecided_verify_leaves_the_outcome_unknown(self, answer: object, ledger: Ledger) -> None:
        async with Engine([paying(ledger, TimeoutError("lost"), verify=lambda *_: answer)]) as engine:
            assert (await said(engine, call("pay", id="c1", to="A7"))).status == "unknown"

    async def test_a_failing_verify_leaves_the_outcome_unknown(self, ledger: Ledger) -> None:
        def verify(arguments: dict[str, Any], key: str) -> Verified:
            raise SystemExit(1)

        async with Engine([paying(ledger, TimeoutError("lost"), verify=verify)]) as engine:
            assert (await said(engine, call("pay", id="c1", to="A7"))).status == "unknown"

    async def test_a_kill_ends_the_wait_for_verify(self, ledger: Ledger) -> None:
        asked = asyncio.Event()

        async def verify(arguments: dict[str, Any], key: str) -> Verified | None:
            if not asked.is_set():
                asked.set()
                await asyncio.Event().wait()
            return None

        async with Engine([paying(ledger, TimeoutError("lost"), verify=verify)]) as engine:
            running = asyncio.ensure_future(engine.call(call("pay", id="c1", to="A7"), Scope(conversation="talk")))
            await asked.wait()
            engine.control.kill("talk", "enough")
            await running
            assert (await said(engine, call("pay", id="c2", to="A7"))).status == "unknown"
        assert ledger.lines() == ["A7"]

    @pytest.mark.process
    async def test_verify_is_called_after_a_crash_of_the_tools_process(self, tmp_path: Path) -> None:
        ledger = Ledger(tmp_path / "paid")
        async with Engine([fixture_tools.pay_and_fail_verified]) as engine:
            result = await said(engine, call("pay_and_fail_verified", to="A7", ledger=str(ledger.path), how="crash"))
        assert (result.status, result.text.split("\n")[0], ledger.lines()) == ("ok", "paid A7", ["A7"])


class TestNotDone:
    """A failure is reported as `not_done` only if it proves that nothing happened, or if the tool's author declares that it does."""

    @pytest.mark.parametrize(
        ("error", "settings"),
        [
            (NotDone("no such order"), {}),
            (ValueError("no such order"), {"not_done": (ValueError,)}),
            (KeyError("A7"), {"not_done": LookupError}),
            (TimeoutError("lost"), {"not_done": (ValueError, TimeoutError)}),
            (ExceptionGroup("both", [NotDone("a"), NotDone("b")]), {}),
        ],
        ids=["NotDone", "declared", "declared by a base", "the author's word wins", "a group of such"],
    )
    @pytest.mark.parametrize("effect", ["once", "idempotent"])
    async def test_a_not_done_or_declared_exception_is_reported_as_not_done(
        self, error: Exception, settings: dict[str, Any], effect: str, ledger: Ledger
    ) -> None:
        async with Engine([paying(ledger, error, effect=effect, retryable=False, **settings)]) as engine:
            first = await said(engine, call("pay", id="c1", to="A7"))
            again = await said(engine, call("pay", id="c1", to="A7"))
        assert (first.status, first.failure_class, first.code) == ("error", "exception", "not_done")
        assert "Nothing happened" in first.text
        assert (again.metadata.replayed, len(ledger.lines())) == (False, 2)

    async def test_a_call_that_was_not_done_runs_again_in_the_next_engine_on_the_journal(self, ledger: Ledger, tmp_path: Path) -> None:
        for _ in range(2):
            async with Engine([paying(ledger, NotDone("closed"))], journal=SqliteJournal(tmp_path / "journal.db")) as engine:
                assert (await said(engine, call("pay", id="c1", to="A7"), Scope(run="case"))).code == "not_done"
        assert ledger.lines() == ["A7", "A7"]

    async def test_a_not_done_call_is_not_retried_automatically(self, ledger: Ledger) -> None:
        async with Engine([paying(ledger, NotDone("try again: rate limit"), effect="idempotent")]) as engine:
            await said(engine, call("pay", to="A7"))
        assert ledger.lines() == ["A7"]

    @pytest.mark.parametrize(
        "error",
        [
            ConnectionRefusedError(111, "refused"),
            socket.gaierror(-2, "Name or service not known"),
            Retryable("closed", not_started=True),
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 9, 0, 0), [Errno 111] Connect call failed"),
        ],
        ids=["refused", "no such name", "Retryable", "several addresses"],
    )
    async def test_a_request_that_was_never_sent_is_reported_as_not_done(self, error: Exception, ledger: Ledger) -> None:
        async with Engine([paying(ledger, error)]) as engine:
            result = await said(engine, call("pay", to="A7"))
        assert (result.status, result.code) == ("error", "not_done")

    @pytest.mark.parametrize(
        "error",
        [
            OSError(113, "No route to host"),
            OSError("connection refused"),
            ExceptionGroup("both", [NotDone("a"), TimeoutError("b")]),
            RuntimeError("wraps a refused connection"),
        ],
        ids=lambda error: str(error),
    )
    async def test_an_ambiguous_error_leaves_the_outcome_unknown(self, error: Exception, ledger: Ledger) -> None:
        async with Engine([paying(ledger, error)]) as engine:
            assert (await said(engine, call("pay", to="A7"))).status == "unknown"

    def test_a_not_done_option_without_exception_types_is_refused(self) -> None:
        with pytest.raises(UsageError, match="not_done"):
            Engine([tool(not_done=("ValueError",))(refund)])  # type: ignore[arg-type]


def refund(order: str) -> str:
    """Pay money back."""
    return order


class TestIdempotent:
    """An idempotent tool is retried with the same key. Its outcome is unknown if the last replies were lost."""

    @pytest.mark.parametrize("error", [TimeoutError("lost"), ConnectionResetError("reset"), httpx.ReadError("lost"), Retryable("lost")])
    async def test_an_idempotent_call_whose_replies_are_all_lost_is_retried_and_then_unknown(
        self, error: Exception, ledger: Ledger
    ) -> None:
        async with Engine([paying(ledger, error, effect="idempotent")]) as engine:
            result = await said(engine, call("pay", to="A7"))
        assert (result.status, len(ledger.lines())) == ("unknown", 4)
        assert "4 times" in result.text

    async def test_a_non_retryable_exception_of_an_idempotent_tool_is_an_error(self, ledger: Ledger) -> None:
        async with Engine([paying(ledger, ValueError("no such account"), effect="idempotent")]) as engine:
            assert (await said(engine, call("pay", to="A7"))).status == "error"

    @pytest.mark.parametrize("last", [ConnectionRefusedError("refused"), ValueError("odd"), Retryable("closed", not_started=True)])
    async def test_a_lost_reply_leaves_the_outcome_unknown_when_a_later_attempt_fails(self, last: Exception, ledger: Ledger) -> None:
        @tool(effect="idempotent", retry=QUICK)
        async def pay(to: str, ctx: ToolContext) -> str:
            """Pay somebody."""
            ledger.write(to)
            raise TimeoutError("lost") if ctx.attempt == 1 else last

        async with Engine([pay]) as engine:
            assert (await said(engine, call("pay", to="A7"))).status == "unknown"

    async def test_a_failure_that_is_returned_after_a_lost_reply_says_that_it_proves_nothing(self) -> None:
        """A second `delete` finds nothing, because the first one has deleted it."""

        @tool(effect="idempotent", retry=QUICK)
        async def delete(order: str, ctx: ToolContext) -> dict[str, object]:
            """Delete an order."""
            if ctx.attempt == 1 and order != "never there":
                raise TimeoutError("lost")
            return {"success": False, "error": "there is no such order"}

        async with Engine([delete]) as engine:
            lost = await said(engine, call("delete", order="A7"))
            plain = await said(engine, call("delete", order="never there"))
        assert (lost.status, plain.status) == ("error", "error")
        assert "An earlier attempt of this call got no answer and may have taken effect" in lost.text
        assert "earlier attempt" not in plain.text

    async def test_not_done_in_a_later_attempt_overrides_an_earlier_lost_reply(self, ledger: Ledger) -> None:
        @tool(effect="idempotent", retry=QUICK)
        async def pay(to: str, ctx: ToolContext) -> str:
            """Pay somebody."""
            raise TimeoutError("lost") if ctx.attempt == 1 else NotDone("the bank has no such payment")

        async with Engine([pay]) as engine:
            assert (await said(engine, call("pay", to="A7"))).code == "not_done"


async def test_a_warning_tells_the_tool_author_once_how_to_declare_not_done(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "callgate"):
        async with Engine([paying(ledger, ValueError("odd"))]) as engine:
            for order in ("A7", "B8", "C9"):
                await said(engine, call("pay", to=order))
    told = [record.getMessage() for record in caplog.records if "not_done=" in record.getMessage()]
    assert len(told) == 1
    assert all(word in told[0] for word in ("pay", "ValueError", 'effect="none"', "NotDone", "test_lost_replies.py"))


@pytest.mark.parametrize("error", [urllib.error.URLError(TimeoutError("timed out")), ssl.SSLEOFError(8, "EOF occurred")])
async def test_an_idempotent_call_with_a_urllib_or_tls_error_is_retried_and_then_unknown(error: Exception, ledger: Ledger) -> None:
    async with Engine([paying(ledger, error, effect="idempotent")]) as engine:
        result = await said(engine, call("pay", to="ann"))
    assert (result.status, len(ledger.lines()) > 1) == ("unknown", True), result.text


def test_classifying_a_lost_reply_imports_no_http_client() -> None:
    import subprocess

    code = (
        "import asyncio, sys\n"
        "from callgate import Engine, RawCall, tool\n"
        "@tool\n"
        "async def pay() -> str:\n"
        "    'Pay.'\n"
        "    raise TimeoutError('lost')\n"
        "async def main():\n"
        "    async with Engine([pay]) as engine:\n"
        "        print((await engine.call(RawCall(name='pay', arguments='{}', id='c'))).result.status)\n"
        "asyncio.run(main())\n"
        "print([name for name in ('httpx', 'requests', 'aiohttp', 'urllib3') if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split("\n")[:2] == ["unknown", "[]"]
