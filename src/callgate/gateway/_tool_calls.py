"""Make the calls of clients: through the engine's whole route, on behalf of the client, and with the approval of its user if rules want it.

A request of MCP has no message and no identity that survives it, so each request is a call of its own, and calls of one client run side by
side. An exception is a call that waits for approval: when the same principal makes a call of the same tool with the same arguments, it is
the same call, and runs if it was approved meanwhile. Knows no era of the protocol and no transport.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from callgate._json import canonical
from callgate.calls import Aborted, Answered, RawCall, Restarted, Scope, Suspended
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.gateway._approvals import approval_form, pending_text, read_answer
from callgate.gateway._client_calls import ClientCall
from callgate.gateway._principal_limits import PrincipalLimits
from callgate.gateway._tool_results import OUTCOME_KEY, ToolResults, error_result
from callgate.mcp._connection import Message
from callgate.mcp._messages import INVALID_PARAMS, RpcError
from callgate.mcp.calling_client import on_behalf_of

__all__ = ["ToolCalls"]

_MOST_PENDING = 10_000
_ORIGIN = "mcp"


class _Call(Struct, frozen=True):
    """A call as it was submitted; submitted again after its approval."""

    raw: RawCall
    scope: Scope


class ToolCalls:
    """Makes the calls of one gateway."""

    def __init__(self, engine: Engine, results: ToolResults) -> None:
        self._engine = engine
        self._results = results
        self._limits = PrincipalLimits()
        self._pending: OrderedDict[bytes, _Call] = OrderedDict()
        """Calls that wait for approval, by principal, tool and arguments."""

    @property
    def waiting(self) -> int:
        """How many calls wait for approval."""
        return len(self._pending)

    async def call(self, client_call: ClientCall, params: Mapping[str, Any]) -> Message:
        """Make a call, and return the result of `tools/call`.

        Raises:
            RpcError: There is no such tool for this client, the request is not valid, or the upstream server has answered with an error.
        """
        client = client_call.client
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not name:
            raise RpcError(INVALID_PARAMS, "tools/call needs the name of a tool.")
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, f"The arguments of {name[:200]} must be an object.")
        if not client.principal.may_use(name):
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name[:200]}")
        identity = _identity(client.principal.name, name, arguments)
        async with self._limits.slot(client.principal) as free:
            if not free:
                return error_result(free.text, {"status": "error", "failure": "not_started", "code": "too_many_calls"})
            with on_behalf_of(client_call):
                return await self._submit(client_call, self._pending.get(identity) or _new_call(client_call, name, arguments), identity)

    async def _submit(self, client_call: ClientCall, call: _Call, identity: bytes) -> Message:
        outcome = await self._engine.call(call.raw, call.scope)
        if isinstance(outcome, Suspended) and await self._user_decides(client_call, outcome):
            outcome = await self._engine.call(call.raw, call.scope)
        match outcome:
            case Answered(result=result):
                client_call.uid = result.uid
                self._pending.pop(identity, None)
                return self._results.result(result, client_call.response)
            case Suspended(approval_id=uid):
                self._keep(identity, call)
                return error_result(pending_text(outcome), {"status": "waiting", "code": "approval_needed", "uid": uid})
            case Aborted(status=status, reason=reason):
                return error_result(reason or "The call was stopped.", {"status": "error", "failure": "killed", "code": status})
            case Restarted(uid=uid):
                return {"content": [], "_meta": {OUTCOME_KEY: {"status": "ok", "code": "restarted", "uid": uid}}}

    async def _user_decides(self, client_call: ClientCall, asked: Suspended) -> bool:
        """Ask the client's user about the call, and record the answer; return whether there is one."""
        if not client_call.client.can_approve:
            return False
        try:
            answer = read_answer(await client_call.answer("elicitation/create", approval_form(asked.question)))
        except RpcError:
            return False
        by = f"the user of {client_call.client.principal.name}"
        try:
            if answer.verdict == "approve":
                await self._engine.approve(asked.approval_id, by=by, reason=answer.reason)
            elif answer.verdict == "deny":
                await self._engine.deny(asked.approval_id, by=by, reason=answer.reason)
        except UsageError:  # somebody else has answered meanwhile, or the question has expired
            return True
        return answer.verdict != "no answer"

    def _keep(self, identity: bytes, call: _Call) -> None:
        self._pending[identity] = call
        self._pending.move_to_end(identity)
        if len(self._pending) > _MOST_PENDING:
            self._pending.popitem(last=False)


def _new_call(client_call: ClientCall, name: str, arguments: dict[str, Any]) -> _Call:
    client, call_id = client_call.client, secrets.token_hex(8)
    scope = Scope(run=client.run, conversation=call_id, principal=client.principal.name)
    return _Call(RawCall(name=name, arguments=arguments, id=call_id, origin=_ORIGIN), scope)


def _identity(principal: str, tool: str, arguments: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(canonical([principal, tool, arguments])).digest()
