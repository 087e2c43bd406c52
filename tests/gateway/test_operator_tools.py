"""Operators decide about the calls of other principals with tools of the gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine, RawCall, Scope, SqliteJournal, Suspended, UsageError, inbox, tool
from callgate.gateway import Gateway, Principal
from tests.gateway.raw_client import Era, RawClient
from tests.gateway.test_approvals import Message, approval, eras, form, gateway, paid, text

pytestmark = [pytest.mark.process]

TOOLS = ["callgate_approvals", "callgate_approve", "callgate_deny"]
OPERATOR: Message = {"name": "bob", "role": "operator"}


class NoExchange:
    """The way back to a client that is sent nothing but responses."""

    def send(self, message: Message) -> bool:
        raise AssertionError(f"{message} was sent")


async def waiting(operator: RawClient) -> list[Any]:
    result = (await operator.call("callgate_approvals", {}))["result"]
    found = result["structuredContent"]["approvals"]
    assert all(one["approval"] in result["content"][0]["text"] for one in found)
    return list(found)


@eras
async def test_an_operator_sees_a_call_of_another_process_and_lets_it_run_once(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era, {}) as client, gateway(tmp_path, era, principal=OPERATOR) as operator:
        asked = approval(await client.call("pay", {"amount": 3, "note": "a\x1bb"}))
        (one,) = await waiting(operator)
        assert (one["approval"], one["principal"], one["tool"]) == (asked, "ada", "pay")
        assert (one["arguments"], one["rule"]) == ({"amount": 10, "note": "a\x1bb"}, "large (rules:2)")
        assert one["asked_at"] < one["expires_at"]
        decided = (await operator.call("callgate_approve", {"approval": asked, "reason": "known payee"}))["result"]
        assert decided["structuredContent"] | {"message": ""} == {"approval": asked, "status": "approved", "by": "bob", "message": ""}
        assert await waiting(operator) == []
        assert text(await client.call("pay", {"amount": 3, "note": "a\x1bb"})) == "paid 10"
    assert paid(tmp_path) == ["10"]


@eras
async def test_an_operator_denies_a_call_and_its_model_is_told_who_did_and_why(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era, {}) as client, gateway(tmp_path, era, principal=OPERATOR) as operator:
        asked = approval(await client.call("pay", {"amount": 3}))
        decided = (await operator.call("callgate_deny", {"approval": asked, "reason": "wrong account"}))["result"]
        assert decided["structuredContent"]["status"] == "denied"
        assert "bob said no: wrong account" in text(await client.call("pay", {"amount": 3}))
    assert paid(tmp_path) == []


async def test_an_operator_lets_a_call_run_with_other_arguments(tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake", {}) as client, gateway(tmp_path, "stateless", principal=OPERATOR) as operator:
        asked = approval(await client.call("pay", {"amount": 3}))
        await operator.call("callgate_approve", {"approval": asked, "arguments": {"amount": 20}})
        assert "paid 20" in text(await client.call("pay", {"amount": 3}))
    assert paid(tmp_path) == ["20"]


async def test_an_answer_reaches_the_process_in_which_the_form_is_open(tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake") as client, gateway(tmp_path, "handshake", principal=OPERATOR) as operator:
        asked = await form(client)
        (one,) = await waiting(operator)
        decided = (await operator.call("callgate_approve", {"approval": one["approval"]}))["result"]
        assert decided["structuredContent"]["status"] in ("approved", "sent")
        assert (await client.next_message())["method"] == "notifications/cancelled"
        assert text(await asked.response) == "paid 10"
    assert paid(tmp_path) == ["10"]


async def test_other_arguments_without_an_optional_one_reach_a_process_that_works_on_the_run(tmp_path: Path) -> None:
    paid: list[int] = []
    begun, end = asyncio.Event(), asyncio.Event()

    @tool(requires_approval=True)
    async def pay(amount: int, note: str = "") -> str:
        """Pay an amount."""
        paid.append(amount)
        return f"paid {amount}"

    @tool(effect="none")
    async def work() -> str:
        """Work until the end."""
        begun.set()
        await end.wait()
        return "done"

    call, scope = RawCall(id="c1", name="pay", arguments={"amount": 3, "note": "rent"}), Scope(run="r", principal="ada")
    async with (
        Engine([pay, work], journal=SqliteJournal(tmp_path / "journal.db")) as engine,
        gateway(tmp_path, "handshake", principal=OPERATOR) as operator,
    ):
        working = asyncio.create_task(engine.call(RawCall(name="work", arguments={}), Scope(run="r", conversation="other")))
        await begun.wait()
        asked = await engine.call(call, scope)
        assert isinstance(asked, Suspended)
        decided = await operator.call("callgate_approve", {"approval": asked.approval_id, "arguments": {"amount": 20}})
        assert decided["result"]["structuredContent"]["status"] in ("approved", "sent")
        assert await engine.wait_for_answer(asked.approval_id) is not None
        await engine.call(call, scope)
        end.set()
        await working
    assert paid == [20]


@eras
async def test_nobody_decides_about_a_call_under_their_own_name(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era, {}, principal=OPERATOR) as operator:
        asked = approval(await operator.call("pay", {"amount": 3}))
        for name in TOOLS[1:]:
            refused = await operator.call(name, {"approval": asked, "reason": "mine"})
            assert refused["result"]["isError"] is True
            assert "made under your own name, bob" in text(refused)
    (left,) = inbox.waiting(tmp_path / "journal.db")
    assert (left.approval, left.sent) == (asked, None)


@eras
async def test_the_tools_do_not_exist_for_clients(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era, {}) as client, gateway(tmp_path, era, {}, principal=OPERATOR) as operator:
        assert [one["name"] for one in (await client.request("tools/list", {}))["result"]["tools"]] == ["pay", "look"]
        offered = (await operator.request("tools/list", {}))["result"]["tools"]
        assert [one["name"] for one in offered] == ["pay", "look", *TOOLS]
        assert all({"description", "inputSchema", "outputSchema", "annotations"} <= one.keys() for one in offered[2:])
        asked = approval(await client.call("pay", {"amount": 3}))
        for name in TOOLS:
            refused = (await client.call(name, {"approval": asked}))["error"]
            assert (refused["code"], refused["message"]) == (-32602, f"Unknown tool: {name}")
    (left,) = inbox.waiting(tmp_path / "journal.db")
    assert left.sent is None


@eras
async def test_a_principal_with_some_tools_reaches_no_other_one_by_a_similar_name(era: Era, tmp_path: Path) -> None:
    few = {"name": "eve", "tools": ["look*", "P*", "functions.*"]}
    async with gateway(tmp_path, era, {}, principal=few) as client:
        assert text(await client.call("look", {})) == "seen"
        for name in ("pay", "Pay", "functions.pay", "looking"):
            refused = (await client.call(name, {"amount": 3}))["error"]
            assert (refused["code"], refused["message"]) == (-32602, f"Unknown tool: {name}")
    assert inbox.waiting(tmp_path / "journal.db") == []


async def test_an_answer_to_no_open_question_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake", principal=OPERATOR) as operator:
        unknown = await operator.call("callgate_approve", {"approval": "mcp-1/0/0"})
        by_earlier_name = await operator.call("callgate_approve", {"approval_id": "mcp-1/0/0"})
        assert text(by_earlier_name) == text(unknown)
        incomplete = await operator.call("callgate_deny", {"approval": "mcp-1/0/0"})
        assert unknown["result"]["isError"] is incomplete["result"]["isError"] is True
        assert "No approval 'mcp-1/0/0' is open. `callgate_approvals` lists those that are." in text(unknown)
        assert "missing required field `reason`. It takes: approval, reason" in text(incomplete)


async def test_a_tool_with_the_name_of_an_operator_tool_is_refused_when_the_gateway_starts() -> None:
    @tool(name="callgate_approve")
    def approve() -> None:
        """Approve anything."""

    with pytest.raises(UsageError, match="callgate_approve is the name of a tool of the gateway"):
        async with Gateway(Engine([approve])):
            pass


async def test_a_tool_with_such_a_name_that_comes_later_is_not_offered() -> None:
    @tool(name="callgate_deny")
    def deny() -> None:
        """Deny everything."""

    engine = Engine([])
    async with Gateway(engine) as served:
        session = served.handshake(Principal(name="ada"))
        await session.request({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}, NoExchange())
        engine.register(deny)
        listed = await session.request({"id": 2, "method": "tools/list"}, NoExchange())
        called = await session.request({"id": 3, "method": "tools/call", "params": {"name": "callgate_deny"}}, NoExchange())
    assert listed is not None
    assert called is not None
    assert (listed["result"]["tools"], called["error"]["code"]) == ([], -32602)
