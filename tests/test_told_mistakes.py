"""Mistakes in the use of the library are told with what is wrong and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pytest

from callgate import Engine, RawCall, Scope, UsageError, tool


@tool
def pay(invoice: str, amount: Decimal = Decimal(1)) -> str:
    """Pay an invoice."""
    return f"{invoice} {amount}"


def left_by_with() -> None:
    with cast("Any", Engine([pay])):
        pass


def decorated_with_a_wrong_effect() -> None:
    tool(pay.function, effect=cast("Any", "read"))


def watched_by_with() -> None:
    with cast("Any", Engine([pay]).watch(iter(()))):
        pass


def watched_by_for() -> None:
    for _ in cast("Any", Engine([pay]).watch(iter(()))):
        pass


def engine() -> Any:
    return Engine([pay])


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "call by name": (lambda: engine().call_sync("pay", {"invoice": "A"}), "A str was handed in as a call. Make a RawCall of it"),
    "a field of the scope": (lambda: engine().respond_sync({}, conversation="u"), "scope=Scope(conversation=...)"),
    "a function as policies": (lambda: Engine([pay], policies=cast("Any", lambda call: None)), "Write policies=[Rules.parse(...)]"),
    "a function as policy": (lambda: Engine([pay], policies=[cast("Any", lambda call: None)]), "'async def decide(self, call)'"),
    "a kill of a scope": (
        lambda: engine().control.kill(Scope(conversation="ann")),
        "control.kill was given Scope, not text. Give the name",
    ),
    "a stop without a name": (lambda: engine().control.stop(None), "Scope.conversation of its calls"),
    "an end of a turn by number": (lambda: engine().control.end_turn(17), "control.end_turn was given int, not text"),
    "a wrong effect": (decorated_with_a_wrong_effect, "has effect='read'; it must be one of 'none', 'idempotent', 'once'"),
    "an option of another library": (lambda: tool(pay.function, **cast("Any", {"idempotent": True})), "did you mean 'effect'?"),
    "the command of a server": (lambda: Engine([pay], servers=cast("Any", ["uvx mcp-server-git"])), "Write mcp('uvx mcp-server-git')"),
    "with": (left_by_with, "async with Engine(...) as engine"),
    "a watched stream in synchronous code": (watched_by_with, "the list of all of them to engine.respond_sync"),
    "an iteration over it in synchronous code": (watched_by_for, "the list of all of them to engine.respond_sync"),
}


@pytest.mark.parametrize(("mistake", "told"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_what_to_write(mistake: Callable[[], object], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        mistake()
    assert told in str(refused.value)


async def test_a_number_instead_of_the_text_of_a_decimal_is_refused_with_an_example() -> None:
    async with Engine([pay]) as engine:
        outcome = await engine.call(RawCall(name="pay", arguments={"invoice": "A", "amount": 50.1}), Scope())
    assert 'amount: expected text, such as "12.50", got 50.1' in str(cast("Any", outcome).result.error)


def test_allowed_tools_that_block_nothing_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    """The call runs: an allowlist belongs to deliberate mode, and its host may think that the tool is blocked."""
    made = engine()
    for scope in (Scope(deliberate=True, allowed_tools=frozenset({"pay"})), *[Scope(allowed_tools=frozenset())] * 2, Scope(turn=1)):
        made.call_sync(RawCall(name="pay", arguments={"invoice": "A"}), scope)
    made.close_sync()
    assert [record.message[:66] for record in caplog.records] == ["Scope.allowed_tools does not block any tool without deliberate=Tru"]
