"""Calls that wait for approval outlive the gateway that was asked for them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.gateway.raw_client import Era
from tests.gateway.test_approvals import YES, approval, eras, form, gateway, paid, text

pytestmark = [pytest.mark.process]


async def callgate(*words: str) -> str:
    """Run a command of callgate, and return what it prints."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "callgate.cli", *words, stdout=pipe, stderr=pipe)
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


@eras
@pytest.mark.parametrize("restarted", get_args(Era))
async def test_a_call_that_waits_when_the_gateway_is_killed_runs_once_when_it_is_approved_and_made_again(
    era: Era, restarted: Era, tmp_path: Path
) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway(tmp_path, era, {}) as client:
        first = approval(await client.call("pay", {"amount": 3, "note": "rent"}))
        client.process.kill()
        await client.process.wait()
    (shown,) = (json.loads(line) for line in (await callgate("approvals", "--journal", journal, "--json")).splitlines())
    assert (shown["approval"], shown["principal"], shown["tool"], shown["rule"]) == (first, "ada", "pay", "large (rules:2)")
    assert json.loads(shown["arguments"]) == {"amount": 10, "note": "rent"}
    await callgate("approve", first, "--journal", journal, "--by", "bob")
    async with gateway(tmp_path, restarted, {}, principal={"name": "eve"}) as other:
        assert approval(await other.call("pay", {"amount": 3, "note": "rent"})) != first
    async with gateway(tmp_path, restarted, {}) as client:
        assert approval(await client.call("pay", {"amount": 4, "note": "rent"})) != first
        assert text(await client.call("pay", {"note": "rent", "amount": 3})) == "paid 10"
        assert approval(await client.call("pay", {"amount": 3, "note": "rent"})) != first
    assert paid(tmp_path) == ["10"]


@pytest.mark.parametrize("note", ["rent " * 20_000, "my password is hunter2"], ids=["large", "secret"])
@pytest.mark.parametrize("restarted", [True, False], ids=["after a restart", "by another gateway"])
async def test_a_call_is_found_whose_arguments_are_not_whole_in_the_journal(note: str, restarted: bool, tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    async with gateway(tmp_path, "handshake", {}) as one:
        first = approval(await one.call("pay", {"amount": 3, "note": note}))
        if restarted:
            one.process.kill()
            await one.process.wait()
        await callgate("approve", first, "--journal", journal, "--by", "bob")
        async with gateway(tmp_path, "stateless", {}) as other:
            assert approval(await other.call("pay", {"amount": 3, "note": note + "!"})) != first
            assert text(await other.call("pay", {"amount": 3, "note": note})) == "paid 10"
            assert approval(await other.call("pay", {"amount": 3, "note": note})) != first
    assert paid(tmp_path) == ["10"]


@eras
async def test_an_open_form_of_a_killed_gateway_is_shown_again_for_the_same_question(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era) as client:
        before = await form(client)
        client.process.kill()
        await client.process.wait()
        before.response.cancel()
    async with gateway(tmp_path, era) as client:
        asked = await form(client)
        assert asked.message == before.message
        assert text(await asked.answered(YES)) == "paid 10"
    assert '"approval' not in await callgate("approvals", "--journal", str(tmp_path / "journal.db"), "--json")
    assert paid(tmp_path) == ["10"]


async def test_a_request_of_before_a_restart_is_continued_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, "stateless") as client:
        asked = await form(client)
        client.process.kill()
        await client.process.wait()
    async with gateway(tmp_path, "stateless") as asked.client:
        assert text(await asked.answered(YES)) == "paid 10"
        assert (await asked.answered(YES))["error"]["code"] == -32602
    assert paid(tmp_path) == ["10"]


@eras
async def test_a_call_that_another_gateway_has_suspended_is_found(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era, {}) as one, gateway(tmp_path, era, {}) as other:
        first = approval(await one.call("pay", {"amount": 3}))
        await callgate("approve", first, "--journal", str(tmp_path / "journal.db"), "--by", "bob")
        assert text(await other.call("pay", {"amount": 3})) == "paid 10"
        assert approval(await one.call("pay", {"amount": 3})) != first
    assert paid(tmp_path) == ["10"]


@eras
async def test_an_approved_call_runs_elsewhere_while_another_form_of_its_session_is_open(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake") as one, gateway(tmp_path, era, {}) as other:
        first = approval(await (await form(one)).answered({"action": "cancel"}))
        still_open = await form(one, 20)
        await callgate("approve", first, "--journal", str(tmp_path / "journal.db"), "--by", "bob")
        assert text(await other.call("pay", {"amount": 3})) == "paid 10"
        assert text(await still_open.answered(YES)) == "paid 20"
    assert paid(tmp_path) == ["10", "20"]
