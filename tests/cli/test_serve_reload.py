"""`callgate serve` reads its configuration again on SIGHUP, and uses all of it or none."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from tests.cli.mcp_server_programs import SHOP, write_servers
from tests.cli.shell import command, environment, shell
from tests.waiting import COMMAND_S

pytestmark = pytest.mark.process

_RULE = '[[rule]]\nid = "closed"\nverdict = "deny"\ntool = "{tool}"\nreason = "The shop is closed."\n'
_SLOW = str(Path(__file__).parents[1] / "gateway" / "slow_start_server.py")
_BOTH = "application/json, text/event-stream"
_LISTEN = '[http]\nlisten = "127.0.0.1:0"\n'


def server(name: str, **more: object) -> str:
    """Return the table of a shop."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"command": list(SHOP), **more}.items()]
    return "\n".join([f"[servers.{name}]", *lines, ""])


def principal(name: str, **more: object) -> str:
    """Return the table of a principal, whose token is its name and `-token`."""
    digest = sha256(f"{name}-token".encode()).hexdigest()
    lines = [f"{key} = {json.dumps(value)}" for key, value in {"token_sha256": digest, **more}.items()]
    return "\n".join([f"[principals.{name}]", *lines, ""])


class Gateway:
    """A running `callgate serve` over HTTP, whose configuration can be written anew."""

    def __init__(self, folder: Path, process: asyncio.subprocess.Process) -> None:
        self._folder = folder
        self._process = process
        self.start = ""
        """What the gateway has said until its servers had started."""

    @property
    def url(self) -> str:
        return self.start.partition("Listening on ")[2].split()[0]

    async def reload(self, *parts: str) -> str:
        """Write the configuration, have it read, and return what the gateway says about that."""
        self.ask_to_reload(*parts)
        return await self.told("The configuration was")

    def ask_to_reload(self, *parts: str) -> None:
        """Write the configuration and have it read."""
        write_config(self._folder, *parts)
        self._process.send_signal(signal.SIGHUP)

    async def shuts_out(self, name: str) -> None:
        """Wait until a principal is not served any longer."""
        async with asyncio.timeout(COMMAND_S):
            while await self.status(name) != 401:
                pass

    async def told(self, words: str) -> str:
        """Return standard error up to the next line that has these words."""
        assert self._process.stderr is not None
        said = ""
        while words not in said:
            line = (await asyncio.wait_for(self._process.stderr.readline(), COMMAND_S)).decode()
            assert line, f"the command has ended: {said}"
            said += line
        return said

    @asynccontextmanager
    async def client(self, name: str = "alice", mode: str = "auto") -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {name}-token"}) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield client

    async def status(self, name: str = "", *, token: str = "") -> int:
        """Return how a request of a principal, or with a token, is answered."""
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token or f'{name}-token'}"}) as http:
            return (await http.post(self.url, json={})).status_code


def write_config(folder: Path, *parts: str) -> None:
    (folder / "gate.toml").write_text("\n".join(parts), encoding="utf-8")


@asynccontextmanager
async def serving(folder: Path, *parts: str, until: str = "Journal:") -> AsyncIterator[Gateway]:
    """Serve with this configuration until the end of the block."""
    write_config(folder, *parts)
    pipe = asyncio.subprocess.PIPE
    words = command(("serve", "--http"))
    process = await asyncio.create_subprocess_exec(*words, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, env=environment())
    gateway = Gateway(folder, process)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(ended, process)
        gateway.start = await gateway.told(until)
        yield gateway


async def ended(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert process.returncode == 0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_servers(tmp_path)
    return tmp_path


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_new_servers_and_rules_are_used_by_clients_that_are_connected_already(place: Path, mode: str) -> None:
    (place / "rules.toml").write_text(_RULE.format(tool="buy"), encoding="utf-8")
    async with serving(place, _LISTEN, server("shop"), principal("alice")) as gateway, gateway.client(mode=mode) as client:
        assert not (await client.call_tool("buy", {})).is_error
        told = await gateway.reload('rules = "rules.toml"', _LISTEN, server("more", prefix=True), server("shop"), principal("alice"))
        assert "Servers added: more" in told
        assert await names(client) == {"look", "buy", "more.look", "more.buy"}
        assert "The shop is closed." in text_of(await client.call_tool("buy", {}))
        assert not (await client.call_tool("look", {})).is_error
        told = await gateway.reload(_LISTEN, server("shop"), principal("alice"))
        assert "removed: more" in told
        assert await names(client) == {"look", "buy"}
        assert not (await client.call_tool("buy", {})).is_error


async def test_no_call_runs_that_the_old_or_the_new_rules_forbid_while_servers_start(place: Path) -> None:
    (place / "buy.toml").write_text(_RULE.format(tool="buy"), encoding="utf-8")
    (place / "look.toml").write_text(_RULE.format(tool="look"), encoding="utf-8")
    slow = server("slow", command=[sys.executable, _SLOW, str(place / "go")])
    base = (_LISTEN, server("shop"), principal("alice"))
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


async def test_a_principal_that_is_removed_is_shut_out_before_new_servers_have_started(place: Path) -> None:
    slow = server("slow", command=[sys.executable, _SLOW, str(place / "go")])
    async with serving(place, _LISTEN, server("shop"), principal("alice"), principal("bob")) as gateway:
        reloading = asyncio.ensure_future(gateway.reload(_LISTEN, server("shop"), slow, principal("bob")))
        await gateway.shuts_out("alice")
        assert not reloading.done()
        (place / "go").touch()
        assert "Servers added: slow" in await reloading


async def test_a_principal_that_is_removed_during_a_reload_is_shut_out_before_that_is_done(place: Path) -> None:
    slow = server("slow", command=[sys.executable, _SLOW, str(place / "go")])
    alice, bob, carol, dave = (principal(name) for name in ("alice", "bob", "carol", "dave"))
    async with serving(place, _LISTEN, server("shop"), alice, bob, carol) as gateway, gateway.client("bob") as client:
        first = asyncio.ensure_future(gateway.reload(_LISTEN, server("shop"), slow, alice, bob, dave))
        await gateway.shuts_out("carol")
        (place / "rules.toml").write_text(_RULE.format(tool="buy"), encoding="utf-8")
        gateway.ask_to_reload('rules = "rules.toml"', _LISTEN, server("shop"), bob, carol)
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
    slow = server("slow", command=[sys.executable, _SLOW, str(place / "go")])
    async with serving(place, _LISTEN, slow, principal("alice"), principal("bob"), until="Listening on") as gateway:
        reloading = asyncio.ensure_future(gateway.reload(_LISTEN, slow, principal("bob")))
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
        serving(place, _LISTEN, server("shop"), *before) as gateway,
        gateway.client("bob") as bob,
        gateway.client("carol") as carol,
    ):
        reloading = asyncio.ensure_future(gateway.reload(_LISTEN, server("shop"), dead, *after))
        await gateway.shuts_out("alice")
        assert await gateway.status("dave") == 401
        assert (await names(bob), await names(carol)) == ({"look"}, {"buy"})
        (place / "go").touch()
        said = await reloading
        assert "The engine needs it" in said
        assert "Principals who are not in the refused file are served again; their sessions, calls and tasks have ended." in said
        assert [await gateway.status(name) == 401 for name in ("alice", "dave")] == [False, True]
        assert (await names(bob), await names(carol)) == ({"look"}, {"look", "buy"})


async def test_a_reload_during_the_start_begins_after_it(place: Path) -> None:
    (place / "rules.toml").write_text(_RULE.format(tool="buy"), encoding="utf-8")
    slow = server("slow", command=[sys.executable, _SLOW, str(place / "go")])
    write_config(place, _LISTEN, slow, principal("alice"))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command(("serve", "--http")), cwd=place, stdin=pipe, stdout=pipe, stderr=pipe, env=environment()
    )
    gateway = Gateway(place, process)
    await gateway.told("Listening on")
    reloading = asyncio.ensure_future(gateway.reload('rules = "rules.toml"', _LISTEN, slow, server("shop"), principal("alice")))
    await asyncio.sleep(0)
    (place / "go").touch()
    assert "Servers added: shop" in await reloading
    await ended(process)


async def test_a_refused_reload_ends_no_server(place: Path) -> None:
    """Also of those whose settings have changed, and also if they could not be started again."""
    (place / "typo.toml").write_text(_RULE.format(tool="bye"), encoding="utf-8")
    async with serving(place, _LISTEN, server("shop"), principal("alice")) as gateway, gateway.client() as client:
        program = (place / "shop.py").read_text(encoding="utf-8")
        (place / "shop.py").unlink()
        changed = (_LISTEN, server("shop", required=True, timeout_s=60), principal("alice"))
        assert "The engine needs it" in await gateway.reload(*changed)
        assert not (await client.call_tool("buy", {})).is_error
        (place / "shop.py").write_text(program, encoding="utf-8")
        changed = (_LISTEN, server("shop", timeout_s=60), principal("alice"))
        assert "did you mean 'buy'" in await gateway.reload('rules = "typo.toml"', *changed)
        assert not (await client.call_tool("buy", {})).is_error


async def test_a_reload_names_the_servers_that_have_not_started_and_the_others_count(place: Path) -> None:
    dead = server("dead", command=[sys.executable, "dead.py"])
    async with serving(place, _LISTEN, server("shop"), principal("alice")) as gateway, gateway.client() as client:
        told = await gateway.reload(_LISTEN, server("shop"), dead, principal("alice", tools=["look"]))
        report = told.partition("The configuration was reloaded. ")[2]
        assert report.startswith("Servers added: dead. The MCP server 'dead' has ended: it exited with code 1. The new settings count")
        assert await names(client) == {"look"}
        broken = server("shop", command=[sys.executable, "dead.py"])
        assert "started again: shop. The MCP server 'shop' has ended" in await gateway.reload(
            _LISTEN, broken, principal("alice", tools=["look"])
        )
        assert "it exited with code 1" in text_of(await client.call_tool("look", {}))
        told = await gateway.reload(_LISTEN, server("shop"), principal("alice"))
        assert told.endswith("Servers started again: shop.\n")
        assert not (await client.call_tool("look", {})).is_error


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_server_that_is_started_again_is_served_by_the_old_process_until_the_new_one_is_ready(place: Path, mode: str) -> None:
    go = place / "go"
    go.touch()
    slow = {"command": [sys.executable, _SLOW, str(go)]}
    both = (principal("alice"), principal("bob"))
    async with serving(place, _LISTEN, server("slow", **slow), *both) as gateway, gateway.client(mode=mode) as client:
        assert text_of(await client.call_tool("ready", {})) == "done"
        go.unlink()
        reloading = asyncio.ensure_future(gateway.reload(_LISTEN, server("slow", **slow, timeout_s=60), principal("alice")))
        await gateway.shuts_out("bob")
        assert await names(client) == {"ready"}
        assert text_of(await client.call_tool("ready", {})) == "done"
        assert not reloading.done()
        go.touch()
        assert "Servers started again: slow." in await reloading
        assert text_of(await client.call_tool("ready", {})) == "done"


async def test_a_server_that_cannot_run_twice_is_started_again_when_the_old_process_has_ended(place: Path) -> None:
    alone = ["flock", "--nonblock", "shop.lock", *SHOP]
    async with serving(place, _LISTEN, server("shop", command=alone), principal("alice")) as gateway, gateway.client() as client:
        told = await gateway.reload(_LISTEN, server("shop", command=alone, timeout_s=60), principal("alice"))
        assert told.endswith("Servers started again: shop.\n")
        assert await names(client) == {"look", "buy"}
        assert not (await client.call_tool("buy", {})).is_error


async def test_a_server_whose_settings_or_accepted_tools_changed_is_started_again_and_no_other(place: Path) -> None:
    (place / "other.json").write_text("[]", encoding="utf-8")
    (place / "gate.accepted.json").write_text('{"version": 1, "servers": {}}', encoding="utf-8")
    shop, other = server("shop"), server("other", command=[*SHOP[:2], "other.json"])
    with_key = f'{shop}[servers.shop.env]\nSHOP_KEY = "open"\n'
    async with serving(place, _LISTEN, shop, other, principal("alice")) as gateway, gateway.client() as client:
        assert await names(client) == set()
        accepting = await asyncio.to_thread(shell, place, "mcp", "accept", "shop", "look", "--yes", "--config", "gate.toml")
        assert accepting.code == 0, accepting.err
        assert "Servers started again: shop." in await gateway.reload(_LISTEN, shop, other, principal("alice"))
        assert await names(client) == {"look"}
        assert "Servers started again: shop." in await gateway.reload(_LISTEN, with_key, other, principal("alice"))
        assert text_of(await client.call_tool("look", {})).endswith("open")
        assert "No server has changed" in await gateway.reload(_LISTEN, with_key, other, principal("alice"))


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (("[http\n",), "gate.toml"),
        ((_LISTEN, 'rules = "none.toml"\n'), "gate.toml"),
        (('rules = "none.toml"', _LISTEN, server("shop"), principal("alice")), "none.toml"),
        (('journal = "other.db"', _LISTEN, server("shop"), principal("alice")), "journal cannot change while the gateway runs"),
        (('rules = "typo.toml"', _LISTEN, server("shop"), principal("alice")), "did you mean 'buy'"),
        (('rules = "typo.toml"', _LISTEN, server("renamed"), principal("alice")), "did you mean 'buy'"),
        ((_LISTEN, server("shop"), server("dead", command="no-such-program", required=True), principal("alice")), "no program"),
        ((_LISTEN, server("shop")), "No principal is left"),
        ((_LISTEN, principal("alice")), "There is nothing to serve"),
    ],
    ids=["no TOML", "wrong table", "no such rules", "the journal", "rule", "rule and server", "required server", "nobody", "nothing"],
)
async def test_a_configuration_that_cannot_be_used_changes_nothing(place: Path, parts: tuple[str, ...], told: str) -> None:
    (place / "rules.toml").write_text(_RULE.format(tool="buy"), encoding="utf-8")
    (place / "typo.toml").write_text(_RULE.format(tool="bye"), encoding="utf-8")
    before = ('rules = "rules.toml"', _LISTEN, server("shop"), principal("alice"))
    async with serving(place, *before) as gateway, gateway.client() as client:
        said = await gateway.reload(*parts)
        assert "was not reloaded, and the one before is in use" in said
        assert told in said
        assert "The shop is closed." in text_of(await client.call_tool("buy", {}))
        assert not (await client.call_tool("look", {})).is_error
        async with httpx2.AsyncClient(headers={"Authorization": "Bearer alice-token"}) as http:
            assert 'callgate_config_reloads_total{outcome="refused"} 1.0' in (await http.get(gateway.url.replace("/mcp", "/metrics"))).text
        assert "No server has changed" in await gateway.reload(*before)


@asynccontextmanager
async def listening(gateway: Gateway, token: str) -> AsyncIterator[AsyncIterator[str]]:
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
async def standing(gateway: Gateway, token: str) -> AsyncIterator[AsyncIterator[str]]:
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
    base = (_LISTEN, server("shop"))
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
    base, both = (_LISTEN, server("shop")), [sha256(f"{name}-token".encode()).hexdigest() for name in ("old", "new")]
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
    async with serving(place, _LISTEN, server("shop")) as gateway:
        (made,) = (word for word in gateway.start.split() if word.startswith("cg_") and '"' not in word and "'" not in word)
        await gateway.reload(_LISTEN, server("shop"), server("more", prefix=True))
        assert await gateway.status(token=made) != 401
        await gateway.reload(_LISTEN, server("shop"), principal("alice"))
        assert await gateway.status("alice") != 401
        assert await gateway.status(token=made) == 401


async def test_a_client_that_has_started_the_gateway_gets_its_new_tools(place: Path) -> None:
    """Over standard input and output."""
    write_config(place, server("shop"))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command(("serve", "--config", "gate.toml")), cwd=place, stdin=pipe, stdout=pipe, stderr=pipe, env=environment()
    )
    gateway = Gateway(place, process)
    assert process.stdin is not None
    assert process.stdout is not None
    await gateway.told("Journal:")
    await gateway.reload(server("shop"), server("more", prefix=True))
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).encode() + b"\n")
    listed = json.loads(await asyncio.wait_for(process.stdout.readline(), COMMAND_S))
    assert {tool["name"] for tool in listed["result"]["tools"]} == {"look", "buy", "more.look", "more.buy"}
    process.stdin.close()
    await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert process.returncode == 0


async def test_a_gateway_ends_with_its_terminal(place: Path) -> None:
    """The end of a terminal sends SIGHUP, too."""
    write_config(place, _LISTEN, server("shop"))
    ours, theirs = pty.openpty()
    words = ("setsid", "--ctty", *command(("serve", "--http")))
    process = await asyncio.create_subprocess_exec(
        *words, cwd=place, stdin=theirs, stdout=theirs, stderr=asyncio.subprocess.PIPE, env=environment()
    )
    os.close(theirs)
    gateway = Gateway(place, process)
    await gateway.told("Journal:")
    assert "was reloaded" in await gateway.reload(_LISTEN, server("shop"))
    os.close(ours)
    assert await asyncio.wait_for(process.wait(), COMMAND_S) == 0
