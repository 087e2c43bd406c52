"""A gateway with tools that a human has to approve: `python -m tests.gateway.approval_gateway '{"ledger": "file"}'`.

`pay` writes a line to the ledger each time it runs. A policy rounds its `amount` up to a multiple of ten, and a rule asks. `hunter2`
is a secret.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from callgate import Engine, Limits, Rules, SqliteJournal, tool
from callgate.gateway import Gateway, Principal, serve_stdio
from callgate.protocols import Allow, Modify, Verdict
from callgate.stage_types import ValidatedCall

_GIVEN = json.loads(sys.argv[1])
_RULES = """
[[rule]]
id = "large"
tool = "pay"
verdict = "ask"
reason = "Is this payment right?"
"""


@tool(effect="once")
def pay(amount: int, note: str = "") -> str:
    """Pay an amount."""
    with Path(_GIVEN["ledger"]).open("a") as ledger:
        ledger.write(f"{amount}\n")
    return f"paid {amount}"


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


async def main() -> None:
    journal = SqliteJournal(_GIVEN["journal"]) if "journal" in _GIVEN else None
    limits = Limits(approval_s=_GIVEN.get("approval_s", 3_600.0))
    engine = Engine([pay, look], policies=[RoundUp(), Rules.parse(_RULES)], journal=journal, limits=limits, redactor=NoPasswords())
    principal = Principal(**{"name": "ada", **_GIVEN.get("principal", {})})
    secret = b"a secret of the tests, 32 bytes.." if "journal" in _GIVEN else None
    async with Gateway(engine, secret=secret) as gateway:
        await serve_stdio(gateway, principal)


asyncio.run(main())
