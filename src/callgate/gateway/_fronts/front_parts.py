"""What the fronts of one gateway share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callgate.gateway._fronts.client_runs import ClientRuns
from callgate.gateway._fronts.methods import Methods
from callgate.gateway._gateway_limits import GatewayLimits
from callgate.gateway._redaction import ClientRedaction
from callgate.gateway._requests.parked_requests import ParkedRequests
from callgate.gateway._requests.request_states import RequestStates
from callgate.gateway._server_features.changes import Changes
from callgate.gateway._server_features.offered_content import OfferedContent
from callgate.gateway._tasks.tasks import Tasks
from callgate.gateway._tool_calls.call_records import CallRecords
from callgate.gateway._tool_calls.tool_calls import ToolCalls
from callgate.gateway.principals import Principal
from callgate.mcp._messages import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from callgate.gateway._observability.metrics import GatewayMetrics

__all__ = ["FrontParts", "object_of", "params_of"]


class FrontParts(Struct, frozen=True, kw_only=True):
    """The parts of a gateway that its fronts use."""

    methods: Methods
    content: OfferedContent
    changes: Changes
    runs: ClientRuns
    parked: ParkedRequests
    redaction: ClientRedaction
    states: RequestStates
    tasks: Tasks
    records: CallRecords
    calls: ToolCalls
    metrics: GatewayMetrics
    info: Mapping[str, Any]
    """The gateway's `name` and `version`."""
    instructions: Callable[[Principal], Awaitable[str]]
    """Returns what a principal's client may tell its model about the tools; may be empty."""
    limits: GatewayLimits


def params_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the params of a request.

    Raises:
        RpcError: They are not an object.
    """
    params = message.get("params", {})
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "The params must be an object.")
    return params


def object_of(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
