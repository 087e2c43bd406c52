"""`callgate serve` refuses a configuration that names tools or principals that do not exist: what it says of them would have no effect."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.cli.command_process import start_command
from tests.cli.mcp_server_programs import write_servers
from tests.cli.served_gateway import LISTEN, names, principal, server, serving, text_of, write_config
from tests.cli.shell import shell
from tests.waiting import COMMAND_S

pytestmark = pytest.mark.process

_GATED = "[servers.shop.options.{tool}]\nrequires_approval = true\n"
_ABOUT_ANN = '[[rule]]\nid = "ann"\nverdict = "deny"\ntool = "*"\nwhen = {{ principal = "{name}" }}\nreason = "No."\n'
MISSPELLED = pytest.mark.parametrize(
    ("parts", "told"),
    [
        ((server("shop"), _GATED.format(tool="byu")), "'shop' has no tool byu (did you mean buy?), which its configuration names."),
        (('rules = "ann.toml"', server("shop")), "rule 'ann' has 'alcie', which fits no principal; did you mean 'alice'?"),
    ],
    ids=["approval", "principal in a rule"],
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with servers, and with rules about somebody who does not exist."""
    write_servers(tmp_path)
    (tmp_path / "ann.toml").write_text(_ABOUT_ANN.format(name="alcie"), encoding="utf-8")
    return tmp_path


async def _refusal(place: Path, *parts: str) -> str:
    """Return what the command says before it ends with the exit code for a wrong configuration."""
    write_config(place, *parts)
    process = await start_command(place, "serve", "--http", stdin=PIPE)
    _, said = await asyncio.wait_for(process.communicate(), COMMAND_S)
    assert process.returncode == 2
    return said.decode()


@MISSPELLED
async def test_a_gateway_does_not_start_with_a_misspelled_name(place: Path, parts: tuple[str, ...], told: str) -> None:
    *first, last = parts
    assert told in await _refusal(place, *first, LISTEN, last, principal("alice"))


@MISSPELLED
async def test_a_reload_with_a_misspelled_name_is_refused(place: Path, parts: tuple[str, ...], told: str) -> None:
    *first, last = parts
    old = (LISTEN, server("shop"), _GATED.format(tool="look"), principal("alice"))
    async with serving(place, *old) as gateway, gateway.client() as client:
        said = await gateway.reload(*first, LISTEN, last, principal("alice"))
        assert "The configuration was not reloaded, and the one before is in use: " in said
        assert told in said
        assert not (await client.call_tool("buy", {})).is_error
        assert "a human has to approve it first" in text_of(await client.call_tool("look", {}))


async def test_readers_of_metrics_that_do_not_exist_are_refused(place: Path) -> None:
    told = await _refusal(place, LISTEN, 'metrics = ["prometeus"]', server("shop"), principal("prometheus"))
    assert "[http] metrics has 'prometeus', which fits no principal; did you mean 'prometheus'?" in told


async def test_a_name_of_a_server_that_is_not_ready_stops_nothing(place: Path) -> None:
    """Its tools are not known, so nothing is wrong yet."""
    dead = server("dead", command=["no-such-program-here"]) + "[servers.dead.options.send]\nrequires_approval = true\n"
    async with serving(place, LISTEN, server("shop"), dead, principal("alice", tools=["look", "send"])) as gateway:
        assert "The rules about tools of dead are not checked" in gateway.start
        async with gateway.client() as client:
            assert await names(client) == {"look"}


async def test_a_name_that_can_only_allow_less_stops_nothing(place: Path) -> None:
    """A server that drops a tool in its next version must not keep the gateway from starting."""
    less = server("shop", tools=["look", "gone"]) + '[servers.shop.effects]\nsold = "none"\n'
    async with serving(place, LISTEN, less, principal("alice", tools=["look", "gone"])) as gateway:
        assert "'shop' has no tool gone, sold, which its configuration names." in gateway.start
        async with gateway.client() as client:
            assert await names(client) == {"look"}


def test_the_check_tells_each_misspelled_name_once(place: Path) -> None:
    write_config(place, server("shop"), _GATED.format(tool="byu"), principal("alice", tools=["loook"]))
    done = shell(place, "serve", "check")
    assert done.code == 1
    assert done.err.count("byu") == 1
    assert done.err.count("loook") == 1
