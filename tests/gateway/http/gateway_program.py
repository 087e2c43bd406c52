"""A gateway over HTTP as a program: `python -m tests.gateway.http.gateway_program LEDGER '{"body_timeout_s": 2}'`.

Runs on the event loop that `callgate serve` uses. Prints its port, and ends when its standard input does. Each run of a tool adds a line to
the file LEDGER.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import uvloop

from callgate import Engine, SqliteJournal, tool
from callgate.gateway import Gateway, Principal
from callgate.gateway._exchange import Exchange, SessionFront
from callgate.gateway._http import HttpApp, HttpLimits, HttpServer
from callgate.gateway.tokens import StaticTokens

TOKENS = {"token-of-alice": Principal(name="alice", parallel=8), "token-of-bob": Principal(name="bob")}
LEDGER = Path(sys.argv[1])


class Fronts:
    """The fronts of a gateway. `publish` sends numbered messages on all standing streams."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._events: list[Exchange] = []
        self.stateless = gateway.stateless
        self.end_subscriptions = gateway.end_subscriptions
        self.end_tasks = gateway.end_tasks
        self.start = gateway.start
        self.header_params = gateway.header_params
        self.health = gateway.health
        self.metrics = gateway.metrics
        self.refresh_metrics = gateway.refresh_metrics
        self.replicas = gateway.replicas

    def handshake(self, principal: Principal, events: Exchange | None = None) -> SessionFront:
        assert events is not None
        self._events.append(events)
        return self._gateway.handshake(principal, events)

    async def publish(self, count: int) -> None:
        for number in range(count):
            for events in self._events:
                events.send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}})
            await asyncio.sleep(0)


def ran(name: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{name}\n")


@tool(effect="none")
def echo(text: str) -> str:
    """Return the text."""
    ran("echo")
    return text


@tool(requires_approval=True)
def pay(text: str) -> str:
    """Pay."""
    ran("pay")
    return "paid"


@tool(effect="none")
def page(size: int) -> str:
    """Return a text of this size."""
    ran("page")
    return "x" * size


@tool
async def send(text: str) -> str:
    """Send a text, and wait for an answer that does not come."""
    ran("send")
    await asyncio.Event().wait()
    return text


@tool(effect="none")
async def listen(text: str) -> str:
    """Wait for something that does not happen."""
    ran("listen")
    await asyncio.Event().wait()
    return text


@tool(effect="none")
async def slow_echo(text: str) -> str:
    """Return the text after a while."""
    await asyncio.sleep(0.002)
    return text


async def main() -> None:
    def published() -> Fronts:
        return fronts

    @tool(effect="none", name="publish")
    async def publish(count: int) -> str:
        """Send messages on all standing streams."""
        await published().publish(count)
        return "published"

    journal = SqliteJournal(LEDGER.with_name("journal.db"))
    async with Gateway(Engine([echo, page, pay, send, listen, slow_echo, publish], journal=journal)) as gateway:
        fronts = Fronts(gateway)
        limits = HttpLimits(**json.loads(sys.argv[2]))
        app = HttpApp(
            fronts,
            StaticTokens(TOKENS),
            limits=limits,
        )
        async with HttpServer(app) as server:
            sys.stdout.write(f"{server.port}\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)


with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
