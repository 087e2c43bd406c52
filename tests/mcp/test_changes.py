"""Notices of servers that their lists and resources have changed, in both eras of the protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callgate import Engine
from callgate.mcp import RequestRejected
from tests.engine_calls import call, said
from tests.mcp.fakes import ANSWER, Fake
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.parametrize("era", ["stateless", "handshake"])]

CAPABILITIES = {"resources": {"listChanged": True, "subscribe": True}, "prompts": {"listChanged": True}}
SUBSCRIPTIONS: dict[str, Any] = {"resources/subscribe": {"result": {}}, "resources/unsubscribe": {"result": {}}}


def notice(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}) + "\n"


def server(folder: Path, era: str, *frames: Any, **script: Any) -> Fake:
    return Fake(folder, *frames, era=era, capabilities=CAPABILITIES, answers=SUBSCRIPTIONS, confirms=True, **script)


async def test_listeners_are_told_of_changed_lists(tmp_path: Path, era: str) -> None:
    told: list[str] = []
    fake = server(tmp_path, era, notice("resources/list_changed"), notice("prompts/list_changed"), ANSWER)
    async with Engine(servers=[fake.server()]) as engine:
        stop = engine.server("fake").on_change(lambda method, _: told.append(method))
        await said(engine, call("work"))
        stop()
        await said(engine, call("work", again=True))
    assert told == ["notifications/resources/list_changed", "notifications/prompts/list_changed"]


async def test_a_listener_that_fails_harms_nobody(tmp_path: Path, era: str) -> None:
    told: list[str] = []

    def fail(method: str, params: Mapping[str, Any]) -> None:
        raise ValueError("broken")

    fake = server(tmp_path, era, notice("prompts/list_changed"), ANSWER)
    async with Engine(servers=[fake.server()]) as engine:
        engine.server("fake").on_change(fail)
        engine.server("fake").on_change(lambda method, _: told.append(method))
        assert (await said(engine, call("work"))).text == "done"
    assert told == ["notifications/prompts/list_changed"]


async def test_a_resource_is_subscribed_to_once_for_all_and_until_nobody_wants_it(tmp_path: Path, era: str) -> None:
    told: list[Mapping[str, Any]] = []
    fake = server(tmp_path, era, notice("resources/updated", uri="a://b", _meta={"x": 1}), ANSWER)
    async with Engine(servers=[fake.server()]) as engine:
        content = engine.server("fake")
        content.on_change(lambda _, params: told.append(params))
        await content.subscribe("a://b")
        await content.subscribe("a://b")
        await content.unsubscribe("a://b")
        await until(lambda: wanted(fake, era) == ["+a://b"])
        await said(engine, call("work"))
        await content.unsubscribe("a://b")
        await until(lambda: wanted(fake, era) == ["+a://b", "-a://b"])
    assert [params for params in told if params] == [{"uri": "a://b", "_meta": {"x": 1}}]
    assert wanted(fake, era) == ["+a://b", "-a://b"]


async def test_subscriptions_are_made_again_when_the_server_was_restarted(tmp_path: Path, era: str) -> None:
    fake = server(tmp_path, era, {"exit_after_first": True}, ANSWER)
    async with Engine(servers=[fake.server()]) as engine:
        await engine.server("fake").subscribe("a://b")
        assert (await said(engine, call("work"))).code == "tool_crashed"
        await until(lambda: wanted(fake, era) == ["+a://b", "+a://b"])
    assert len(fake.pids) == 2


async def test_listeners_are_told_after_a_restart_of_what_they_may_have_missed(tmp_path: Path, era: str) -> None:
    """More than once, if the subscription had just been renewed when the server ended."""
    told: list[tuple[str, str]] = []
    missed = {("prompts/list_changed", ""), ("resources/list_changed", ""), ("resources/updated", "a://b")}
    fake = server(tmp_path, era, {"exit_after_first": True}, ANSWER)
    async with Engine(servers=[fake.server()]) as engine:
        content = engine.server("fake")
        await content.subscribe("a://b")
        content.on_change(lambda method, params: told.append((method.removeprefix("notifications/"), params.get("uri", ""))))
        assert (await said(engine, call("work"))).code == "tool_crashed"
        await until(lambda: set(told) >= missed)
    assert set(told) == missed


async def test_a_server_without_subscriptions_is_not_asked(tmp_path: Path, era: str) -> None:
    fake = Fake(tmp_path, ANSWER, era=era, capabilities={"resources": {}})
    async with Engine(servers=[fake.server()]) as engine:
        with pytest.raises(RequestRejected) as refused:
            await engine.server("fake").subscribe("a://b")
    assert refused.value.rpc_code == -32601
    assert wanted(fake, era) == []


def wanted(fake: Fake, era: str) -> list[str]:
    """Return the subscriptions to resources that the server was asked to begin (+) and to end (-)."""
    if era == "handshake":
        asked = {"resources/subscribe": "+", "resources/unsubscribe": "-"}
        return [asked[one["method"]] + one["params"]["uri"] for one in fake.seen() if one.get("method") in asked]
    found: list[str] = []
    for message in fake.seen("subscriptions/listen"):
        uris = message["params"]["notifications"].get("resourceSubscriptions", [])
        if uris:
            found += [f"+{uri}" for uri in uris]
        elif found:
            found.append("-a://b")
    return found
