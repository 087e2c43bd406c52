"""The metrics of one gateway, in the text format of Prometheus.

Counts requests and calls as they happen, and reads what has a state (servers, waiting calls, connections) when somebody asks. Labels have
few values: what a client or a server has made up is counted as `unknown` or `other`. Knows neither arguments nor results.

Source: Prometheus documentation, "Metric and label naming".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, get_args

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from callgate.engine import Engine
from callgate.gateway._client_calls import ClientCall
from callgate.gateway._tool_calls.result_outcomes import end_of, outcome_of
from callgate.mcp._connection import Message
from callgate.mcp._messages import RpcError
from callgate.mcp._revisions import Era
from callgate.protocols import ServerState

__all__ = ["GatewayMetrics", "Readings"]

P = ParamSpec("P")
_Request = Callable[Concatenate[Mapping[str, Any], P], Awaitable[Message]]
_Call = Callable[[ClientCall, Mapping[str, Any]], Awaitable[Message]]

_METHODS = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "server/discover",
        "subscriptions/listen",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
    }
)
_STATES = (*get_args(ServerState), "unknown")
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_MOST_TOOLS = 1_000
"""Names of tools in labels; what servers add later is counted as `other`."""


class Readings(Struct, frozen=True, kw_only=True, eq=False):
    """What is read when the metrics are asked for."""

    waiting: Callable[[], int]
    """How many questions about calls wait for a human."""
    parked: Callable[[], int]
    """How many requests of stateless clients wait for answers."""
    tasks: Callable[[], int]
    """How many calls run as tasks."""


class GatewayMetrics:
    """Counts what one gateway does."""

    def __init__(self, engine: Engine, readings: Readings) -> None:
        self._engine = engine
        self.registry = CollectorRegistry()
        self.connections: Callable[[], Mapping[str, int]] = dict
        """Set by a transport: returns the numbers of its open `sessions` and `connections`."""
        self._calls = Counter("callgate_calls", "Calls of tools that have ended.", ["tool", "status", "failure"], registry=self.registry)
        self._durations = Histogram(
            "callgate_call_duration_seconds", "Time of calls with all waits.", ["tool"], buckets=_BUCKETS_S, registry=self.registry
        )
        self.running = 0
        """How many calls run or wait."""
        self._requests = Counter(
            "callgate_requests", "Requests of MCP clients that have ended.", ["method", "era", "outcome"], registry=self.registry
        )
        self._refused = Counter("callgate_requests_refused", "Requests that were refused.", ["reason"], registry=self.registry)
        self._reloads = Counter("callgate_config_reloads", "Reloads of the configuration.", ["outcome"], registry=self.registry)
        self._tools: set[str] = set()
        self._call_counters: dict[tuple[str, str, str], Counter] = {}
        self._call_durations: dict[str, Histogram] = {}
        self._request_counters: dict[tuple[str, str, str], Counter] = {}
        self.registry.register(_Gauges(self, engine, readings))

    def text(self) -> bytes:
        """Return all metrics, in the text format of Prometheus."""
        return generate_latest(self.registry)

    def count_refusal(self, reason: str) -> None:
        """Count a request that was refused before it was answered, with one of a few reasons."""
        self._refused.labels(reason).inc()

    def count_reload(self, *, succeeded: bool) -> None:
        """Count a reload of the configuration."""
        self._reloads.labels("ok" if succeeded else "refused").inc()

    async def request(self, era: Era, answer: _Request[P], message: Mapping[str, Any], *more: P.args, **named: P.kwargs) -> Message:
        """Answer a request, and count it."""
        outcome = "failed"
        try:
            result = await answer(message, *more, **named)
            kind = result.get("resultType")
            outcome = kind if kind in ("input_required", "task") else "ok"
            return result
        except RpcError:
            outcome = "error"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            self._count_request(message["method"], era, outcome)

    async def call(self, make: _Call, client_call: ClientCall, params: Mapping[str, Any]) -> Message:
        """Make a call, and count it."""
        began, status, failure = time.perf_counter(), "error", "other"
        self.running += 1
        try:
            result = await make(client_call, params)
            status, failure = end_of(result)
            if outcome_of(result).get("code") == "too_many_calls":
                self.count_refusal("too_many_calls")
            return result
        except RpcError:
            failure = "rpc_error"
            raise
        except asyncio.CancelledError:
            status, failure = "cancelled", ""
            raise
        finally:
            self.running -= 1
            self._count_call(self._tool(params.get("name")), status, failure, time.perf_counter() - began)

    def _count_request(self, method: str, era: Era, outcome: str) -> None:
        key = (method if method in _METHODS else "unknown", era, outcome)
        counter = self._request_counters.get(key)
        if counter is None:
            counter = self._request_counters[key] = self._requests.labels(*key)
        counter.inc()

    def _count_call(self, tool: str, status: str, failure: str, took_s: float) -> None:
        key = (tool, status, failure)
        counter, duration = self._call_counters.get(key), self._call_durations.get(tool)
        if counter is None:
            counter = self._call_counters[key] = self._calls.labels(*key)
        if duration is None:
            duration = self._call_durations[tool] = self._durations.labels(tool)
        counter.inc()
        duration.observe(took_s)

    def _tool(self, name: object) -> str:
        """Return the label of a tool."""
        bound = self._engine.tools.get(name) if isinstance(name, str) else None
        if bound is None:
            return "unknown"
        if bound.name not in self._tools:
            if len(self._tools) >= _MOST_TOOLS:
                return "other"
            self._tools.add(bound.name)
        return bound.name


class _Gauges(Collector):
    """What is read when the metrics are asked for."""

    def __init__(self, metrics: GatewayMetrics, engine: Engine, readings: Readings) -> None:
        self._metrics = metrics
        self._engine = engine
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        yield _gauge("callgate_calls_running", "Calls of tools that run or wait.", self._metrics.running)
        yield _gauge("callgate_calls_waiting_for_approval", "Questions that no human has answered.", self._readings.waiting())
        yield _gauge("callgate_requests_parked", "Requests of stateless clients that wait for answers.", self._readings.parked())
        yield _gauge("callgate_tasks_running", "Calls that go on as tasks of their clients.", self._readings.tasks())
        yield _gauge("callgate_abandoned", "Threads, coroutines and tasks that still run after their calls.", self._engine.abandoned)
        works = not self._engine.journal.status().failure
        yield _gauge("callgate_journal_up", "1 while the journal takes events; without it, no call runs.", works)
        counts = self._metrics.connections()
        yield _gauge("callgate_sessions_open", "Open sessions of clients.", counts.get("sessions", 0))
        yield _gauge("callgate_connections_open", "Open connections of clients.", counts.get("connections", 0))
        states = GaugeMetricFamily("callgate_server_state", "1 for the state of each upstream server.", labels=["server", "state"])
        tools = GaugeMetricFamily("callgate_server_tools", "Tools that each upstream server offers.", labels=["server"])
        restarts = GaugeMetricFamily("callgate_server_restarts", "Restarts of each upstream server.", labels=["server"])
        for one in self._engine.servers_status():
            for state in _STATES:
                states.add_metric([one.name, state], float(one.state == state))
            tools.add_metric([one.name], one.tools)
            restarts.add_metric([one.name], one.restarts)
        yield from (states, tools, restarts)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
