"""Clients of the official TypeScript SDK, which most desktop and editor clients use, get through the gateway what a server gives them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import command, environment
from tests.gateway.raw_client import Era
from tests.mcp.npm_servers import npm_package, npm_server
from tests.waiting import COMMAND_S

pytestmark = [pytest.mark.process, pytest.mark.slow]

_EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
_SDK: dict[Era, str] = {"handshake": "@modelcontextprotocol/sdk@1.32.2", "stateless": "@modelcontextprotocol/client@2.4.0"}
_PROGRAM = Path(__file__).with_name("typescript_client.mjs")
_TOO_LATE = re.compile(r'"progress":3,"total":3,|"total":60,')
"""The SDK drops progress that arrives together with the result, or after a cancellation, and calls that a fault."""
_LISTENS = re.compile(r"tools, .* on (http://\S+)\. Journal")


def found(era: Era, where: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return what a client of the SDK gets from a server, or from a gateway in front of it."""
    own = folder / era
    own.mkdir(exist_ok=True)
    if not (own / "node_modules").exists():
        (own / "node_modules").symlink_to(npm_package(_SDK[era]).parents[1])
    program = str(shutil.copy(_PROGRAM, own))
    ended = subprocess.run(
        ["node", program, era, *where], env=environment(), capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    assert [fault for fault in result.pop("faults") if not _TOO_LATE.search(fault)] == []
    return result


@contextmanager
def over_http(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Run a gateway over HTTP; yield its address, and the token that it has made for its clients."""
    with subprocess.Popen([*words, "--http", "127.0.0.1:0"], env=environment(), stderr=subprocess.PIPE, text=True) as gateway:
        assert gateway.stderr is not None
        token, listens = "", None
        try:
            while listens is None:
                line = gateway.stderr.readline()
                assert line, "the gateway ended before it listened"
                token, listens = token or line.strip() * line.startswith("  cg_"), _LISTENS.search(line)
            yield listens[1], token
        finally:
            gateway.terminate()
            gateway.communicate(timeout=COMMAND_S)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", _SDK)
def test_a_client_of_the_typescript_sdk_gets_what_the_server_gives_it(era: Era, transport: str, tmp_path: Path) -> None:
    server = ["node", str(npm_server(_EVERYTHING)), "stdio"]
    direct = found("handshake", server, tmp_path)
    text = f'journal = ":memory:"\n[servers.everything]\ncommand = {json.dumps(server)}\nclient_tools = true\n'
    (tmp_path / "gate.toml").write_text(text, encoding="utf-8")
    words = command(("serve", "--config", str(tmp_path / "gate.toml")))
    if transport == "http":
        with over_http(words) as where:
            through = found(era, where, tmp_path)
    else:
        through = found(era, words, tmp_path)
    progress = [one for one in through.pop("progress") if "total" in one]  # the SDK adds one for each question that it has answered
    assert progress[:2] == [{"progress": 1, "total": 3}, {"progress": 2, "total": 3}]
    assert direct["cancelled"] == "cancelled"
    assert set(direct.pop("tools")) <= set(through.pop("tools"))
    del direct["progress"]
    assert through == direct
