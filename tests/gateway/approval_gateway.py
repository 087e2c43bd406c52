"""A gateway with tools that a human has to approve, for one client at standard input and output, or as a program:
`python -m tests.gateway.approval_gateway '{"ledger": "file"}'`.

`pay` writes a line to the ledger each time it runs. A policy rounds its `amount` up to a multiple of ten, and a rule asks. `hunter2`
is a secret.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from callgate import Engine, Limits, Rules, SqliteJournal, Tool, tool
from callgate.gateway import Gateway, Principal, serve_stdio
from callgate.protocols import Allow, Modify, Policy, Verdict
from callgate.stage_types import ValidatedCall

_RULES = """
[[rule]]
id = "large"
tool = "pay"
verdict = "ask"
reason = "Is this payment right?"
"""


@tool(effect="none")
def look() -> str:
    """Look."""
    return "seen"


class RoundUp:
    """Rounds amounts up to a multiple of ten."""

    async def decide(self, call: ValidatedCall) -> Verdict:
        if call.tool.name == "pay" and (amount := int(str(call.arguments["amount"]))) % 10:
            rounded = -(-amount // 10) * 10
            return Modify(arguments={**call.arguments, "amount": rounded}, rule="tens", reason="only tens")
        return Allow(rule="tens")


class NoPasswords:
    """Removes the secret from what is recorded and shown."""

    def redact(self, body: bytes) -> bytes:
        return body.replace(b"hunter2", b"[redacted]")


def paying(ledger: Path) -> Tool:
    @tool(effect="once")
    def pay(amount: int, note: str = "") -> str:
        """Pay an amount."""
        with ledger.open("a") as file:
            file.write(f"{amount}\n")
        return f"paid {amount}"

    return pay


async def serve(given: Mapping[str, Any], streams: tuple[BinaryIO, BinaryIO] | None = None) -> None:
    journal = SqliteJournal(given["journal"]) if "journal" in given else None
    limits = Limits(approval_s=given.get("approval_s", 3_600.0))
    policies: list[Policy] = [RoundUp(), Rules.parse(_RULES)]
    engine = Engine([paying(Path(given["ledger"])), look], policies=policies, journal=journal, limits=limits, redactor=NoPasswords())
    principal = Principal(**{"name": "ada", **given.get("principal", {})})
    secret = b"a secret of the tests, 32 bytes.." if "journal" in given else None
    async with Gateway(engine, secret=secret) as gateway:
        await serve_stdio(gateway, principal, streams=streams)


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
