"""Hooks before and after calls: their order, matching and timeouts. Observers are isolated, and other hooks fail closed."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from callgate import Allow, Ask, Deny, Engine, Hook, Limits, Modify, Scope, after_call, before_call, tool
from callgate.errors import UsageError
from callgate.protocols import Verdict
from callgate.stage_types import Checked, ValidatedCall
from tests.canonical_json import canonical
from tests.engine_calls import call, kinds, said
from tests.waiting import HANGS_S, PATIENCE_S


@tool(effect="none")
async def read(path: str) -> str:
    """Read."""
    return f"secret of {path}"


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


async def test_hooks_run_in_order_of_priority_and_only_for_matching_tools() -> None:
    seen: list[str] = []

    @before_call("re*", priority=200)
    def second(call: ValidatedCall) -> None:
        seen.append("second")

    @before_call(priority=10)
    async def first(call: ValidatedCall) -> None:
        seen.append("first")

    @before_call("pay")
    def other(call: ValidatedCall) -> None:
        seen.append("other")

    @after_call()
    def last(call: ValidatedCall, result: Checked) -> None:
        seen.append(f"after {result.value}")

    async with Engine([read, pay], hooks=[second, first, other, last]) as engine:
        await said(engine, call("read", path="p"))
    assert seen == ["first", "second", "after secret of p"]


async def test_a_failing_observe_hook_is_recorded_and_does_not_affect_the_call() -> None:
    @before_call()
    def breaks(call: ValidatedCall) -> None:
        raise RuntimeError("metrics are down")

    @after_call()
    async def breaks_too(call: ValidatedCall, result: Checked) -> None:
        raise RuntimeError("metrics are down")

    async with Engine([read], hooks=[breaks, breaks_too]) as engine:
        assert (await said(engine, call("read", path="p"))).success
        assert kinds(engine).count("hook.failed") == 2


async def test_a_transform_hook_changes_the_result_that_the_model_sees() -> None:
    @after_call("read", kind="transform")
    def redact(call: ValidatedCall, result: Checked) -> str:
        return str(result.value).replace("secret", "[hidden]")

    async with Engine([read], hooks=[redact]) as engine:
        assert (await said(engine, call("read", path="p"))).text == "[hidden] of p"


async def test_a_result_returned_by_a_transform_hook_is_checked_again() -> None:
    @after_call("read", kind="transform")
    def nonsense(call: ValidatedCall, result: Checked) -> object:
        return object()

    async with Engine([read], hooks=[nonsense]) as engine:
        result = await said(engine, call("read", path="p"))
    assert not result.success
    assert "secret" not in result.text


async def test_a_rejected_result_is_neither_shown_nor_stored() -> None:
    @after_call("read", kind="reject")
    def no_secrets(call: ValidatedCall, result: Checked) -> str | None:
        return "it contains a secret" if "secret" in str(result.value) else None

    async with Engine([read], hooks=[no_secrets]) as engine:
        result = await said(engine, call("read", path="p"))
        stored = b"".join(event.body for event in engine.journal.read())
    assert result.failure_class == "rejected_by_hook"
    assert "it contains a secret" in result.text
    assert b"secret of p" not in stored


async def test_a_failing_reject_or_transform_hook_withholds_the_result() -> None:
    for kind in ("reject", "transform"):

        @after_call("read", kind=kind)
        def breaks(call: ValidatedCall, result: Checked) -> None:
            raise RuntimeError("down")

        async with Engine([read], hooks=[breaks]) as engine:
            assert (await said(engine, call("read", path="p"))).failure_class == "rejected_by_hook"


async def test_a_failing_reject_hook_before_the_call_denies_it() -> None:
    @before_call("pay", kind="reject")
    def breaks(call: ValidatedCall) -> None:
        raise RuntimeError("down")

    async with Engine([pay], hooks=[breaks]) as engine:
        result = await said(engine, call("pay", amount=1))
    assert (result.failure_class, result.code) == ("denied", "hook_failed")


async def test_a_reject_hook_before_the_call_stops_it_from_running() -> None:
    @before_call("pay", kind="reject")
    def closed(call: ValidatedCall) -> str:
        return "the bank is closed; come back at nine"

    async with Engine([pay], hooks=[closed]) as engine:
        result = await said(engine, call("pay", amount=1))
        assert "call.started" not in kinds(engine)
    assert "come back at nine" in result.text


async def test_a_hook_has_a_time_limit() -> None:
    @before_call("pay", kind="reject")
    async def slow(call: ValidatedCall) -> None:
        await asyncio.Event().wait()

    async with Engine([pay], hooks=[slow], limits=Limits(hook_timeout_s=0.05)) as engine:
        assert (await said(engine, call("pay", amount=1))).code == "hook_failed"


async def test_after_call_hooks_see_failed_calls_but_not_refused_ones() -> None:
    seen: list[str] = []

    @tool(effect="none")
    async def fail() -> None:
        """Fail."""
        raise ValueError("no")

    @after_call()
    def watch(call: ValidatedCall, result: Checked) -> None:
        seen.append(f"{call.name} {result.status}")

    async with Engine([fail, pay], hooks=[watch]) as engine:
        await said(engine, call("fail"))
        await said(engine, call("pay", amount="x"))
    assert seen == ["fail error"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"tools": "pay"}, "tools='pay'"),
        ({"tools": ()}, "tools=()"),
        ({"tools": None}, "tools=None"),
        ({"tools": ("pay", 5)}, "tools=('pay', 5)"),
        ({"effects": "once"}, "effects='once'"),
        ({"effects": ("onec",)}, "effects=('onec',)"),
        ({"categories": ("dangerous", "danger")}, "categories=('dangerous', 'danger')"),
    ],
)
def test_a_hook_that_could_never_match_is_refused_at_once(wrong: dict[str, Any], named: str) -> None:
    """A `reject` hook that matches nothing would let every call pass unnoticed."""
    with pytest.raises(UsageError) as caught:
        Hook(run=print, phase="before", kind="reject", **wrong)
    assert named in str(caught.value)
    assert "it must be" in str(caught.value)


@pytest.mark.parametrize("kind", ["observe", "transform", "reject"])
@pytest.mark.parametrize("put", [object(), "seen"], ids=["what is not JSON", "text"])
async def test_an_in_place_change_of_a_result_by_a_hook_has_no_effect(kind: Any, put: object) -> None:
    """Observers are isolated, and every change of a result is checked before the model gets it."""

    @tool(effect="none")
    async def look() -> dict[str, Any]:
        """Look."""
        return {"success": True, "z": [1], "a": {"b": 2}, "image_metadata": {"width": 3}}

    @after_call(kind=kind)
    def writes_into_it(call: ValidatedCall, result: Checked) -> None:
        assert isinstance(result.value, dict)
        assert isinstance(result.image_metadata, dict)
        result.value["a"]["b"] = result.image_metadata["width"] = put
        result.value["z"].clear()

    @after_call(priority=200)
    def later(call: ValidatedCall, result: Checked) -> None:
        assert isinstance(result.value, dict)
        assert (result.value["z"], result.value["a"]) == ([1], {"b": 2})

    async with Engine([look], hooks=[writes_into_it, later]) as engine:
        result = await said(engine, call("look"))
        assert "hook.failed" not in kinds(engine)
    assert (result.status, result.image_metadata) == ("ok", {"width": 3})
    assert result.text == '{"success":true,"z":[1],"a":{"b":2},"image_metadata":{"width":3}}'


async def test_an_in_place_change_of_failure_details_by_a_hook_has_no_effect() -> None:
    over = threading.Event()

    @tool(effect="none", timeout_s=0.01, retryable=False)
    def hang() -> None:
        """Hang."""
        over.wait()

    @after_call()
    def writes_into_it(call: ValidatedCall, result: Checked) -> None:
        assert result.details is not None
        result.details["abandoned"] = object()

    async with Engine([hang], hooks=[writes_into_it]) as engine:
        result = await said(engine, call("hang"))
        over.set()
        assert "hook.failed" not in kinds(engine)
    assert (result.status, result.code) == ("error", "timeout")
    assert '"abandoned":true' in result.text


async def test_the_timeout_of_a_hook_may_be_shorter_than_the_engines_hook_timeout() -> None:
    @before_call("pay", kind="reject", timeout_s=0.01)
    async def hangs(call: ValidatedCall) -> None:
        await asyncio.Event().wait()

    async with Engine([pay], hooks=[hangs], limits=Limits(hook_timeout_s=HANGS_S)) as engine:
        result = await asyncio.wait_for(said(engine, call("pay", amount=1)), PATIENCE_S)
    assert (result.failure_class, result.code) == ("denied", "hook_failed")
    assert "took too long" in str(result.error)


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_the_timeout_of_a_hook_may_be_longer_than_the_engines_hook_timeout(phase: str) -> None:
    async def waits(*_: object) -> None:
        await asyncio.sleep(0.03)

    hook = before_call if phase == "before" else after_call
    slow = hook("pay", kind="reject", timeout_s=PATIENCE_S)(waits)
    async with Engine([pay], hooks=[slow], limits=Limits(hook_timeout_s=0.001)) as engine:
        assert (await said(engine, call("pay", amount=1))).success


async def test_observers_before_a_call_see_only_calls_that_will_run_with_final_arguments() -> None:
    """Observers run after the gate: they do not see denied calls, calls that wait for approval, or calls answered from the cache."""
    seen: list[object] = []

    @tool(effect="none", cacheable=True, cache_scope="session")
    async def look(n: int) -> int:
        """Look."""
        return n

    class Judge:
        async def decide(self, call: ValidatedCall) -> Verdict:
            match call.arguments["n"]:
                case 1:
                    return Deny(reason="no")
                case 2:
                    return Ask(question="may it?")
                case 3:
                    return Modify(arguments={"n": 4}, reason="three is too few")
                case _:
                    return Allow()

    @before_call("look")
    async def observer(call: ValidatedCall) -> None:
        started = [event.kind for event in engine.journal.read(call=call.uid)]
        seen.append((call.arguments["n"], "call.started" in started))

    async with Engine([look], policies=[Judge()], hooks=[observer]) as engine:
        for n in (1, 2, 3, 4, 5):
            await engine.call(call("look", n=n))
    assert seen == [(4, False), (5, False)]


async def test_observers_do_not_see_a_call_that_an_unknown_outcome_prevents() -> None:
    """The outcome may also become unknown while the observers run."""
    seen: list[str] = []
    entered, first_ended = asyncio.Event(), asyncio.Event()

    @tool(writes=())
    async def transfer() -> str:
        """Transfer, and lose the reply."""
        runs.append("")
        raise ConnectionResetError("lost")

    runs: list[str] = []

    @before_call("transfer")
    async def observer(call: ValidatedCall) -> None:
        seen.append(call.raw.id)
        if call.raw.id == "second":
            entered.set()
            await first_ended.wait()

    async with Engine([transfer], hooks=[observer]) as engine:
        second = asyncio.create_task(said(engine, call("transfer", id="second")))
        await entered.wait()
        assert (await said(engine, call("transfer", id="first"))).status == "unknown"
        first_ended.set()
        assert (await second).status == "unknown"
        assert (await said(engine, call("transfer", id="third"))).status == "unknown"
    assert (seen, len(runs)) == (["second", "first"], 1)


@pytest.mark.parametrize("status", ["failed", "declared"])
async def test_a_transform_hook_changes_the_text_of_a_failure(status: str) -> None:
    """An exception may contain a secret. The hook cannot turn a failure into a success."""

    @tool(effect="none", retryable=False)
    async def login() -> dict[str, object]:
        """Fail."""
        if status == "declared":
            return {"success": False, "error": "hunter2 is wrong", "data": "hunter2"}
        raise ValueError("hunter2 is wrong")

    @after_call(kind="transform")
    def hide(call: ValidatedCall, result: Checked) -> Checked:
        value = json.loads(canonical(result.value).replace(b"hunter2", b"[hidden]"))
        return replace(result, status="ok", value=value, error=str(result.error).replace("hunter2", "[hidden]"))

    async with Engine([login], hooks=[hide]) as engine:
        result = await said(engine, call("login"))
        record = b"".join(event.body for event in engine.journal.read())
    assert (result.status, result.failure_class) == ("error", "exception" if status == "failed" else "tool_declared")
    assert "[hidden] is wrong" in str(result.error)
    assert "hunter2" not in repr(result)
    assert b"hunter2" not in record


@pytest.mark.parametrize("put", [{"success": False, "error": "[hidden] is wrong"}, "hidden"], ids=["a failure", "a text"])
async def test_a_transform_hook_that_replaces_a_value_also_replaces_its_declared_error(put: object) -> None:
    @tool(effect="none", retryable=False)
    async def login() -> dict[str, object]:
        """Fail."""
        return {"success": False, "error": "hunter2 is wrong", "message": "not hunter2", "image_metadata": {"alt": "hunter2"}}

    @after_call(kind="transform")
    def hide(call: ValidatedCall, result: Checked) -> object:
        return put

    async with Engine([login], hooks=[hide]) as engine:
        result = await said(engine, call("login"))
    assert (result.status, result.failure_class, result.structured) == ("error", "tool_declared", put)
    assert result.error == ("[hidden] is wrong" if isinstance(put, dict) else "the tool reported a failure")
    assert "hunter2" not in repr(result)


@pytest.mark.parametrize(
    "changes",
    [{"error": None}, {"error": 5}, {"details": [1]}, {"details": {"a": object()}}],
    ids=["no error", "a number", "a list", "what is not JSON"],
)
async def test_a_failure_made_invalid_by_a_transform_hook_is_withheld(changes: dict[str, Any]) -> None:
    @tool(effect="none", retryable=False)
    async def login() -> str:
        """Fail."""
        raise ValueError("hunter2 is wrong")

    @after_call(kind="transform")
    def odd(call: ValidatedCall, result: Checked) -> Checked:
        return replace(result, **changes)

    async with Engine([login], hooks=[odd]) as engine:
        result = await said(engine, call("login"))
    assert (result.failure_class, "hunter2" in repr(result)) == ("rejected_by_hook", False)


async def test_observers_do_not_see_a_call_that_a_stop_prevents() -> None:
    seen: list[str] = []

    class Stops:
        async def decide(self, call: ValidatedCall) -> Verdict:
            engine.control.stop("c")
            return Allow()

    @before_call("pay")
    def observer(call: ValidatedCall) -> None:
        seen.append(call.name)

    async with Engine([pay], policies=[Stops()], hooks=[observer]) as engine:
        outcome = await engine.call(call("pay", amount=1), Scope(conversation="c"))
    assert (type(outcome).__name__, seen) == ("Aborted", [])
