"""`Gateway`: one engine, and the fronts through which MCP clients use its tools.

Assembles the parts that all fronts share. Transports get their fronts here, and know nothing else of the gateway.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from callgate._option_checks import by_name
from callgate._version import __version__
from callgate.engine import Engine
from callgate.gateway._access.current_principals import CurrentPrincipals
from callgate.gateway._exchange import Exchange
from callgate.gateway._fronts.client_runs import ClientRuns
from callgate.gateway._fronts.front_parts import FrontParts
from callgate.gateway._fronts.handshake import HandshakeSession
from callgate.gateway._fronts.methods import Answer, Methods
from callgate.gateway._fronts.stateless import StatelessFront
from callgate.gateway._gateway_limits import GatewayLimits
from callgate.gateway._observability.health import health
from callgate.gateway._observability.unanswered_questions import UnansweredQuestions
from callgate.gateway._redaction import ClientRedaction
from callgate.gateway._requests.parked_requests import ParkedRequests
from callgate.gateway._requests.replicas import Replicas
from callgate.gateway._requests.request_states import RequestStates
from callgate.gateway._server_features.changes import Changes
from callgate.gateway._server_features.offered_content import OfferedContent
from callgate.gateway._server_features.operator_tools import OperatorTools
from callgate.gateway._server_features.startup import Startup
from callgate.gateway._server_features.tool_list import ToolLists
from callgate.gateway._tasks.tasks import Tasks
from callgate.gateway._tool_calls.call_records import CallRecords
from callgate.gateway._tool_calls.tool_calls import ToolCalls
from callgate.gateway._tool_calls.tool_results import ToolResults
from callgate.gateway.principals import Principal

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from callgate.mcp import McpServer
    from callgate.plugins import Plugin

log = logging.getLogger("callgate")

__all__ = ["Gateway", "GatewayLimits"]


_DEFAULTS = GatewayLimits()


class Gateway:
    """Offers an engine's tools to MCP clients. Use it as `async with Gateway(engine) as gateway`.

    Args:
        engine: The engine with the tools, the rules and the journal. The gateway starts and closes it.
        name: The gateway's name, as clients see it.
        instructions: What clients may tell their models about these tools. The instructions of the servers follow it.
        secret: A secret of at least 32 bytes, the same for all gateways that share a journal. None: a random one.
        replica: The name of this gateway among those that share a journal.
        replica_url: The address at which the others reach this one over HTTP, such as `http://10.0.0.3:8765`; empty: they do not.
        tracer_provider: Where spans of OpenTelemetry go, if opentelemetry-api is installed. None: the provider of the process.
        workspace: The folder in which tools of this process may work with files.
    """

    @by_name
    def __init__(
        self,
        engine: Engine,
        *,
        name: str = "callgate",
        instructions: str = "",
        limits: GatewayLimits = _DEFAULTS,
        secret: bytes | None = None,
        replica: str = "",
        replica_url: str = "",
        tracer_provider: TracerProvider | None = None,
        workspace: str = "",
    ) -> None:
        from callgate.gateway._observability.metrics import GatewayMetrics, Readings  # only a gateway that is made needs its packages

        self.engine = engine
        self.name = name
        self.limits = limits
        redaction, states = ClientRedaction(engine.redactor), RequestStates(secret)
        self.replicas = Replicas(replica_url, states)
        """Where the sessions and waiting requests of clients are."""
        self._closing = False
        changes = Changes(redaction)
        self._startup = Startup(engine, changes)
        self._lists = ToolLists(engine.tools, engine.servers_status, redaction)
        self._principals = CurrentPrincipals()
        parked = ParkedRequests(states, self.replicas.url, limits)
        tasks = Tasks(states, engine.clock, self.replicas.url, limits)
        content = OfferedContent(engine, self._startup, redaction, self._principals.current)
        records = CallRecords(engine, workspace)
        results = ToolResults(engine.blobs, redaction, changed_by_hooks=engine.changes_results)
        calls = ToolCalls(engine, states, results, records, self._principals.current, workspace)
        self._questions = UnansweredQuestions(engine)
        readings = Readings(waiting=self._questions.count, parked=lambda: len(parked), tasks=lambda: len(tasks))
        self.observed = GatewayMetrics(engine, readings)
        """Where transports count what they refuse, and say how many clients they have."""
        call = partial(self.observed.call, _trace(calls.call, engine, tracer_provider))
        self._parts = FrontParts(
            methods=Methods(self._lists, call, OperatorTools(engine), content, self._startup),
            content=content,
            changes=changes,
            runs=ClientRuns(replica),
            parked=parked,
            redaction=redaction,
            states=states,
            tasks=tasks,
            records=records,
            calls=calls,
            metrics=self.observed,
            info={"name": name, "version": __version__},
            instructions=partial(content.instructions, instructions),
            limits=limits,
        )

    def handshake(self, principal: Principal, events: Exchange | None = None) -> HandshakeSession:
        """Return the front for one session of a client of the handshake era.

        Args:
            events: Where messages go that belong to no request. None: they are not sent.
        """
        return HandshakeSession(self._parts, principal, events)

    def stateless(self, principal: Principal) -> StatelessFront:
        """Return the front for requests of the stateless era."""
        return StatelessFront(self._parts, principal)

    def end_subscriptions(self) -> None:
        """Answer the requests of stateless clients that wait for changes, because their transport stops."""
        self._parts.changes.end_subscriptions()

    def header_params(self, tool: str) -> Mapping[str, Sequence[str]]:
        """Return which arguments of a tool are repeated as headers over HTTP: their paths, by the part of the header after `Mcp-Param-`."""
        return self._lists.argument_headers().paths(tool)

    def metrics(self) -> bytes:
        """Return the metrics of the gateway and its servers, in the text format of Prometheus.

        What it shows of a journal on a server is what `refresh_metrics` has read last; any other journal is read.
        """
        return self.observed.text()

    async def refresh_metrics(self) -> None:
        """Read what `metrics` shows of the journal. Returns after a second at most; if the journal is slower, it is read on meanwhile."""
        await self._questions.refresh()

    def health(self) -> Mapping[str, Any]:
        """Return whether the gateway and its servers work, as JSON data: `status` is `ok`, `degraded`, `failed` or `closing`."""
        return health(self.engine.servers_status(), records=not self.engine.journal.status().failure, closing=self._closing)

    async def start(self) -> None:
        """Start the engine's servers, and wait until each has listed its tools or has failed. Idempotent.

        Clients may be served meanwhile: their requests that need the servers wait.

        Raises:
            UsageError: A server with `required=True` cannot be started, a rule is about something that no tool has, or a tool has the
                name of one of the gateway's own.
        """
        await self._startup.wait()

    async def change_servers(self, *, add: Collection[McpServer | Plugin] = (), remove: Collection[str] = ()) -> None:
        """Remove servers by name and start others, while clients are served; see `Engine.change_servers`.

        Returns when the added servers have started; running calls of removed ones have 30 s to end, also after that. Clients are told that
        the lists of tools, resources and prompts have changed. Their subscriptions to resources of a server that is replaced go on at the
        other; they are told that these resources may have changed.

        Raises:
            UsageError: As `Engine.change_servers` says.
        """
        await self._startup.change(add, remove)
        for uri in sorted(await self._parts.content.renew(remove)):
            self._parts.changes.resource_updated(uri)

    def use_principals(self, *configurations: Iterable[Principal]) -> None:
        """Let calls that have waited for a slot or for a human run only if their principals may still make them.

        Args:
            configurations: The principals of the configuration, or of each of several that count. Others may do what their tokens say.
        """
        self._principals.use(*configurations)

    def end_tasks(self, ended: Callable[[str], bool]) -> None:
        """Cancel the tasks of principals, given by name, who may no longer use the gateway."""
        self._parts.tasks.end(ended)

    def tell_tools_changed(self) -> None:
        """Tell all clients that their list of tools has changed, because principals may use others."""
        self._parts.changes.list_changed("tools")

    async def close(self) -> None:
        """End all requests and the engine, in bounded time. Idempotent."""
        self._closing = True
        self._parts.changes.close()
        self._parts.parked.close()
        self._parts.tasks.end(lambda _: True)
        await self.engine.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


def _trace(call: Answer, engine: Engine, provider: TracerProvider | None) -> Answer:
    """Return `call` with a span around each call, if opentelemetry-api is installed."""
    try:
        from callgate.gateway._observability.tracing import CallTracing
    except ModuleNotFoundError:
        return call
    return partial(CallTracing(engine, provider).call, call)
