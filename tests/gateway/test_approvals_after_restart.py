"""Calls that wait for approval outlive the gateway that was asked for them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import get_args

import pytest

from tests.cli.shell import shell
from tests.gateway.raw_client import Era
from tests.gateway.test_approvals import YES, approval, eras, form, gateway, gateway_process, paid, text

pytestmark = [pytest.mark.process]


async def callgate(folder: Path, *words: str) -> str:
    """Run a command of callgate, and return what it prints."""
    done = await asyncio.to_thread(shell, folder, *words, "--journal", str(folder / "journal.db"))
    assert done.code == 0, done.err
    return done.out


@eras
@pytest.mark.parametrize("restarted", get_args(Era))
async def test_a_call_that_waits_when_the_gateway_is_killed_runs_once_when_it_is_approved_and_made_again(
    era: Era, restarted: Era, tmp_path: Path
) -> None:
    async with gateway_process(tmp_path, era, {}) as client:
        first = approval(await client.call("pay", {"amount": 3, "note": "rent"}))
        await client.kill()
    (shown,) = (json.loads(line) for line in (await callgate(tmp_path, "approvals", "--json")).splitlines())
    assert (shown["approval"], shown["principal"], shown["tool"], shown["rule"]) == (first, "ada", "pay", "large (rules:2)")
    assert json.loads(shown["arguments"]) == {"amount": 10, "note": "rent"}
    await callgate(tmp_path, "approve", first, "--by", "bob")
    async with gateway(tmp_path, restarted, {}, principal={"name": "eve"}) as other:
        assert approval(await other.call("pay", {"amount": 3, "note": "rent"})) != first
    async with gateway(tmp_path, restarted, {}) as client:
        assert approval(await client.call("pay", {"amount": 4, "note": "rent"})) != first
        assert text(await client.call("pay", {"note": "rent", "amount": 3})) == "paid 10"
        assert approval(await client.call("pay", {"amount": 3, "note": "rent"})) != first
    assert paid(tmp_path) == ["10"]


async def test_whoever_decides_or_settles_sees_for_whom_the_call_was_made(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, "handshake", {}) as client:
        approval(await client.call("pay", {"amount": 3}))
    shown = await callgate(tmp_path, "approvals")
    assert shown.split()[:3] == ["approval", "tool", "principal"]
    assert shown.splitlines()[1].split()[1:3] == ["pay", "ada"]


@pytest.mark.parametrize("note", ["rent " * 20_000, "my password is hunter2"], ids=["large", "secret"])
@pytest.mark.parametrize("restarted", [True, False], ids=["after a restart", "by another gateway"])
async def test_a_call_is_found_whose_arguments_are_not_whole_in_the_journal(note: str, restarted: bool, tmp_path: Path) -> None:
    async with gateway_process(tmp_path, "handshake", {}) as one:
        first = approval(await one.call("pay", {"amount": 3, "note": note}))
        if restarted:
            await one.kill()
        await callgate(tmp_path, "approve", first, "--by", "bob")
        async with gateway(tmp_path, "stateless", {}) as other:
            assert approval(await other.call("pay", {"amount": 3, "note": note + "!"})) != first
            assert text(await other.call("pay", {"amount": 3, "note": note})) == "paid 10"
            assert approval(await other.call("pay", {"amount": 3, "note": note})) != first
    assert paid(tmp_path) == ["10"]


@eras
async def test_an_open_form_of_a_killed_gateway_is_shown_again_for_the_same_question(era: Era, tmp_path: Path) -> None:
    async with gateway_process(tmp_path, era) as client:
        before = await form(client)
        await client.kill()
        before.response.cancel()
    async with gateway(tmp_path, era) as client:
        asked = await form(client)
        assert asked.message == before.message
        assert text(await asked.answered(YES)) == "paid 10"
    assert '"approval' not in await callgate(tmp_path, "approvals", "--json")
    assert paid(tmp_path) == ["10"]


async def test_a_request_of_before_a_restart_is_continued_once(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, "stateless") as client:
        asked = await form(client)
        await client.kill()
    async with gateway(tmp_path, "stateless") as asked.client:
        assert text(await asked.answered(YES)) == "paid 10"
        assert (await asked.answered(YES))["error"]["code"] == -32602
    assert paid(tmp_path) == ["10"]


@eras
async def test_a_call_that_another_gateway_has_suspended_is_found(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, era, {}) as one, gateway(tmp_path, era, {}) as other:
        first = approval(await one.call("pay", {"amount": 3}))
        await callgate(tmp_path, "approve", first, "--by", "bob")
        assert text(await other.call("pay", {"amount": 3})) == "paid 10"
        assert approval(await one.call("pay", {"amount": 3})) != first
    assert paid(tmp_path) == ["10"]


@eras
async def test_an_approved_call_runs_elsewhere_while_another_form_of_its_session_is_open(era: Era, tmp_path: Path) -> None:
    async with gateway(tmp_path, "handshake") as one, gateway(tmp_path, era, {}) as other:
        first = approval(await (await form(one)).answered({"action": "cancel"}))
        still_open = await form(one, 20)
        await callgate(tmp_path, "approve", first, "--by", "bob")
        assert text(await other.call("pay", {"amount": 3})) == "paid 10"
        assert text(await still_open.answered(YES)) == "paid 20"
    assert paid(tmp_path) == ["10", "20"]
