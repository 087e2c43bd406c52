"""What the user of a client is asked about the client's own call, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from callgate import inbox
from tests.gateway import approval_gateway
from tests.gateway.raw_client import Era, RawClient, raw_client
from tests.waiting import until

pytestmark = [pytest.mark.process]

Message = dict[str, Any]
FORM: Mapping[str, Any] = {"elicitation": {"form": {}}}
YES: Mapping[str, Any] = {"action": "accept", "content": {"approve": True, "reason": "fine"}}
eras = pytest.mark.parametrize("era", get_args(Era))


def gateway(tmp_path: Path, era: Era, capabilities: Mapping[str, Any] = FORM, **settings: Any) -> AbstractAsyncContextManager[RawClient]:
    return raw_client(partial(approval_gateway.serve, {**_files(tmp_path), **settings}), era, capabilities)


def gateway_process(tmp_path: Path, era: Era, capabilities: Mapping[str, Any] = FORM) -> AbstractAsyncContextManager[RawClient]:
    """Return a client of a gateway that can be killed."""
    return raw_client(command(tmp_path), era, capabilities)


def command(tmp_path: Path) -> list[str]:
    return [sys.executable, "-m", "tests.gateway.approval_gateway", json.dumps(_files(tmp_path))]


def _files(folder: Path) -> dict[str, Any]:
    return {"ledger": str(folder / "ledger"), "journal": str(folder / "journal.db")}


class OpenForm:
    """A call whose user has a form before them."""

    def __init__(self, client: RawClient, params: Message) -> None:
        self.client, self.params = client, params
        self.number, self.response = client.begin("tools/call", params)
        self.question: Message = {}
        self.state = ""

    async def shown(self) -> OpenForm:
        if self.client.era == "handshake":
            self.question = await self.client.next_message()
            assert self.question["method"] == "elicitation/create"
        else:
            result = (await self.response)["result"]
            assert result["resultType"] == "input_required"
            ((_, self.question),) = result["inputRequests"].items()
            self.state = result["requestState"]
        return self

    @property
    def message(self) -> str:
        return str(self.question["params"]["message"])

    async def answered(self, answer: Mapping[str, Any], **changed: Any) -> Message:
        """Send the user's answer, and return the response to the call."""
        if self.client.era == "handshake":
            self.client.send({"jsonrpc": "2.0", "id": self.question["id"], "result": answer})
            return await self.response
        more = {"inputResponses": {"approval": answer}, "requestState": self.state}
        return await self.client.request("tools/call", {**self.params, **more, **changed})


async def form(client: RawClient, amount: int = 3, **arguments: Any) -> OpenForm:
    return await OpenForm(client, {"name": "pay", "arguments": {"amount": amount, **arguments}}).shown()


def text(response: Message) -> str:
    return str(response["result"]["content"][0]["text"])


def paid(tmp_path: Path) -> list[str]:
    ledger = tmp_path / "ledger"
    return ledger.read_text().split() if ledger.exists() else []


def approval(response: Message) -> str:
    """Return the id of the question for which a call waits."""
    assert response["result"]["isError"] is True
    told = response["result"]["_meta"]["callgate/outcome"]
    assert (told["status"], told["code"]) == ("waiting", "approval_needed")
    assert told["approval"] in text(response)
    return str(told["approval"])


@eras
async def test_the_user_sees_the_tool_the_final_arguments_and_the_rule(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era) as client:
        asked = await form(client, 3, note="a\u202eb\n  amount: 1\x1b[2J")
        lines = asked.message.splitlines()
        await asked.answered({"action": "cancel"})
    assert lines[0].startswith("Is this payment right")
    assert lines[2:] == [
        "Tool: pay",
        "Arguments:",
        "  amount: 10",
        r'  note: "a\u202eb\n  amount: 1\u001b[2J"',
        "Asked by: large (rules:2)",
    ]


@eras
async def test_long_arguments_are_shown_shortened_and_the_form_says_so(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era) as client:
        asked = await form(client, 3, note="x" * 100_000)
        await asked.answered({"action": "cancel"})
    assert len(asked.message) < 20_000
    assert "(100,002 characters in all)" in asked.message
    assert "Not all of the arguments are shown" in asked.message


@eras
async def test_an_approved_call_runs_once_with_what_was_shown(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era) as client:
        response = await (await form(client)).answered(YES)
        assert text(response) == "paid 10"
        again = await form(client)
        assert approval(await again.answered({"action": "cancel"}))
    assert paid(tmp_path) == ["10"]


@eras
@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "accept", "content": {"approve": False, "reason": "too much"}}])
async def test_a_refused_call_does_not_run(era: Era, answer: Message, tmp_path: Path) -> None:
    async with gateway(tmp_path, era) as client:
        response = await (await form(client)).answered(answer)
    assert response["result"]["isError"] is True
    assert "the user of ada said no" in text(response)
    assert answer.get("content", {}).get("reason", "") in text(response)
    assert paid(tmp_path) == []


@eras
@pytest.mark.parametrize("answer", [{"action": "cancel"}, {"action": "accept", "content": {"approve": "yes"}}, {"action": "accept"}])
async def test_a_call_without_a_clear_answer_stays_pending(era: Era, answer: Message, tmp_path: Path) -> None:
    async with gateway(tmp_path, era) as client:
        response = await (await form(client)).answered(answer)
        waiting = inbox.waiting(tmp_path / "journal.db")
    assert [one.approval for one in waiting] == [approval(response)]
    assert "make the same call again" in text(response)
    assert paid(tmp_path) == []


@eras
@pytest.mark.parametrize(
    ("capabilities", "principal"),
    [({}, {}), ({"elicitation": {"url": {}}}, {}), (FORM, {"approves": False})],
    ids=["no forms", "only links", "not allowed to"],
)
async def test_a_call_that_its_client_cannot_approve_is_approved_elsewhere_and_runs_once_when_made_again(
    era: Era, capabilities: Message, principal: Message, tmp_path: Path
) -> None:
    async with gateway(tmp_path, era, capabilities, principal=principal) as client:
        first = await client.call("pay", {"amount": 3})
        sent = inbox.approve(tmp_path / "journal.db", approval(first), by="bob")
        if sent.held_by:
            await asyncio.to_thread(lambda: inbox.outcome(tmp_path / "journal.db", sent.id, wait_s=30.0))
        assert text(await client.call("pay", {"amount": 3})) == "paid 10"
        assert approval(await client.call("pay", {"amount": 3})) != approval(first)
        assert client.messages.empty()
    assert paid(tmp_path) == ["10"]


async def test_an_operators_answer_counts_and_withdraws_the_form_of_a_session(tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake") as client:
        asked = await form(client)
        (waiting,) = inbox.waiting(tmp_path / "journal.db")
        inbox.approve(tmp_path / "journal.db", waiting.approval, by="bob")
        withdrawn = await client.next_message()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == asked.question["id"]
        assert text(await asked.response) == "paid 10"
        client.send({"jsonrpc": "2.0", "id": asked.question["id"], "result": {"action": "decline"}})
        assert text(await client.call("look", {})) == "seen"
    assert paid(tmp_path) == ["10"]


async def test_an_operators_answer_counts_before_that_of_a_continued_request(tmp_path: Path) -> None:
    async with gateway(tmp_path, "stateless") as client:
        asked = await form(client)
        (waiting,) = inbox.waiting(tmp_path / "journal.db")
        sent = inbox.deny(tmp_path / "journal.db", waiting.approval, by="bob", reason="not today")
        if sent.held_by:
            await asyncio.to_thread(lambda: inbox.outcome(tmp_path / "journal.db", sent.id, wait_s=30.0))
        response = await asked.answered(YES)
    assert "bob said no: not today" in text(response)
    assert paid(tmp_path) == []


@pytest.mark.parametrize("changed", ["state", "arguments", "tool", "used"])
async def test_a_state_that_was_changed_or_used_or_is_of_another_call_is_refused(changed: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, "stateless") as client:
        asked = await form(client)
        more: Message = {}
        if changed == "state":
            more = {"requestState": asked.state[:-9] + ("A" if asked.state[-9] != "A" else "B") + asked.state[-8:]}
        elif changed == "arguments":
            more = {"arguments": {"amount": 90}}
        elif changed == "tool":
            more = {"name": "look", "arguments": {}}
        else:
            assert text(await asked.answered(YES)) == "paid 10"
        response = await asked.answered(YES, **more)
        assert response["error"]["code"] == -32602
        assert ("continued already" in response["error"]["message"]) == (changed == "used")
    assert paid(tmp_path) == (["10"] if changed == "used" else [])


async def test_a_state_sent_twice_at_once_runs_the_call_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, "stateless") as client:
        asked = await form(client)
        responses = await asyncio.gather(*(asked.answered(YES) for _ in range(5)))
    assert [text(one) for one in responses if "result" in one] == ["paid 10"]
    assert {one["error"]["code"] for one in responses if "error" in one} == {-32602}
    assert paid(tmp_path) == ["10"]


async def test_a_state_of_another_principal_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path, "stateless") as client:
        asked = await form(client)
    async with gateway(tmp_path, "stateless", principal={"name": "eve"}) as other:
        asked.client = other
        assert (await asked.answered(YES))["error"]["code"] == -32602
    assert paid(tmp_path) == []


async def test_the_form_of_an_expired_question_is_withdrawn(tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake", approval_s=1.0) as client:
        asked = await form(client)
        assert (await client.next_message())["method"] == "notifications/cancelled"
        told = text(await asked.response)
        assert "has not run" in told
        assert "nobody has answered in time" in told
        assert "Made again, the call asks again." in told
        again = await form(client)
        assert text(await again.answered(YES)) == "paid 10"


async def test_a_state_of_an_expired_question_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path, "stateless", approval_s=0.2) as client:
        asked = await form(client)
        await until(lambda: not inbox.waiting(tmp_path / "journal.db"))
        assert (await asked.answered(YES))["error"]["code"] == -32602
    assert paid(tmp_path) == []


@eras
async def test_open_forms_take_no_places_of_their_principal(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era, principal={"parallel": 1, "queued": 1}) as client:
        opened = [await form(client, amount) for amount in (10, 20, 30)]
        assert text(await client.call("look", {})) == "seen"
        assert [text(await one.answered(YES)) for one in opened] == ["paid 10", "paid 20", "paid 30"]


async def test_a_client_that_goes_away_while_its_form_is_open_leaves_the_call_pending(tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake") as client:
        await form(client)
    (waiting,) = inbox.waiting(tmp_path / "journal.db")
    inbox.approve(tmp_path / "journal.db", waiting.approval, by="bob")
    async with gateway(tmp_path, "handshake") as client:
        assert text(await client.call("pay", {"amount": 3})) == "paid 10"
        assert client.messages.empty()
    assert paid(tmp_path) == ["10"]


@eras
async def test_a_client_cannot_fill_the_queue_with_questions(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era, {}, principal={"pending": 2}) as client:
        first = await client.call("pay", {"amount": 10})
        second = await client.call("pay", {"amount": 20})
        refused = await client.call("pay", {"amount": 30})
        assert "has not run: a human has to approve it, and 2 calls of ada wait for a decision, which is the limit" in text(refused)
        assert "Wait until one of them is decided, then make the call again." in text(refused)
        assert refused["result"]["_meta"]["callgate/outcome"]["code"] == "too_many_pending"
        open_ones = [one.approval for one in inbox.waiting(tmp_path / "journal.db")]
        assert open_ones == [approval(first), approval(second)]
        assert approval(await client.call("pay", {"amount": 10})) == approval(first), "a call that waits is not one more"
        sent = inbox.deny(tmp_path / "journal.db", approval(first), by="bob")
        await asyncio.to_thread(lambda: inbox.outcome(tmp_path / "journal.db", sent.id, wait_s=30.0))
        assert approval(await client.call("pay", {"amount": 40}))
    assert paid(tmp_path) == []


async def test_an_expired_question_leaves_its_place_in_the_queue(tmp_path: Path) -> None:
    async with gateway(tmp_path, "stateless", {}, principal={"pending": 1}, approval_s=1e-6) as client:
        for amount in (10, 20, 30):
            assert approval(await client.call("pay", {"amount": amount}))
