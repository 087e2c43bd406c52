"""Let a client of each era meet a server of each era, with `callgate serve` between them."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from callgate._gateway_packages import check_gateway_packages
from callgate.demo._checks import Finding, finding
from callgate.demo._demo_run import DemoRun, calls_in
from callgate.demo.eras._client import client
from callgate.demo.eras._server import DEFINITION, REVISIONS, Era

__all__ = ["eras"]

_QUESTION = ["How many?"]
_OF_ONE_HOP = frozenset({"resultType", "_meta", "ttlMs", "cacheScope"})
"""The fields that one era adds for one hop."""


class _Meeting(Struct, frozen=True):
    """What a client has seen of a server."""

    front: Era
    upstream: Era
    definition: object
    result: dict[str, Any]
    asked: list[str]
    ledger: list[str]


async def eras(stage: DemoRun) -> list[Finding]:
    """Order something through each pair of eras; the server asks the user on the way."""
    check_gateway_packages("The demonstration")
    meetings = [await _meet(stage, front, upstream) for front in REVISIONS for upstream in REVISIONS]
    found = [one for meeting in meetings for one in _findings(meeting)]
    calls = calls_in(stage.journal)
    recorded = [f"{call.tool} {call.status}" for call in calls]
    return [*found, finding("each call is in the journal, once", recorded == ["order ok"] * 4, recorded)]


async def _meet(stage: DemoRun, front: Era, upstream: Era) -> _Meeting:
    place = f"{front}-{upstream}"
    server = shlex.join([sys.executable, "-m", "callgate.demo.eras._server", upstream, str(stage.ledger.path), place])
    gateway = [sys.executable, "-m", "callgate.cli", "serve", "--mcp", server, "--journal", str(stage.journal)]
    async with client(gateway, front) as one:
        listed = (await one.request("tools/list", {})).get("tools", [])
        result = await one.call("order", {"item": "lamp"})
    return _Meeting(front, upstream, listed[0] if listed else None, result, one.asked, _orders(stage.ledger.path, place))


def _findings(met: _Meeting) -> list[Finding]:
    pair = f"{met.front} client, {met.upstream} server"
    kept = {key: value for key, value in met.result.items() if key not in _OF_ONE_HOP}
    whole = json.dumps(met.definition) == json.dumps(DEFINITION) and kept == _RESULT
    return [
        finding(f"{pair}: the server's question reached the user", met.asked == _QUESTION, met.asked),
        finding(f"{pair}: one order was made", met.ledger == ["3 x lamp"], met.ledger),
        finding(f"{pair}: definition and result are complete, with all unknown fields", whole, json.dumps(kept)),
    ]


_RESULT = {
    "content": [{"type": "text", "text": "ordered 3 x lamp", "shopColour": "blue"}],
    "structuredContent": {"item": "lamp", "count": 3},
    "shopReceipt": [3, 1, 2],
}


def _orders(ledger: Path, place: str) -> list[str]:
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return [line.removeprefix(f"{place}: ") for line in lines if line.startswith(f"{place}: ")]
