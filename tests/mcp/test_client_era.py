"""The era that is chosen for a client of a server that speaks both."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.mcp import McpServer, mcp
from callgate.mcp._client_era import ClientEra
from callgate.testing import ManualClock
from tests.mcp.calling_clients import Client

ASKED: dict[str, Any] = {"elicitation": {}}


def of_session(capabilities: dict[str, Any]) -> Client:
    """Return a client that has shaken hands."""
    return Client("ada", capabilities, own_session=object())


@pytest.mark.parametrize(
    ("client", "era", "expected"),
    [
        (of_session(ASKED), None, "handshake"),
        (of_session({"extensions": {}, **ASKED}), None, "handshake"),
        (of_session({"extensions": {}}), None, "stateless"),
        (of_session({}), None, "stateless"),
        (Client("ada", ASKED), None, "stateless"),
        (of_session(ASKED), "stateless", "stateless"),
    ],
    ids=["can be asked", "and shows apps", "only shows apps", "cannot be asked", "has not shaken hands", "is configured"],
)
def test_a_client_that_has_shaken_hands_and_can_be_asked_is_served_after_a_handshake(client: Client, era: Any, expected: str) -> None:
    assert ClientEra(mcp("server", era=era), ManualClock()).choose(client, "stateless", 1) == expected
    assert ClientEra(mcp("server"), ManualClock()).choose(client, "handshake", 1) == "handshake"


@pytest.mark.parametrize(("server", "later"), [(mcp("https://mcp.example.com"), "handshake"), (mcp("server"), "stateless")])
def test_a_refusal_holds_until_the_server_may_be_another_one(server: McpServer, later: str) -> None:
    clock, client = ManualClock(), of_session(ASKED)
    choice = ClientEra(server, clock)
    choice.note_refusal(1, lasting=True)
    assert choice.choose(client, "stateless", 1) == "stateless"
    assert choice.choose(client, "stateless", 2) == "handshake"
    clock.advance(299)
    assert choice.choose(client, "stateless", 1) == "stateless"
    clock.advance(1)
    assert choice.choose(client, "stateless", 1) == later


def test_a_failure_holds_for_half_a_minute() -> None:
    clock, client = ManualClock(), of_session(ASKED)
    choice = ClientEra(mcp("server"), clock)
    choice.note_refusal(1, lasting=False)
    assert choice.choose(client, "stateless", 1) == "stateless"
    clock.advance(30)
    assert choice.choose(client, "stateless", 1) == "handshake"
