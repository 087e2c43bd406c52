"""`callgate serve` in front of ledger servers. Their tool `act` has an effect that happens once, and with `keyed` the key `act:{what}`."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gateway.raw_client import Era, RawClient, raw_client
from tests.recovery.mcp_kills import server_command

__all__ = ["gateway_command", "ledger_gateway", "mark_of", "upstream"]


def mark_of(folder: Path) -> str:
    """Return what the environment of the servers' processes contains."""
    return f"LEDGER_FOLDER={folder}"


def upstream(folder: Path) -> list[str]:
    """Return the command of a ledger server with a folder of its own."""
    folder.mkdir(exist_ok=True)
    return server_command(folder, {})


def gateway_command(folder: Path, servers: Mapping[str, object], *more: str, keyed: bool = False, effect: str = "once") -> list[str]:
    """Write the configuration of a gateway, and return its command.

    Args:
        folder: The folder of its journal, `journal.db`.
        servers: A command or an address, by the name of the server.
        more: More words of the command.
    """
    lines = ['journal = "journal.db"', "[http]", "anonymous = true"]
    for name, target in servers.items():
        lines += [f"[servers.{name}]", "prefix = true", f'effects = {{act = "{effect}"}}', f"{_how(target)} = {json.dumps(target)}"]
        if _how(target) == "command":
            lines.append(f"env = {{LEDGER_FOLDER = {json.dumps(str(folder))}}}")
        if keyed:
            lines.append('options = {act = {key = "act:{what}"}}')
    (folder / "gate.toml").write_text("\n".join(lines), encoding="utf-8")
    return [sys.executable, "-m", "callgate.cli", "serve", "--config", str(folder / "gate.toml"), *more]


def _how(target: object) -> str:
    return "url" if isinstance(target, str) else "command"


@asynccontextmanager
async def ledger_gateway(folder: Path, servers: Mapping[str, object], era: Era = "handshake", **settings: Any) -> AsyncIterator[RawClient]:
    """Start a gateway at standard input and output, and begin a session with it."""
    async with raw_client(gateway_command(folder, servers, **settings), era) as client:
        yield client
