"""Which nested calls are the same: those with the same tool and valid arguments, by their number within the attempt that makes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, NotDone, Restarted, RetryPolicy, Scope, SqliteJournal, ToolContext, tool
from tests.effect_ledger import Ledger
from tests.engine_calls import call, said

QUICK = RetryPolicy(attempts=3, base_s=0.001, max_s=0.001)


@pytest.mark.parametrize(
    "arguments",
    [
        ({"n": 1, "details": {"a": 1, "b": 2}}, {"n": 1, "details": {"b": 2, "a": 1}}),
        ({"n": 1, "details": {}}, {"details": {}, "n": 1}),
        ({"n": 5, "details": {}}, {"n": "5", "details": {}}),
        ({"n": 1, "details": {}}, {"n": 1}),
    ],
    ids=["inner order", "order", "converted", "default"],
)
async def test_two_nested_calls_with_equal_arguments_are_two_calls_however_these_are_written(
    arguments: tuple[dict[str, Any], dict[str, Any]], ledger: Ledger
) -> None:
    """And a second attempt recognises both, in whatever order it makes them."""
    attempts: list[int] = []

    @tool
    async def pay(n: int, details: dict[str, int] = {}) -> str:  # noqa: B006
        """Pay."""
        ledger.write(str(n))
        return f"paid {n}"

    @tool(effect="idempotent", retry=QUICK)
    async def order(ctx: ToolContext) -> list[bool]:
        """Pay twice, and fail at first."""
        attempts.append(1)
        made = arguments if len(attempts) == 1 else reversed(arguments)
        replayed = [(await ctx.call("pay", one)).metadata.replayed for one in made]
        if len(attempts) == 1:
            raise ConnectionError("connection reset")
        return replayed

    async with Engine([order, pay]) as engine:
        result = await said(engine, call("order"))
    assert (result.structured, len(attempts)) == ([True, True], 2)
    assert len(ledger.lines()) == 2


async def test_a_nested_call_that_did_nothing_and_is_made_again_is_the_same_call(ledger: Ledger) -> None:
    """A later attempt therefore gets the result of the second try, and does not pay again."""
    attempts: list[int] = []

    @tool
    async def pay(to: str) -> str:
        """Pay, but not at first."""
        attempts.append(1)
        if len(attempts) == 1:
            raise NotDone("the bank is closed")
        ledger.write(to)
        return f"paid {to}"

    @tool(effect="idempotent", retry=QUICK)
    async def order(ctx: ToolContext) -> str:
        """Pay until it is paid, and then fail in the first attempt."""
        tries = 0
        while not (await ctx.call("pay", {"to": "ann"})).success:
            tries += 1
        if tries:
            raise ConnectionError("connection reset")
        return "ordered"

    async with Engine([order, pay]) as engine:
        assert (await said(engine, call("order"))).text == "ordered"
    assert ledger.lines() == ["ann"]


async def test_a_call_whose_result_enriched_the_context_has_a_known_end_after_a_restart(ledger: Ledger, tmp_path: Path) -> None:
    @tool
    async def watch(url: str) -> Mapping[str, object]:
        """Watch a video."""
        ledger.write(url)
        return {"type": "context_restart_video", "item": url}

    async def used(data: object) -> bool:
        return True

    raw, scope = call("watch", id="c1", url="u"), Scope(run="r")
    async with Engine([watch], restart=used, journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        assert isinstance(await engine.call(raw, scope), Restarted)
    async with Engine([watch], restart=used, journal=SqliteJournal(tmp_path / "journal.db")) as engine:
        again = await said(engine, raw, scope)
        other = await engine.call(call("watch", id="c2", url="u"), scope)
    assert (again.status, again.metadata.replayed) == ("ok", True)
    assert again.text == "watch took effect before, as r/0/0. Its result was added to the context and not kept. Nothing was run."
    assert isinstance(other, Restarted)
    assert ledger.lines() == ["u", "u"]
