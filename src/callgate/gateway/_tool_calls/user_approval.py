"""Ask the user of a client whether the client's call may run, while others may answer the same question.

The user sees a form. An operator may answer before that: then the form is withdrawn, and the operator's answer counts. Knows no era of the
protocol, and runs no call.
"""

from __future__ import annotations

import asyncio

from callgate.calls import Suspended
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.gateway._client_calls import ClientCall
from callgate.gateway._tool_calls.approvals import UserAnswer, approval_form, read_answer
from callgate.mcp._messages import RpcError

__all__ = ["UserApproval"]


class UserApproval:
    """Asks the users of one gateway's clients."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def ask(self, client_call: ClientCall, asked: Suspended) -> bool:
        """Ask the client's user about a suspended call, and record the answer; return whether the user or an operator has answered."""
        form = asyncio.ensure_future(self._ask_user(client_call, asked))
        elsewhere = asyncio.ensure_future(self._engine.wait_for_answer(asked.approval_id))
        try:
            await asyncio.wait((form, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            if form.done():
                return await self.record(client_call, asked.approval_id, form.result())
            return elsewhere.exception() is None and elsewhere.result() is not None
        finally:
            for task in (form, elsewhere):
                task.cancel()
            await asyncio.gather(form, elsewhere, return_exceptions=True)

    @staticmethod
    async def _ask_user(client_call: ClientCall, asked: Suspended) -> UserAnswer:
        try:
            return read_answer(await client_call.answer("elicitation/create", approval_form(asked)))
        except RpcError:  # refused, too late, or the client is gone
            return UserAnswer("no answer")

    async def record(self, client_call: ClientCall, approval_id: str, answer: UserAnswer) -> bool:
        """Record what the user has answered; return whether the question is answered now."""
        by = f"the user of {client_call.client.principal.name}"
        try:
            if answer.verdict == "approve":
                await self._engine.approve(approval_id, by=by, reason=answer.reason)
            elif answer.verdict == "deny":
                await self._engine.deny(approval_id, by=by, reason=answer.reason)
        except UsageError:  # somebody else has answered meanwhile, or the question has expired
            return True
        return answer.verdict != "no answer"
