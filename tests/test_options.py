"""Options of an engine: what cannot work is refused at construction, in one sentence, and not during a call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import (
    Ask,
    Deny,
    DirectoryBlobs,
    Engine,
    Limits,
    MemoryJournal,
    Modify,
    RawCall,
    RetryPolicy,
    Rules,
    Scope,
    SqliteCache,
    SqliteJournal,
    ToolContext,
    ValidationResult,
    Verified,
    after_call,
    before_call,
    tool,
)
from callgate.agent import History
from callgate.calls import Answered, Image, Metadata, Note, Text, ToolResult
from callgate.errors import UsageError
from tests.engine_calls import call, kinds, result_of, said


class Policy:
    async def decide(self, call: object) -> None:
        return None


def plain(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"attempts": 0}, "attempts=0"),
        ({"attempts": -1}, "attempts=-1"),
        ({"attempts": 2.0}, "attempts=2.0"),
        ({"attempts": True}, "attempts=True"),
        ({"base_s": -1}, "base_s=-1"),
        ({"base_s": math.nan}, "base_s=nan"),
        ({"max_s": math.inf}, "max_s=inf"),
        ({"max_s": "10"}, "max_s='10'"),
        ({"multiplier": 0}, "multiplier=0"),
        ({"multiplier": math.nan}, "multiplier=nan"),
        ({"jitter": "no"}, "jitter='no'"),
    ],
    ids=str,
)
def test_an_invalid_retry_policy_is_refused(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=rf"^RetryPolicy\({said}\): it must be "):
        RetryPolicy(**setting)


@given(st.integers(1, 10**6), st.floats(1, 1e300), st.floats(0, 1, exclude_max=True))
def test_no_backoff_exceeds_its_maximum_after_any_number_of_failures(failures: int, multiplier: float, chance: float) -> None:
    """This holds even where a delay is too large for a float."""
    assert 0 <= RetryPolicy(multiplier=multiplier).delay_s(failures, chance) <= 10.0


@pytest.mark.parametrize("name", [field.name for field in msgspec.structs.fields(Limits)])
@pytest.mark.parametrize("value", [-1, "5", math.nan, True, 1.5j], ids=repr)
async def test_an_invalid_limit_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"^Limits\({name}=.*\): it must be a"):
        Limits(**{name: value})


def test_limits_of_another_type_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^Engine\(limits=\{'parallel_calls': 1\}\): it must be a Limits\.$"):
        Engine(limits={"parallel_calls": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout_s": 0}, r"^Engine\(timeout_s=0\): it must be a finite number of seconds above 0 or None\.$"),
        ({"timeout_s": math.inf}, r"timeout_s=inf\): it must be a finite number"),
        ({"timeout_s": "5"}, r"timeout_s='5'\): it must be a finite number"),
        ({"coerce": "no"}, r"Engine\(coerce='no'\): it must be True or False"),
        ({"repair": 1}, r"Engine\(repair=1\): it must be True or False"),
        ({"policies": Policy()}, "policies=.* was given a .*Policy; it must be a list"),
        ({"policies": [Policy]}, r"was given the class Policy; it must be an instance. Write Policy\(\.\.\.\)"),
        ({"policies": [plain]}, "was given a function, which has no method decide"),
        ({"policies": "allow"}, "was given a str; it must be a list"),
        ({"hooks": plain}, "hooks=.* was given a function; it must be a list"),
        ({"hooks": [plain]}, "was given a function. Decorate the function with @before_call"),
        ({"journal": "journal.db"}, r"journal='journal\.db'\) was given a path\. Write journal=SqliteJournal"),
        ({"journal": MemoryJournal}, "was given the class MemoryJournal"),
        ({"blobs": {}}, r"blobs=\.\.\.\) was given a dict, which has no method put"),
        ({"persistent_cache": {}}, "has no method put, drop_written, close"),
        ({"redactor": plain}, r"has no method redact\. Write an object with 'def redact\(self, body: bytes\) -> bytes'"),
        ({"clock": 0}, "was given a int, which has no method monotonic"),
        ({"undo": 1}, "has no method begin, finish, leave_out"),
        ({"memory": 1}, "has no method follow, close"),
        ({"restart": 1}, "has no method __call__"),
        ({"runners": [1]}, "it must be a dict of them"),
        ({"runners": {1: plain}}, "has the name 1; it must be text"),
        ({"runners": {"far": plain}}, "has no method run, close"),
        ({"run": 5}, r"Engine\(run=5\): it must be text"),
        ({"process_limits": 5}, r"^Engine\(process_limits=5\): it must be a ProcessLimits\.$"),
    ],
)
def test_invalid_engine_options_are_refused_at_construction(options: dict[str, Any], said: str) -> None:
    """Otherwise an invalid option would show during a call: as a failing policy, an endless wait, or a word that counts as true."""
    with pytest.raises(UsageError, match=said):
        Engine(**options)


@pytest.mark.parametrize(
    ("function", "settings", "said"),
    [
        (plain, {"kind": "watch"}, "'plain' has kind='watch'; it must be one of 'observe', 'transform', 'reject'"),
        (plain, {"priority": "first"}, "has priority='first'; it must be a whole number"),
        (plain, {"timeout_s": 0}, "has timeout_s=0; it must be a finite number of seconds above 0"),
        (plain, {"timeout_s": math.nan}, "has timeout_s=nan"),
        (5, {}, "was given 5, which is not a function"),
    ],
)
def test_an_invalid_hook_is_refused_by_its_decorator(function: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        before_call("t", **settings)(function)


@pytest.mark.parametrize("decorator", [before_call, after_call])
def test_a_hook_decorator_without_parentheses_is_refused_with_the_fix(decorator: Any) -> None:
    with pytest.raises(UsageError, match=rf"Write @{decorator.__name__}\(\) for all tools"):
        decorator(plain)


class Empty(MemoryJournal):
    """A journal with a length, which is therefore falsy while it is empty."""

    def __len__(self) -> int:
        return len(list(self.read()))


async def test_a_journal_that_is_falsy_while_empty_is_still_used() -> None:
    """An option counts as given whatever its truth value is."""

    @tool(effect="none")
    async def look() -> str:
        """Look."""
        return "seen"

    journal = Empty()
    async with Engine([look], journal=journal) as engine:
        await said(engine, call("look"))
    assert len(journal) > 0


@tool(effect="none")
async def seen() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("raw", [None, "seen", {"name": "seen"}], ids=repr)
async def test_a_value_that_is_not_a_raw_call_is_refused_with_the_fix(raw: Any) -> None:
    async with Engine([seen]) as engine:
        for hand_in in (lambda: engine.call(raw), lambda: engine.call_many([raw])):
            with pytest.raises(UsageError, match=r"was handed in as a call\. Make a RawCall of it"):
                await hand_in()
        with pytest.raises(UsageError, match="idempotency_key is 5; it must be text"):
            await engine.call(RawCall(name="seen", idempotency_key=5))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (None, "A NoneType was handed in as a scope"),
        ({"run": "r"}, "A dict was handed in as a scope"),
        (Scope(run=5), r"Scope\.run is 5; it must be text"),  # type: ignore[arg-type]
        (Scope(tick=object()), r"Scope\.tick is <object .*; it must be text"),  # type: ignore[arg-type]
        (Scope(principal=None), r"Scope\.principal is None; it must be text"),  # type: ignore[arg-type]
        (Scope(iteration="1"), r"Scope\.iteration is '1'; it must be a whole number"),  # type: ignore[arg-type]
        (Scope(deliberate="no"), r"Scope\.deliberate is 'no'; it must be True or False"),  # type: ignore[arg-type]
        (Scope(deliberate=True, allowed_tools="seen"), r"allowed_tools is 'seen'; it must be a frozenset of names"),  # type: ignore[arg-type]
    ],
    ids=["none", "dict", "run", "tick", "principal", "iteration", "deliberate", "allowed tools"],
)
async def test_an_invalid_scope_is_refused_and_other_calls_still_run(scope: Any, said: str) -> None:
    """A value of another type would otherwise fail when the record is read or written, and then no call could run. In a text, every
    substring would count as an allowed name.
    """
    async with Engine([seen]) as engine:
        for hand_in in (engine.call, lambda raw, scope: engine.call_many([raw], scope)):
            with pytest.raises(UsageError, match=said):
                await hand_in(call("seen"), scope)
        with pytest.raises(UsageError, match=said):
            engine.emission(scope)
        assert result_of(await engine.call(call("seen"))).status == "ok"
        assert kinds(engine)


async def test_an_unknown_value_of_closed_counts_as_truncated() -> None:
    """Only `sealed` and `finished` prove that a call is complete."""
    async with Engine([seen]) as engine:
        for word in ("Cut", "", None, object()):
            result = await said(engine, RawCall(name="seen", closed=word))  # type: ignore[arg-type]
            assert (result.status, result.code) == ("error", "truncated")
        assert kinds(engine).count("call.started") == 0


async def test_answer_settle_and_register_refuse_invalid_arguments() -> None:
    async with Engine([seen]) as engine:
        with pytest.raises(
            UsageError, match=r"engine\.approve was given None as approval_id\. Give the `approval_id` of a Suspended outcome"
        ):
            await engine.answer(None, allow=True)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="The call None is NoneType"):
            await engine.settle(None, happened=True)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"There is no layer 'top'\. Take one of 'builtin'"):
            engine.register(seen, layer="top")  # type: ignore[arg-type]


async def test_a_nested_call_with_invalid_arguments_returns_an_error_result() -> None:
    @tool(effect="none")
    async def ask(ctx: ToolContext) -> list[str]:
        """Ask."""
        return [str((await ctx.call("seen", given)).code) for given in (None, 5, [1])]  # type: ignore[arg-type]

    async with Engine([seen, ask]) as engine:
        assert (await said(engine, call("ask"))).structured == ["invalid_json"] * 3


@pytest.mark.parametrize(
    ("make", "options", "meant"),
    [
        (RawCall, {"name": "pay", "args": {}}, "arguments"),
        (Scope, {"conversatoin": "c"}, "conversation"),
        (Verified, {"hapened": True}, "happened"),
        (ValidationResult, {"vaild": True}, "valid"),
        (Deny, {"reasons": "no"}, "reason"),
        (Modify, {"args": {}}, "arguments"),
        (Ask, {"qestion": "?"}, "question"),
        (SqliteJournal, {"pth": "x"}, "path"),
        (SqliteCache, {"pth": "x"}, "path"),
        (DirectoryBlobs, {"pth": "x"}, "path"),
        (MemoryJournal, {"sharde": True}, "shared"),
        (Rules, {"rulse": ()}, "rules"),
        (History, {"message": ()}, "messages"),
        (Image, {"dta": ""}, "data"),
        (RawCall, {"tool": "pay"}, "name"),
        (RawCall, {"name": "pay", "tool_call_id": "c"}, "id"),
        (Scope, {"user": "ann"}, "principal"),
        (Scope, {"thread_id": "t"}, "conversation"),
        (Text, {"content": "hi"}, "text"),
        (Note, {"kind": "warning", "txt": "hi"}, "text"),
        (ToolResult, {"stats": "ok"}, "status"),
        (Answered, {"results": None}, "result"),
        (Metadata, {"truncate": True}, "truncated"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_wrong_keyword_is_answered_with_the_one_that_was_meant(make: Any, options: dict[str, Any], meant: str) -> None:
    with pytest.raises(UsageError, match=rf"^{make.__name__} has no option '\w+'; did you mean '{meant}'\? It takes "):
        make(**options)


def test_a_missing_or_unnamed_value_is_answered_with_the_names() -> None:
    with pytest.raises(UsageError, match=r"^RawCall lacks name\. It takes name, arguments, "):
        RawCall()  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"^RawCall was given 'pay' without a name\. By name it takes name=\.\.\., "):
        RawCall("pay")  # type: ignore[call-arg]


METHODS: dict[str, tuple[Callable[[Any], object], str]] = {
    "call": (lambda engine: engine.call(seen, scop=Scope()), "Engine.call has no option 'scop'; did you mean 'scope'?"),
    "call_sync": (lambda engine: engine.call_sync(call=seen), "Engine.call_sync has no option 'call'. It takes raw, scope."),
    "call_many": (lambda engine: engine.call_many([], scopes=Scope()), "Engine.call_many has no option 'scopes'; did you mean 'scope'?"),
    "emission": (lambda engine: engine.emission(erly=True), "Engine.emission has no option 'erly'; did you mean 'early'?"),
    "register": (lambda engine: engine.register(seen, layers="mcp"), "Engine.register has no option 'layers'; did you mean 'layer'?"),
    "approve": (lambda engine: engine.approve("1", args={}), "Engine.approve has no option 'args'; did you mean 'arguments'?"),
    "deny": (lambda engine: engine.deny("1", why="no"), "Engine.deny has no option 'why'; did you mean 'reason'?"),
    "deny by whom": (lambda engine: engine.deny("1", user="ann"), "Engine.deny has no option 'user'; did you mean 'by'?"),
    "answer": (lambda engine: engine.answer("1", allowed=True), "Engine.answer has no option 'allowed'; did you mean 'allow'?"),
    "settle": (lambda engine: engine.settle("1", happend=True), "Engine.settle has no option 'happend'; did you mean 'happened'?"),
    "settle without a word": (lambda engine: engine.settle("1"), "Engine.settle lacks happened. It takes uid, happened, by, reason."),
    "respond": (lambda engine: engine.respond({}, scop=Scope()), "Engine.respond has no option 'scop'; did you mean 'scope'?"),
    "respond_sync": (lambda engine: engine.respond_sync({}, tool=1), "Engine.respond_sync has no option 'tool'. It takes response, scope,"),
    "watch": (lambda engine: engine.watch([], providr="openai"), "Engine.watch has no option 'providr'; did you mean 'provider'?"),
    "schemas": (lambda engine: engine.schemas("openai", name="seen"), "Engine.schemas has no option 'name'; did you mean 'names'?"),
    "schemas of one name": (lambda engine: engine.schemas("openai", "seen"), "schemas(names='seen'): it must be a list of names of tools"),
    "schemas of a number": (lambda engine: engine.schemas("openai", 3), "schemas(names=3): it must be a list of names of tools"),
    "schemas in no scope": (lambda engine: engine.schemas("openai", scope="x"), "A str was handed in as a scope. Give callgate.Scope(...)"),
    "wake": (lambda engine: engine.wake(thread="t"), "Engine.wake has no option 'thread'; did you mean 'conversation'?"),
}


@pytest.mark.parametrize(("use", "said"), METHODS.values(), ids=METHODS)
async def test_a_wrong_keyword_of_a_method_of_an_engine_is_answered_with_the_names(use: Any, said: str) -> None:
    async with Engine([seen]) as engine:
        with pytest.raises(UsageError) as caught:
            await use(engine)
    assert str(caught.value).startswith(said)
