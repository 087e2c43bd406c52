"""Tests of host fields: a host declares the fields of its live context, and every scope is validated against them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypedDict

import pytest
from msgspec import Struct

from callgate import Engine, MemoryJournal, Scope, SqliteJournal, Tool, ToolContext, UsageError, tool
from callgate.agent import Agent
from tests.agent.scripted_model import Script, says
from tests.agent.scripted_model import call as model_calls
from tests.engine_calls import call
from tests.host_fakes import Asks


class Client:
    """A live connection of the host."""


class Bot(Struct):
    """A declaration with the field types of a typical host."""

    client: Client
    user_id: str
    webhook: str | None
    is_impersonation: bool
    context_items: list[str]
    weight: float
    mood: Literal["calm", "loud"]
    anything: Any
    on_done: Callable[[], None]


@dataclass
class Plain:
    KNOWN: ClassVar[int] = 1
    user_id: str = "u"


class HasUser(Protocol):
    user_id: str


class Keys(TypedDict, total=False):
    user_id: str


def a_bot(**other: object) -> Bot:
    fields: dict[str, Any] = {
        "client": Client(),
        "user_id": "u",
        "webhook": None,
        "is_impersonation": False,
        "context_items": ["one"],
        "weight": 1,
        "mood": "calm",
        "anything": None,
        "on_done": list,
    }
    return Bot(**{**fields, **other})


class Seen:
    """Records the host context that tools receive."""

    def __init__(self) -> None:
        self.extras: list[object] = []

    def tools(self) -> list[Tool]:
        @tool(effect="none")
        async def look(ctx: ToolContext) -> str:
            """Look."""
            self.extras.append(ctx.extra)
            return "seen"

        return [look]


async def one_call(engine: Engine, scope: Scope) -> None:
    await engine.call(call("look"), scope)


async def a_message(engine: Engine, scope: Scope) -> None:
    await engine.call_many([call("look")], scope)


async def a_streamed_message(engine: Engine, scope: Scope) -> None:
    emission = engine.emission(scope)
    emission.add(call("look"))
    await emission.seal()


async def a_run(engine: Engine, scope: Scope) -> None:
    async with Agent(Script(says(model_calls("look")), says("Done.")), engine) as agent:
        await agent.run("Go.", scope=scope)


PATHS: dict[str, Callable[[Engine, Scope], Awaitable[None]]] = {
    "one call": one_call,
    "a message": a_message,
    "a streamed message": a_streamed_message,
    "a run": a_run,
}
paths = pytest.mark.parametrize("make", PATHS.values(), ids=PATHS.keys())


@paths
@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
async def test_a_declared_extra_is_checked_and_passed_to_tools_as_the_same_object(
    make: Callable[[Engine, Scope], Awaitable[None]], disk: bool, tmp_path: Path
) -> None:
    """Requirement A56: one declaration serves every tool and every way to make a call."""
    seen, bot = Seen(), a_bot()
    journal = SqliteJournal(tmp_path / "journal.db") if disk else MemoryJournal()
    async with Engine(seen.tools(), journal=journal, extra=Bot) as engine:
        await make(engine, Scope(extra=bot))
        assert len(seen.extras) == 1
        assert seen.extras[0] is bot
        for wrong, why in ((None, "is NoneType"), ({"user_id": "u"}, "is dict"), (a_bot(user_id=5), "'user_id'")):
            with pytest.raises(UsageError, match=rf"Scope.extra .*{why}.*Engine\(extra=Bot\)"):
                await make(engine, Scope(extra=wrong))
    assert len(seen.extras) == 1


@pytest.mark.parametrize(
    ("field", "wrong", "wanted"),
    [
        ("client", object(), "Client"),
        ("webhook", 5, r"str \| None"),
        ("is_impersonation", "no", "bool"),
        ("context_items", "one", r"list\[str\]"),
        ("weight", "1", "float"),
        ("mood", "sad", "Literal"),
        ("on_done", None, "Callable"),
    ],
)
async def test_a_field_of_the_wrong_type_is_named_in_the_error(field: str, wrong: object, wanted: str) -> None:
    seen = Seen()
    async with Engine(seen.tools(), extra=Bot) as engine:
        with pytest.raises(UsageError, match=rf"has {type(wrong).__name__} in its field '{field}', and must have .*{wanted}"):
            await one_call(engine, Scope(extra=a_bot(**{field: wrong})))
    assert seen.extras == []


async def test_a_missing_field_is_named_in_the_error() -> None:
    class Late:
        user_id: str

    async with Engine(Seen().tools(), extra=Late) as engine:
        with pytest.raises(UsageError, match="has no field 'user_id'"):
            await one_call(engine, Scope(extra=Late()))


@pytest.mark.parametrize(
    ("declared", "fits", "does_not"),
    [
        (Plain, Plain(), Plain(user_id=5)),  # type: ignore[arg-type]
        (Plain | None, None, 5),
        (Keys, {}, {"user_id": 5}),
        (Keys, {"user_id": "u", "more": 1}, "u"),
        (dict, {"any": "thing"}, []),
        (HasUser, Plain(), Client()),
    ],
)
async def test_extra_may_be_declared_as_any_class_or_as_optional(declared: object, fits: object, does_not: object) -> None:
    async with Engine(Seen().tools(), extra=declared) as engine:
        await one_call(engine, Scope(extra=fits))
        with pytest.raises(UsageError, match=r"Scope\.extra"):
            await one_call(engine, Scope(extra=does_not))


@pytest.mark.parametrize("declared", [5, "Bot", Plain(), Plain | Bot, None | int | str])
def test_an_invalid_extra_declaration_is_refused(declared: object) -> None:
    with pytest.raises(UsageError, match="must be the class of what scopes have"):
        Engine(extra=declared)


async def test_a_resumed_run_needs_the_declared_extra() -> None:
    """The journal holds no live objects, so the caller of `resume` must pass them."""
    seen = Seen()
    model = Script(says(model_calls("look")), says("Done."))
    async with Engine(seen.tools(), policies=[Asks()], extra=Bot) as engine, Agent(model, engine) as agent:
        waiting = await agent.run("Go.", scope=Scope(extra=a_bot()))
        assert waiting.pending is not None
        await engine.answer(waiting.pending.approvals[0].approval_id, allow=True)
        with pytest.raises(UsageError, match=r"Scope.extra is NoneType"):
            await agent.resume(waiting.run)
        assert (await agent.resume(waiting.run, extra=a_bot())).status == "completed"
    assert len(seen.extras) == 1
