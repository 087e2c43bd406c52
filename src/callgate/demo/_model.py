"""The models of the demonstrations: a scripted model behind HTTP on this machine, or the user's own model.

The scripted model is a server on the loopback interface that uses a real provider's format. Its log of requests is
evidence for the findings. Knows no demonstration.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from callgate.events import Bus
from callgate.models.http_model import HttpModel
from callgate.models.providers import model
from callgate.testing import Pause, ReceivedRequest, ScriptedServer
from callgate.testing.scripted_server import Script

__all__ = ["held_until", "own_model", "recorded_requests", "scripted_at", "scripted_model", "scripted_server", "until_called"]

_LOOK_S = 0.02
_PATIENCE_S = 20.0
"""The maximum time in seconds to hold a message. After it, the message is sent, and a finding fails."""


def own_model(environ: Mapping[str, str] = os.environ) -> HttpModel | None:
    """Return the user's model if the environment names one: `CALLGATE_MODEL`, `OPENAI_BASE_URL` or `OPENAI_API_KEY`.

    Raises:
        UsageError: The named model cannot be used.
    """
    named, url = environ.get("CALLGATE_MODEL", ""), environ.get("OPENAI_BASE_URL", "")
    key, name = environ.get("OPENAI_API_KEY", ""), environ.get("OPENAI_MODEL", "")
    if named:
        return None if named == "scripted" else model(named, environ=environ)
    if url:
        return model(f"openai-compatible:{name or 'default'}", base_url=url, api_key=key, environ=environ)
    return model(f"openai:{name or 'gpt-5-mini'}", environ=environ) if key else None


@asynccontextmanager
async def scripted_model(
    turns: Sequence[Script], log: Path, *, pace: Callable[[ReceivedRequest, int], Awaitable[None]] | None = None
) -> AsyncIterator[HttpModel]:
    """Yield a model that plays these turns over HTTP.

    Args:
        turns: The turns, in order.
        log: The file to log every request to.
        pace: See `ScriptedServer`.
    """
    async with scripted_server(turns, log, pace=pace) as url:
        over_http = scripted_at(url)
        try:
            yield over_http
        finally:
            await over_http.close()


@asynccontextmanager
async def scripted_server(
    turns: Sequence[Script] | Callable[[ReceivedRequest], Script],
    log: Path,
    *,
    pace: Callable[[ReceivedRequest, int], Awaitable[None]] | None = None,
) -> AsyncIterator[str]:
    """Serve a scripted model for a client in another process; yield its URL."""
    async with ScriptedServer(turns, pace=pace) as server:
        try:
            yield server.url
        finally:
            _write_down(server.requests, log)


def scripted_at(url: str) -> HttpModel:
    """Return a client for the scripted model at `url`."""
    return model("openai-compatible:scripted", base_url=url, api_key="")


def _write_down(requests: Sequence[ReceivedRequest], log: Path) -> None:
    log.write_text("".join(json.dumps({"path": one.path, "body": one.body_json}) + "\n" for one in requests), encoding="utf-8")


def recorded_requests(log: Path) -> list[dict[str, Any]]:
    """Return the requests that a scripted model received."""
    if not log.exists():
        return []
    return [json.loads(line)["body"] for line in log.read_text(encoding="utf-8").splitlines()]


def until_called(bus: Bus, topic: str, *, times: int = 1) -> Pause:
    """Return a pause that holds a message until the bus has published `topic` a number of times."""
    happened = asyncio.Event()
    left = [times]

    def hear(_: str, __: object) -> None:
        left[0] -= 1
        if left[0] <= 0:
            happened.set()
            end()

    end = bus.subscribe(hear, topic)
    asyncio.get_running_loop().call_later(_PATIENCE_S, happened.set)
    return Pause(happened)


def held_until(happened: Callable[[], bool]) -> Pause:
    """Return a pause that holds a message until `happened` returns True. It is called repeatedly."""
    over = asyncio.Event()

    def look() -> None:
        if happened() or loop.time() > end:
            over.set()
        else:
            loop.call_later(_LOOK_S, look)

    loop = asyncio.get_running_loop()
    end = loop.time() + _PATIENCE_S
    look()
    return Pause(over)
