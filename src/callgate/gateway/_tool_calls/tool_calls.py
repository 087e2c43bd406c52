"""Make the calls of clients: through the engine's whole route, on behalf of the client, and with the approval of its user if rules want it.

A request of MCP has no message and no identity that survives it, so each request is a call of its own, and calls of one client run side by
side. An exception is a call that waits for approval: when the same principal makes a call of the same tool with the same arguments, it is
the same call, and runs if it was approved meanwhile; see `suspended_calls.py`. While a human decides, the call is suspended, and
holds no permit of its principal. Knows no era of the protocol and no transport.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from callgate.calls import Aborted, Answered, Outcome, Restarted, Suspended, ToolResult
from callgate.engine import Engine
from callgate.errors import CallgateError, JournalFailed, RunHeld, UsageError
from callgate.gateway._client_calls import AskLater, CallInQuestion, ClientCall, Continued, RecordedCall
from callgate.gateway._requests.request_states import RequestStates, request_over
from callgate.gateway._tool_calls.approvals import approval_form, pending_text, read_answer
from callgate.gateway._tool_calls.call_records import CLIENT_CANCELLED, CallRecords, RecordedOutcome
from callgate.gateway._tool_calls.ended_requests import ended_result, unread_result
from callgate.gateway._tool_calls.live_output import LiveOutput
from callgate.gateway._tool_calls.principal_limits import PrincipalLimits
from callgate.gateway._tool_calls.result_outcomes import outcome_of
from callgate.gateway._tool_calls.submitted_calls import SubmittedCall
from callgate.gateway._tool_calls.suspended_calls import SuspendedCalls
from callgate.gateway._tool_calls.tool_results import HELD, NOT_RECORDED, OUTCOME_KEY, RUN_HELD, ToolResults, error_result
from callgate.gateway._tool_calls.user_approval import UserApproval
from callgate.gateway.principals import EVERY, Principal
from callgate.mcp._connection import Message
from callgate.mcp._messages import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from callgate.mcp.calling_client import on_behalf_of

__all__ = ["ToolCalls", "unknown_tool"]

log = logging.getLogger("callgate.gateway")
_HELD_S = 1.0
"""Seconds between two attempts to submit a call whose run another process works on."""
_MOST_QUESTIONS = 3
"""How often a user is asked about one call, if its final arguments differ each time."""


class ToolCalls:
    """Makes the calls of one gateway.

    Args:
        states: Has the gateway's secret.
        records: Has the calls of tasks that this process does not have.
        current: Returns a principal with its present rights, for calls that have waited.
        workspace: The workspace of all calls; empty: none.
    """

    def __init__(
        self,
        engine: Engine,
        states: RequestStates,
        results: ToolResults,
        records: CallRecords,
        current: Callable[[Principal], Principal],
        workspace: str = "",
    ) -> None:
        self._engine = engine
        self._results = results
        self._records = records
        self._current = current
        self._output = LiveOutput(engine)
        self._limits = PrincipalLimits()
        self._pending = SuspendedCalls(engine, states, workspace)
        self._user = UserApproval(engine)

    async def call(self, client_call: ClientCall, params: Mapping[str, Any]) -> Message:
        """Make a call, and return the result of `tools/call`.

        Raises:
            RpcError: There is no such tool for this client, the request is not valid, or the upstream server has answered with an error.
        """
        if client_call.resumed is not None:
            return await self._resume(client_call, client_call.resumed, params)
        client_call.status.is_wanted = True
        name, arguments = self._read_params(params, client_call.client.principal)
        principal, continued = client_call.client.principal.name, client_call.continued
        try:
            if continued is not None:
                return await self._continue(client_call, continued, name, arguments)
            call = await self._pending.find_or_new(principal, client_call.client.run, name, arguments)
        except RunHeld as held:
            log.warning("A call of %s has not run: %s", name, held)
            return error_result(HELD, {"status": "error", "failure": "not_started", "code": held.code})
        except CallgateError as error:  # the journal cannot be read
            log.error("A call of %s was refused: %s", name, error)
            return error_result(NOT_RECORDED, {"status": "error", "failure": "record_failed", "code": "record_failed"})
        with self._pending.in_work(call):
            result = await self._make(client_call, call)
        if call.made_again and client_call.status.is_replayed:  # a request at another gateway has used the approval meanwhile
            return await self.call(client_call, params)
        return result

    async def result_of_ended(self, client_call: ClientCall) -> Message | None:
        """Return the result of a call whose request the gateway has ended, from its record; None if the request was not for a call.

        Raises:
            RpcError: The server has answered with an error.
        """
        call_id = client_call.status.call_id
        if not call_id:
            return ended_result(None) if client_call.status.is_wanted else None
        try:
            end = await self._records.end(call_id)
            start = await self._records.start(call_id)
        except JournalFailed as error:
            log.error("What has become of the call %s is not known: %s", call_id, error)
            return unread_result()
        if end is not None and end.result is not None:
            return self._results.result(end.result, None)
        return ended_result(start)

    async def _continue(self, client_call: ClientCall, continued: Continued, name: str, arguments: dict[str, Any]) -> Message:
        """Continue a call whose question the user was asked by an earlier request.

        Raises:
            RpcError: The question is used up or has expired, or another request is continuing the call.
            RunHeld: Another process works on the call's run.
        """
        client, approval_id = client_call.client, continued.question.approval
        call = self._pending.find_continued(continued.question, client.principal.name, name, arguments)
        if call is None:
            raise request_over()
        client_call.status.call_id = call.id
        with self._pending.in_work(call):
            try:
                decided = await self._engine.wait_for_answer(approval_id, timeout_s=0.0) is not None
            except RunHeld:
                raise
            except UsageError as closed:
                raise request_over() from closed
            asks_user = True
            if not decided and continued.answer is not None and client.can_approve:
                asks_user = await self._user.record(client_call, approval_id, read_answer(continued.answer))
            return await self._make(client_call, call, asks_user=asks_user)

    async def withdraw(self, recorded: SubmittedCall) -> None:
        """Deny a call that its client has cancelled, so that it does not run later.

        Raises:
            RunHeld: Another process works on the call.
        """
        await self._engine.asks_human(recorded.raw, recorded.scope)  # which needs the run
        try:
            await self._engine.deny(recorded.uid, by="the client", reason=CLIENT_CANCELLED)
        except RunHeld:
            raise
        except UsageError:  # nobody was asked, or somebody has answered
            return

    async def _resume(self, client_call: ClientCall, recorded: RecordedCall, params: Mapping[str, Any]) -> Message:
        """Return the recorded result of a call of an earlier process. If there is none, submit the call again, as soon as no other
        process works on its run, and the server of its tool can be used.

        Raises:
            CancelledError: The client has cancelled the call.
            RpcError: The server has answered with an error, or the call has no end and cannot be submitted.
        """
        name, principal = str(params.get("name")), client_call.client.principal
        call = self._pending.call_of(recorded, principal.name, name, dict(params["arguments"]))
        while True:
            end, obstacle = await self._records.end(recorded.call), self._obstacle(recorded, name, principal)
            if end is not None and (end.final or obstacle):
                return self._read_result(end)
            if unusable := self._unusable_servers(name, recorded.server):
                client_call.status.waits_for = unusable
                await self._engine.clock.sleep(_HELD_S)
                continue
            result = await (self._report_held_run(call, obstacle) if obstacle else self._submit_again(client_call, call))
            if outcome_of(result).get("code") != RUN_HELD:
                return result
            client_call.status.waits_for = "Another process works on the call."
            await self._engine.clock.sleep(_HELD_S)

    def _read_result(self, end: RecordedOutcome) -> Message:
        if end.result is None:
            raise asyncio.CancelledError(CLIENT_CANCELLED)
        return self._results.result(end.result, None)

    def server_of(self, name: object) -> str:
        """Return the server or plugin that has a tool; empty if none has."""
        found = self._engine.tools.get(name) if isinstance(name, str) else None
        return found.server if found is not None else ""

    def _unusable_servers(self, name: str, server: str) -> str:
        """Return why a tool may be missing only for now, as sentences: its server cannot be used.

        Args:
            server: The server that had the tool. If it is not known, the tool may be one of each server whose tools are not known.
        """
        tools = self._engine.tools
        if tools.get(name) is not None:
            return ""
        unknown = tools.unavailable
        return tools.withdrawn.get(name) or (unknown.get(server, "") if server else " ".join(unknown.values()))

    def _obstacle(self, recorded: RecordedCall, name: str, principal: Principal) -> str:
        """Return why a call cannot be submitted again; empty if it can."""
        if not recorded.whole:
            return "its arguments are not on record as a whole"
        offered = self._engine.tools.get(name) is not None and self._is_offered(name, principal)
        return "" if offered else f"there is no tool {name[:200]} any more"

    async def _submit_again(self, client_call: ClientCall, call: SubmittedCall) -> Message:
        with self._pending.in_work(call):
            return await self._make(client_call, call)

    async def _report_held_run(self, call: SubmittedCall, obstacle: str) -> Message:
        """Return the result that says that another process works on a call.

        Raises:
            RpcError: None does, and the call cannot be submitted.
        """
        try:
            await self._engine.asks_human(call.raw, call.scope)  # which needs the run
        except RunHeld as held:
            return error_result(str(held), {"status": "error", "code": RUN_HELD})
        began = await self._records.start(call.id) is not None
        look = f"`callgate log show {call.scope.run} --journal FILE` shows what is known of it"
        known = f"may have taken effect: {look}." if began else "has not run."
        text = f"The process of the call has ended before there was a result, and {obstacle}, so the call was not submitted again."
        raise RpcError(INTERNAL_ERROR, f"{text} It {known}")

    async def _make(self, client_call: ClientCall, call: SubmittedCall, *, asks_user: bool = True) -> Message:
        """Submit a call until its outcome is a result, or a question that neither the client's user nor, for a task, somebody else answers.

        Args:
            asks_user: False if the user has been asked already, and has not answered.
        """
        client_call.status.call_id, client_call.status.is_replayed = call.id, False
        questions = _MOST_QUESTIONS if asks_user and client_call.client.can_approve else 0
        while isinstance(outcome := await self._submit(client_call, call), Suspended):
            self._pending.keep(call, outcome)
            if await self._deny_if_too_many(client_call.client.principal, outcome):
                return await self._submit_denied(client_call, call)
            if not questions:
                if not client_call.may_become_task or not await self._wait_for_other_answer(client_call, outcome):
                    return self._waiting_result(outcome)
            elif client_call.ask_later is not None:
                return self._ask_later(client_call.ask_later, call, outcome)
            elif await self._user.ask(client_call, outcome):
                questions -= 1
            elif client_call.may_become_task:
                questions = 0
            else:
                return self._waiting_result(outcome)
        return outcome

    def _ask_later(self, ask_later: AskLater, call: SubmittedCall, asked: Suspended) -> Message:
        """Return the result that ends the request with the question about its call."""
        self._pending.keep(call, asked, found_unanswered=False)
        return ask_later(CallInQuestion(call.id, call.scope.run, asked.approval_id), approval_form(asked))

    def _waiting_result(self, asked: Suspended) -> Message:
        """Return the result of a call that waits for a human, whom its client cannot ask."""
        outcome = {"status": "waiting", "code": "approval_needed", "uid": asked.uid, "approval": asked.approval_id}
        return error_result(pending_text(asked, expired=asked.expires_at <= self._engine.clock.wall_ns()), outcome)

    async def _wait_for_other_answer(self, client_call: ClientCall, asked: Suspended) -> bool:
        """Wait for an answer of somebody else than the client's user, which may take long; return whether there is one."""
        client_call.status.waits_for = f"A human has to approve the call first (approval {asked.approval_id})."
        try:
            return await self._engine.wait_for_answer(asked.approval_id) is not None
        except UsageError:  # it has expired
            return False
        finally:
            client_call.status.waits_for = ""

    async def _deny_if_too_many(self, principal: Principal, asked: Suspended) -> bool:
        """Deny a call if too many of its principal's wait for a decision; return whether that was done."""
        if not await self._pending.has_more_than(principal.pending, principal.name):
            return False
        try:
            await self._engine.deny(asked.approval_id, by="the gateway", reason=_too_many_pending(principal))
        except UsageError:  # somebody has answered meanwhile, or the question has expired
            return False
        return True

    async def _submit_denied(self, client_call: ClientCall, call: SubmittedCall) -> Message:
        """Submit a denied call once more, which ends it, and return what its client has to do instead."""
        await self._submit(client_call, call)
        principal = client_call.client.principal
        text = (
            f"The call of {call.raw.name} has not run: a human has to approve it, and {_too_many_pending(principal)}. Wait until one of"
            " them is decided, then make the call again."
        )
        outcome = {"status": "error", "failure": "not_started", "code": "too_many_pending", "uid": client_call.status.uid}
        return error_result(text, outcome)

    async def _submit(self, client_call: ClientCall, call: SubmittedCall) -> Message | Suspended:
        """Submit a call when its principal may make one more, and return its result, or its question to a human.

        Raises:
            RpcError: Its principal may not use the tool any more.
        """
        principal = self._current(client_call.client.principal)
        permit = await self._limits.acquire(principal)
        if isinstance(permit, str):
            return error_result(permit, {"status": "error", "failure": "not_started", "code": "too_many_calls"})
        client_call.while_asking = permit.released_while_waiting
        try:
            if not self._is_offered(call.raw.name, self._current(principal)):
                raise unknown_tool(call.raw.name)
            with on_behalf_of(client_call), self._output.send_to(client_call, call.id, call.raw.name):
                outcome = await self._engine.call(call.raw, call.scope)
        finally:
            self._limits.release(permit)
        return outcome if isinstance(outcome, Suspended) else self._result(outcome, client_call, call)

    def _result(self, outcome: Outcome, client_call: ClientCall, call: SubmittedCall) -> Message:
        match outcome:
            case Answered(result=result) | Aborted(kept_result=ToolResult() as result):
                client_call.status.uid, client_call.status.is_unrecorded = result.uid, result.failure_class == "record_failed"
                client_call.status.is_replayed = result.metadata.replayed and result.metadata.attempts > 0 and result.status != "unknown"
                if result.uid:  # else nothing is on record, and an approval is still unused
                    self._pending.forget(call.id)
                return self._results.result(result, client_call.response)
            case Aborted(status=status, reason=reason):
                return error_result(reason or "The call was stopped.", {"status": "error", "failure": "killed", "code": status})
            case Restarted(uid=uid):
                return {"content": [], "_meta": {OUTCOME_KEY: {"status": "ok", "code": "restarted", "uid": uid}}}
            case Suspended():
                raise AssertionError("a suspended call has no result")

    def _read_params(self, params: Mapping[str, Any], principal: Principal) -> tuple[str, dict[str, Any]]:
        """Return the tool and the arguments of `tools/call`.

        Raises:
            RpcError: They are not valid, or the tool is not offered to this principal.
        """
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not name:
            raise RpcError(INVALID_PARAMS, "tools/call needs the name of a tool.")
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, f"The arguments of {name[:200]} must be an object.")
        if not self._is_offered(name, principal):
            raise unknown_tool(name)
        return name, arguments

    def _is_offered(self, name: str, principal: Principal) -> bool:
        """Return whether a principal may call a name.

        The engine also accepts what almost is the name of a tool; a principal that is not offered every tool has to give the exact one. A
        call of a tool that cannot be called now is answered with the reason.
        """
        if EVERY in principal.tools:
            return True
        tools = self._engine.tools
        bound = tools.get(name)
        return principal.may_use(bound.name) if bound is not None else name in tools.withdrawn and principal.may_use(name)


def _too_many_pending(principal: Principal) -> str:
    return f"{principal.pending} calls of {principal.name} wait for a decision, which is the limit"


def unknown_tool(name: str) -> RpcError:
    """Return the error for a tool that does not exist for a client."""
    return RpcError(INVALID_PARAMS, f"Unknown tool: {name[:200]}")
