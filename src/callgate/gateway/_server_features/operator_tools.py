"""Tools by which an operator decides about the calls of others: list the approval queue, approve a call, deny one.

They are offered to principals with the role `operator`, and do not exist for others. A question is answered by this engine, or through the
inbox if another process works on its run. Nobody decides about calls that were made under their own name. Knows no era of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from callgate import inbox
from callgate._journal.open_for_reading import address_of
from callgate._json import decode
from callgate._run_in_thread import in_thread
from callgate._run_state.event_bodies import decode_received
from callgate._run_state.recorder import off_loop
from callgate._terminal_text import one_line
from callgate.engine import Engine
from callgate.errors import CallgateError, RunHeld, UsageError
from callgate.gateway._tool_calls.approvals import argument_lines, tool_line
from callgate.gateway._tool_calls.server_results import text_item
from callgate.gateway._tool_calls.tool_results import error_result
from callgate.gateway.principals import Principal
from callgate.inbox import PendingApproval
from callgate.mcp._connection import Message

__all__ = ["DEFINITIONS", "OPERATOR_TOOLS", "OperatorTools"]

_MOST_LISTED = 100
_MOST_CHARS = 16_384
"""The most characters of a call's arguments in the list."""
_SENT_WAIT_S = 2.0
"""Seconds to wait until the process that works on a run has received an answer."""
_ID = {"type": "string", "description": "The id of the question, as callgate_approvals lists it.", "minLength": 1}
_DECIDED = {
    "type": "object",
    "properties": {
        "approval": {"type": "string"},
        "status": {"enum": ["approved", "denied", "sent"]},
        "by": {"type": "string"},
        "message": {"type": "string"},
    },
    "required": ["approval", "status", "by", "message"],
}


class _Listing(Struct, forbid_unknown_fields=True):
    """The arguments of `callgate_approvals`."""


class _Approval(Struct, forbid_unknown_fields=True):
    """The arguments of `callgate_approve`."""

    approval: str
    reason: str = ""
    arguments: dict[str, Any] | None = None


class _Denial(Struct, forbid_unknown_fields=True):
    """The arguments of `callgate_deny`."""

    approval: str
    reason: str


_ARGUMENTS: Final[Mapping[str, type[_Listing | _Approval | _Denial]]] = {
    "callgate_approvals": _Listing,
    "callgate_approve": _Approval,
    "callgate_deny": _Denial,
}
OPERATOR_TOOLS: Final = frozenset(_ARGUMENTS)
"""The names of the tools. No other tool is offered under one of them."""

DEFINITIONS: Final[tuple[Message, ...]] = (
    {
        "name": "callgate_approvals",
        "title": "Calls that wait for a human",
        "description": "List the calls that wait for a human's decision, the oldest first, with their final arguments.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "outputSchema": {
            "type": "object",
            "properties": {"approvals": {"type": "array", "items": {"type": "object"}}, "not_listed": {"type": "integer"}},
            "required": ["approvals", "not_listed"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": "callgate_approve",
        "title": "Approve a call",
        "description": "Let a waiting call run once, with exactly its arguments or with others. Ask your user before you approve anything.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "approval": _ID,
                "reason": {"type": "string", "description": "Why. Recorded; the model is told if you give other arguments."},
                "arguments": {"type": "object", "description": "All arguments to run the call with instead of its own."},
            },
            "required": ["approval"],
            "additionalProperties": False,
        },
        "outputSchema": _DECIDED,
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False},
    },
    {
        "name": "callgate_deny",
        "title": "Deny a call",
        "description": "Deny a waiting call, or withdraw an approval that no call has used.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "approval": _ID,
                "reason": {"type": "string", "description": "Why. Recorded, and told to the model that made the call."},
            },
            "required": ["approval", "reason"],
            "additionalProperties": False,
        },
        "outputSchema": _DECIDED,
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False},
    },
)


class OperatorTools:
    """The approval queue of one gateway's journal, as tools."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def call(self, principal: Principal, name: str, arguments: object) -> Message:
        """Return the result of `tools/call` for one of the tools."""
        try:
            asked = msgspec.convert(_with_current_names(arguments), _ARGUMENTS[name])
        except msgspec.ValidationError as error:
            takes = ", ".join(_ARGUMENTS[name].__struct_fields__) or "no arguments"
            text = f"The arguments of {name} are not valid, so nothing was done: {error}. It takes: {takes}."
            return error_result(text, {"status": "error", "failure": "invalid_parameters", "code": "schema_invalid"})
        try:
            if isinstance(asked, _Listing):
                return await self._list()
            return await self._decide(principal, asked)
        except CallgateError as error:
            return error_result(str(error), {"status": "error", "failure": "refused", "code": error.code})

    async def _list(self) -> Message:
        unreadable: list[str] = []
        waiting = await in_thread(partial(inbox.waiting, self._address(), on_unreadable=unreadable.append))
        shown, left = waiting[:_MOST_LISTED], max(0, len(waiting) - _MOST_LISTED)
        more = [f"{left} more wait, which are not listed."] if left else []
        texts = [_text(one) for one in shown] or ["No call waits for a human."]
        found = {"approvals": [_facts(one) for one in shown], "not_listed": left}
        return {"content": [text_item("\n\n".join([*texts, *more, *unreadable]))], "structuredContent": found}

    async def _decide(self, principal: Principal, asked: _Approval | _Denial) -> Message:
        made_by = await self._find_principal(asked.approval)
        if made_by is None:
            raise UsageError(f"No approval {asked.approval[:200]!r} is open. `callgate_approvals` lists those that are.")
        if made_by == principal.name:
            raise UsageError(
                f"The call of the approval {asked.approval[:200]} was made under your own name, {principal.name}. Somebody else has to"
                " decide about it: another operator, or the user of the client that made it."
            )
        verb = "approved" if isinstance(asked, _Approval) else "denied"
        try:
            if isinstance(asked, _Approval):
                await self._engine.approve(asked.approval, by=principal.name, reason=asked.reason, arguments=asked.arguments)
            else:
                await self._engine.deny(asked.approval, by=principal.name, reason=asked.reason)
        except RunHeld:
            return await self._send(principal, asked, verb)
        then = "It runs when its client makes it again, or continues it." if verb == "approved" else "It does not run; its model is told."
        return _decision(asked.approval, verb, principal, f"The call is {verb}. {then}")

    async def _send(self, principal: Principal, asked: _Approval | _Denial, verb: str) -> Message:
        """Send an answer to the process that works on the run.

        Raises:
            UsageError: It cannot be sent, or that process has refused it.
        """
        given: dict[str, Any] = {}
        if isinstance(asked, _Approval):  # that process knows the tool, and refuses arguments without those that it requires
            given = {"arguments": asked.arguments, "leave_out": True}
        send = inbox.deny if isinstance(asked, _Denial) else inbox.approve
        address = self._address()
        sent = await in_thread(partial(send, address, asked.approval, by=principal.name, reason=asked.reason, **given))
        outcome = await in_thread(partial(inbox.outcome, address, sent.id, wait_s=_SENT_WAIT_S))
        if outcome.refused:
            raise UsageError(f"{sent.held_by}, which works on the call's run, has refused the answer: {outcome.refused}")
        if outcome.position:
            return _decision(asked.approval, verb, principal, f"The call is {verb}: {sent.held_by} has received the answer.")
        text = "The answer is sent, and takes effect when the process that works on the call's run receives it."
        return _decision(asked.approval, "sent", principal, text)

    async def _find_principal(self, approval_id: str) -> str | None:
        """Return the principal of a suspended call; None if there is no such call."""
        journal = self._engine.journal
        for event in await off_loop(journal, lambda: list(journal.read(call=approval_id))):
            if event.kind == "call.received":
                return str((decode_received(event.body).scope or {}).get("principal", ""))
        return None

    def _address(self) -> Any:
        """Return the address of the journal.

        Raises:
            UsageError: It has none, so that other processes' questions cannot be read.
        """
        address = address_of(self._engine.journal)
        if address is None:
            kind = type(self._engine.journal).__name__
            raise UsageError(f"The approvals in a {kind} cannot be listed. Use MemoryJournal, SqliteJournal or PostgresJournal.")
        return address


def _with_current_names(arguments: object) -> object:
    """Return the arguments with the name that `approval` has, which was `approval_id` in earlier versions."""
    if not isinstance(arguments, dict) or "approval_id" not in arguments or "approval" in arguments:
        return arguments
    return {"approval" if name == "approval_id" else name: value for name, value in arguments.items()}


def _decision(approval: str, status: str, principal: Principal, message: str) -> Message:
    facts = {"approval": approval, "status": status, "by": principal.name, "message": message}
    return {"content": [text_item(message)], "structuredContent": facts}


def _facts(one: PendingApproval) -> dict[str, object]:
    """Return what programs are told of one question. Arguments that are too long are truncated text."""
    try:
        arguments: object = decode(one.arguments) if len(one.arguments) <= _MOST_CHARS else f"{one.arguments[:_MOST_CHARS]}…"
    except msgspec.DecodeError:
        arguments = one.arguments
    facts: dict[str, object] = {
        "approval": one.approval,
        "principal": one.principal,
        "tool": one.tool,
        "server": one.server,
        "arguments": arguments,
        "question": one.question,
        "rule": one.rule,
        "asked_at": _time(one.asked_ns),
        "expires_at": _time(one.expires_ns),
        "held_by": one.held_by,
    }
    if one.sent is not None:
        facts["answer_sent"] = {"approved": one.sent.allow, "by": one.sent.by}
    return facts


def _text(one: PendingApproval) -> str:
    """Return one question as a human reads it."""
    lines = [
        f"Approval {one_line(one.approval)}, asked {_time(one.asked_ns)}, expires {_time(one.expires_ns)}",
        one_line(one.question, 1_000),
        f"Principal: {one_line(one.principal) or 'none'}",
        tool_line(one.tool, one.server),
        *argument_lines(one.arguments, one.approval),
        f"Asked by: {one_line(one.rule) or 'unknown'}",
    ]
    if one.sent is not None:
        lines.append(f"Answered with {'yes' if one.sent.allow else 'no'} by {one_line(one.sent.by)}; not received yet")
    return "\n".join(lines)


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
