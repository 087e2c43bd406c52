"""Who may do what while `callgate serve` reads its configuration again, and afterwards."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from mcp_types import ElicitResult

from mcp import MCPError
from tests.cli.served_gateway import LISTEN, RULE, SLOW, ServedGateway, names, principal, server, serving, text_of
from tests.waiting import COMMAND_S

pytestmark = pytest.mark.process

_BOTH = "application/json, text/event-stream"


async def test_no_call_runs_that_the_old_or_the_new_rules_forbid_while_servers_start(place: Path) -> None:
    (place / "buy.toml").write_text(RULE.format(tool="buy"), encoding="utf-8")
    (place / "look.toml").write_text(RULE.format(tool="look"), encoding="utf-8")
    slow = server("slow", command=[sys.executable, SLOW, str(place / "go")])
    base = (LISTEN, server("shop"), principal("alice"))
    async with serving(place, 'rules = "buy.toml"', *base) as gateway, gateway.client() as client:
        reloading = asyncio.ensure_future(gateway.reload('rules = "look.toml"', *base, slow))
        denied: list[Any] = []
        while not denied:  # until the gateway has read the file
            looked = await client.call_tool("look", {})
            denied = [looked] if looked.is_error else []
        assert "The shop is closed." in text_of(denied[0])
        assert "The shop is closed." in text_of(await client.call_tool("buy", {}))
        assert not reloading.done()
        (place / "go").touch()
        assert "Servers added: slow" in await reloading
        assert not (await client.call_tool("buy", {})).is_error
        assert (await client.call_tool("look", {})).is_error


async def test_a_call_that_waits_for_its_user_does_not_run_when_its_principal_may_not_use_the_tool_any_more(place: Path) -> None:
    """Also if the user says yes; a call of another tool goes on."""
    (place / "rules.toml").write_text('[[rule]]\nid = "ask"\nverdict = "ask"\ntool = "buy"\nreason = "Buy?"\n', encoding="utf-8")
    base = ('rules = "rules.toml"', LISTEN, server("shop"))
    async with serving(place, *base, principal("alice")) as gateway:

        async def elicit(context: object, params: object) -> ElicitResult:
            assert "The configuration was reloaded" in await gateway.reload(*base, principal("alice", tools=["look"]))
            return ElicitResult(action="accept", content={"approve": True})

        async with gateway.client(mode="legacy", elicitation_callback=elicit) as client:
            with pytest.raises(MCPError, match="Unknown tool: buy"):
                await client.call_tool("buy", {})
            assert not (await client.call_tool("look", {})).is_error


async def test_a_principal_that_is_removed_is_shut_out_before_new_servers_have_started(place: Path) -> None:
    slow = server("slow", command=[sys.executable, SLOW, str(place / "go")])
    async with serving(place, LISTEN, server("shop"), principal("alice"), principal("bob")) as gateway:
        reloading = asyncio.ensure_future(gateway.reload(LISTEN, server("shop"), slow, principal("bob")))
        await gateway.shuts_out("alice")
        assert not reloading.done()
        (place / "go").touch()
        assert "Servers added: slow" in await reloading


async def test_a_principal_that_is_removed_during_a_reload_is_shut_out_before_that_is_done(place: Path) -> None:
    slow = server("slow", command=[sys.executable, SLOW, str(place / "go")])
    alice, bob, carol, dave = (principal(name) for name in ("alice", "bob", "carol", "dave"))
    async with serving(place, LISTEN, server("shop"), alice, bob, carol) as gateway, gateway.client("bob") as client:
        first = asyncio.ensure_future(gateway.reload(LISTEN, server("shop"), slow, alice, bob, dave))
        await gateway.shuts_out("carol")
        (place / "rules.toml").write_text(RULE.format(tool="buy"), encoding="utf-8")
        gateway.ask_to_reload('rules = "rules.toml"', LISTEN, server("shop"), bob, carol)
        await gateway.shuts_out("alice")
        assert "The shop is closed." in text_of(await client.call_tool("buy", {}))
        assert [await gateway.status(name) for name in ("carol", "dave")] == [401, 401]
        assert not first.done()
        (place / "go").touch()
        assert "Servers added: slow" in await first
        assert [await gateway.status(name) for name in ("alice", "dave")] == [401, 401]
        assert "Servers removed: slow" in await gateway.told("The configuration was")
        assert await gateway.status("carol") != 401
        assert "The shop is closed." in text_of(await client.call_tool("buy", {}))


async def test_a_principal_that_is_removed_while_the_first_servers_start_is_shut_out_at_once(place: Path) -> None:
    slow = server("slow", command=[sys.executable, SLOW, str(place / "go")])
    async with serving(place, LISTEN, slow, principal("alice"), principal("bob"), until="Listening on") as gateway:
        reloading = asyncio.ensure_future(gateway.reload(LISTEN, slow, principal("bob")))
        await gateway.shuts_out("alice")
        assert not reloading.done()
        (place / "go").touch()
        assert "No server has changed" in await reloading


async def test_nobody_may_do_more_before_a_reload_is_done_and_nobody_less_after_a_refused_one(place: Path) -> None:
    dead = server("dead", command=[sys.executable, "slow_dead.py"], required=True)
    program = f"import pathlib, time\nwhile not pathlib.Path({str(place / 'go')!r}).exists(): time.sleep(0.01)\n"
    (place / "slow_dead.py").write_text(program, encoding="utf-8")
    before = (principal("alice"), principal("bob", tools=["look"]), principal("carol", tools=["*"]))
    after = (principal("bob", tools=["*"]), principal("carol", tools=["b*"]), principal("dave"))
    async with (
        serving(place, LISTEN, server("shop"), *before) as gateway,
        gateway.client("bob") as bob,
        gateway.client("carol") as carol,
    ):
        reloading = asyncio.ensure_future(gateway.reload(LISTEN, server("shop"), dead, *after))
        await gateway.shuts_out("alice")
        assert await gateway.status("dave") == 401
        assert (await names(bob), await names(carol)) == ({"look"}, {"buy"})
        (place / "go").touch()
        said = await reloading
        assert "It is required" in said
        assert "Principals who are not in the refused file are served again; their sessions, calls and tasks have ended." in said
        assert [await gateway.status(name) == 401 for name in ("alice", "dave")] == [False, True]
        assert (await names(bob), await names(carol)) == ({"look"}, {"look", "buy"})


async def test_a_refused_reload_says_that_a_removed_principal_is_still_served(place: Path) -> None:
    """Here because a rule is still about it."""
    rule = '[[rule]]\nid = "alice"\nverdict = "deny"\ntool = "buy"\nwhen = { principal = "alice" }\nreason = "No."\n'
    (place / "rules.toml").write_text(rule, encoding="utf-8")
    base = ('rules = "rules.toml"', LISTEN, server("shop"), principal("bob"))
    async with serving(place, *base, principal("alice")) as gateway:
        said = await gateway.reload(*base)
        assert "rule 'alice' has 'alice', which fits no principal." in said
        assert "Principals who are not in the refused file are still served." in said
        assert await gateway.status("alice") != 401
        (place / "rules.toml").write_text(RULE.format(tool="buy"), encoding="utf-8")
        assert "The configuration was reloaded." in await gateway.reload(*base)
        assert await gateway.status("alice") == 401


@asynccontextmanager
async def listening(gateway: ServedGateway, token: str) -> AsyncIterator[AsyncIterator[str]]:
    """Listen for changes of the tools, as a stateless client; yield the lines of the stream after the acknowledgement."""
    stateless = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    asked = {"notifications": {"toolsListChanged": True}, "_meta": stateless}
    request = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": asked}
    head = {"Accept": _BOTH, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    head["Authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient(headers=head) as http, http.stream("POST", gateway.url, json=request) as stream:
        lines = stream.aiter_lines()
        assert "acknowledged" in await anext(line async for line in lines if line.startswith("data"))
        yield lines


@asynccontextmanager
async def standing(gateway: ServedGateway, token: str) -> AsyncIterator[AsyncIterator[str]]:
    """Open the stream of a new session, as a client of the handshake era; yield its lines."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    async with httpx2.AsyncClient(headers={"Accept": _BOTH, "Authorization": f"Bearer {token}"}) as http:
        answer = await http.post(gateway.url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
        async with http.stream("GET", gateway.url, headers={"Mcp-Session-Id": answer.headers["mcp-session-id"]}) as stream:
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith(":")
            yield lines


async def end_of(lines: AsyncIterator[str]) -> None:
    """Read a stream until the gateway ends it."""
    async with asyncio.timeout(COMMAND_S):
        async for _ in lines:
            pass


async def test_a_principal_that_is_removed_is_shut_out_at_once_and_others_stay(place: Path) -> None:
    base = (LISTEN, server("shop"))
    async with serving(place, *base, principal("alice"), principal("bob")) as gateway, gateway.client("bob", "legacy") as bob:
        async with listening(gateway, "alice-token") as events:
            await gateway.reload(*base, principal("bob", tools=["look"]), principal("carol"))
            await end_of(events)
        assert await gateway.status("alice") == 401
        assert await gateway.status("carol") != 401
        assert await names(bob) == {"look"}


@pytest.mark.parametrize("opened", [listening, standing])
async def test_a_stream_ends_with_the_token_that_it_was_opened_with(place: Path, opened: Callable[..., Any]) -> None:
    """Also if its principal has another one meanwhile; and streams with other tokens go on."""
    base, both = (LISTEN, server("shop")), [sha256(f"{name}-token".encode()).hexdigest() for name in ("old", "new")]
    async with (
        serving(place, *base, principal("alice", token_sha256=both)) as gateway,
        opened(gateway, "old-token") as old,
        opened(gateway, "new-token") as new,
    ):
        await gateway.reload(*base, principal("alice", token_sha256=both[1]))
        await end_of(old)
        assert await gateway.status(token="old-token") == 401
        assert "list_changed" in await anext(line async for line in new if line.startswith("data"))


async def test_the_token_that_was_made_at_the_start_ends_when_principals_are_configured(place: Path) -> None:
    async with serving(place, LISTEN, server("shop")) as gateway:
        (made,) = (word for word in gateway.start.split() if word.startswith("cg_") and '"' not in word and "'" not in word)
        await gateway.reload(LISTEN, server("shop"), server("more", prefix=True))
        assert await gateway.status(token=made) != 401
        await gateway.reload(LISTEN, server("shop"), principal("alice"))
        assert await gateway.status("alice") != 401
        assert await gateway.status(token=made) == 401


async def test_the_key_of_an_issuer_is_read_again_and_tokens_of_the_one_before_are_refused(place: Path) -> None:
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    claims = {"iss": "https://id.example", "aud": "gate", "sub": "ann", "exp": time.time() + 600}
    first, second = (jwt.encode(claims, key, algorithm="ES256") for key in keys)
    given = '[jwt]\nissuer = "https://id.example"\naudience = "gate"\nkey_file = "key.pem"\nalgorithms = "ES256"\n'

    def publish(key: ec.EllipticCurvePrivateKey) -> None:
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (place / "key.pem").write_bytes(b"# Schl\xfcssel\n" + pem)

    publish(keys[0])
    async with serving(place, LISTEN, given, server("shop")) as gateway:
        assert [await gateway.status(token=token) for token in (first, second)] == [400, 401]
        publish(keys[1])
        assert "was reloaded" in await gateway.reload(LISTEN, given, server("shop"))
        assert [await gateway.status(token=token) for token in (first, second)] == [401, 400]
        (place / "key.pem").write_text("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n")
        refused = await gateway.reload(LISTEN, given, server("shop"))
        assert "was not reloaded" in refused
        assert f"[jwt] key_file {place / 'key.pem'} must be a public key as PEM" in refused
        assert await gateway.status(token=second) == 400
