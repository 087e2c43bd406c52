"""What the metrics of a gateway say after real calls."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from callgate import Engine, SqliteJournal
from callgate.gateway import Gateway
from tests.gateway.observed_gateway import client_of, observed, pay, samples, time_server
from tests.gateway.test_approvals import approval

pytestmark = [pytest.mark.process]

_SECRET = b"a secret of the tests, 32 bytes.."
_TIME_CALL = ("get_current_time", {"timezone": "UTC"})


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


async def test_calls_are_counted_by_tool_and_end() -> None:
    async with observed(time_server()) as (gateway, client):
        await client.call(*_TIME_CALL)
        await client.call(*_TIME_CALL)
        await client.call("get_current_time", {"timezone": "No/Where"})
        found = samples(gateway)
    assert found[key("callgate_calls_total", tool="get_current_time", status="ok", failure="")] == 2
    errors = [value for (name, labels), value in found.items() if name == "callgate_calls_total" and ("status", "error") in labels]
    assert errors == [1]
    assert found[key("callgate_call_duration_seconds_count", tool="get_current_time")] == 3
    assert found[key("callgate_calls_running")] == 0


async def test_names_that_clients_make_up_get_no_labels() -> None:
    async with observed() as (gateway, client):
        for number in range(5):
            await client.call(f"made-up-{number}", {})
            await client.request(f"made/up{number}", {})
        found, text = samples(gateway), gateway.metrics().decode()
    assert found[key("callgate_calls_total", tool="unknown", status="error", failure="rpc_error")] == 5
    assert found[key("callgate_requests_total", method="unknown", era="handshake", outcome="error")] == 5
    assert "made" not in text


async def test_a_call_that_waits_for_approval_is_shown() -> None:
    async with observed() as (gateway, client):
        await client.call("pay", {"amount": 5})
        found = samples(gateway)
    assert found[key("callgate_calls_waiting_for_approval")] == 1
    assert found[key("callgate_calls_total", tool="pay", status="waiting", failure="")] == 1


async def test_every_gateway_of_a_journal_counts_the_questions_that_nobody_has_answered(tmp_path: Path) -> None:
    def waiting(gateway: Gateway) -> float:
        return samples(gateway)[key("callgate_calls_waiting_for_approval")]

    journal = tmp_path / "journal.db"
    async with Gateway(Engine([pay], journal=SqliteJournal(journal)), secret=_SECRET) as one:
        client = await client_of(one)
        asked = [approval(await client.call("pay", {"amount": amount})) for amount in (5, 6, 7)]
        await client.call("pay", {"amount": 5})
        async with Gateway(Engine([pay], journal=SqliteJournal(journal)), secret=_SECRET) as other:
            assert (waiting(one), waiting(other)) == (3, 3)
            await one.engine.approve(asked[0], by="ann")
            await one.engine.deny(asked[1], by="ann")
            await client.call("pay", {"amount": 5})
            assert (waiting(one), waiting(other)) == (1, 1)
    async with Gateway(Engine([pay], journal=SqliteJournal(journal)), secret=_SECRET) as restarted:
        client = await client_of(restarted)
        await client.call("pay", {"amount": 7})
        assert waiting(restarted) == 1


async def test_servers_are_shown_with_their_states() -> None:
    async with observed(time_server(), [sys.executable, "-c", "raise SystemExit(3)"]) as (gateway, _):
        found = samples(gateway)
        running, broken = gateway.engine.servers_status()
    assert found[key("callgate_server_state", server="server0", state="ready")] == 1
    assert found[key("callgate_server_state", server="server0", state="quarantined")] == 0
    assert found[key("callgate_server_state", server="server1", state="ready")] == 0
    assert found[key("callgate_server_tools", server="server0")] == 2
    assert (running.state, running.problem, running.tools, running.restarts) == ("ready", "", 2, 0)
    assert running.revision
    assert broken.state != "ready"
    assert "server1" in broken.problem


async def test_two_gateways_count_apart() -> None:
    async with observed() as (first, client), observed() as (second, _):
        await client.request("ping", {})
        assert samples(first)[key("callgate_requests_total", method="ping", era="handshake", outcome="ok")] == 1
        assert key("callgate_requests_total", method="ping", era="handshake", outcome="ok") not in samples(second)


async def test_what_a_transport_reports_is_shown() -> None:
    async with observed() as (gateway, _):
        gateway.observed.connections = lambda: {"sessions": 2, "connections": 3}
        gateway.observed.count_refusal("origin")
        found = samples(gateway)
    assert found[key("callgate_sessions_open")] == 2
    assert found[key("callgate_connections_open")] == 3
    assert found[key("callgate_requests_refused_total", reason="origin")] == 1


async def test_every_metric_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/gateway-metrics.md").read_text()
    documented = set(re.findall(r"^\| `(callgate_\w+)`", page, re.MULTILINE))
    text = Gateway(Engine([])).metrics().decode()
    assert documented == set(re.findall(r"^# TYPE (callgate_\w+) ", text, re.MULTILINE))
