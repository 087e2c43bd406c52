"""Decide whether a validated call may run.

Runs after `validate`, so that hooks and policies see the arguments that the tool will get, and before `cache`, so that
a cached result cannot bypass a deny. If the arguments are changed, they are validated and the gate starts again, for a
limited number of rounds. The gate never waits for a human: a question becomes a pending approval. It is asked last, so
that no human is asked about a call that a limit will refuse. If a policy fails, the call is denied.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from callgate._json import canonical, plain_bytes
from callgate._pipeline.approval_answers import EditedCall, apply_answer
from callgate._pipeline.call_hooks import hook_arguments
from callgate._pipeline.combined_verdict import (
    BY_DEFAULT,
    CombinedVerdict,
    GateParts,
    ask_all,
    ask_at_once,
    combine,
    refuse_changed,
)
from callgate._pipeline.validate import ModifiedCall
from callgate._run_state.approvals import Question, binding, same_call
from callgate.errors import ActorRequired, ApprovalNeeded, CallDenied
from callgate.hooks import Hook
from callgate.protocols import Ask, Judgment
from callgate.stage_types import ApprovedCall, ValidatedCall

__all__ = ["call_to_ask_about", "gate"]


RecordChange = Callable[[ModifiedCall], None]
"""Records that the call is judged again with other arguments."""


def gate(
    call: ValidatedCall, hooks: tuple[Hook, ...], parts: GateParts, key: str, record_change: RecordChange
) -> ApprovedCall | Coroutine[Any, Any, ApprovedCall]:
    """Return the approved call with the rule that allowed it, or a coroutine if something has to be awaited.

    Args:
        call: The call. Its `arguments` match the tool's input schema.
        hooks: The hooks that may change or refuse the arguments of this tool, in order.
        parts: Policies, limits and approvals.
        key: The call's idempotency key.
        record_change: Records each change of the arguments.

    Raises:
        CallDenied: A hook or policy refused the call, or failed.
        ActorRequired, DangerousLimitReached: A limit refused the call.
        ApprovalNeeded: A human has to decide.
    """
    if hooks or parts.waits:
        return _AwaitedGate(hooks, parts, key, record_change).run_rounds(call)
    encoded = canonical(call.arguments)
    combined = BY_DEFAULT
    for asked, policy in enumerate(parts.policies):
        verdict = ask_at_once(policy, call, parts)
        if verdict is None:
            return _AwaitedGate((), parts, key, record_change).resume(call, encoded, combined, asked)
        answer = combine(call, combined, verdict, parts)
        if isinstance(answer, ModifiedCall):
            return _AwaitedGate((), parts, key, record_change).restart_modified(call, encoded, answer)
        combined = answer
    if call.tool.approval is not None or (
        (parts.judges.present or combined.required_by is not None) and parts.judges.concern(call, combined.required_by)
    ):
        return _AwaitedGate((), parts, key, record_change).resume(call, encoded, combined, len(parts.policies))
    approved = _approve(call, encoded, combined, parts, key)
    return approved if isinstance(approved, ApprovedCall) else _AwaitedGate((), parts, key, record_change).restart_edited(approved)


async def call_to_ask_about(call: ValidatedCall, parts: GateParts) -> ValidatedCall | None:
    """Return the call with its final arguments if the policies want a human to decide about it and none has, otherwise None.

    Hooks are not run, and nothing is recorded.
    """
    for _ in range(parts.rounds):
        try:
            combined = await ask_all(call, parts)
        except CallDenied:
            return None
        if not isinstance(combined, ModifiedCall):
            asks = isinstance(combined.verdict, Ask) and parts.find_answer_to(call, canonical(call.arguments)) is None
            return call if asks else None
        call = combined.call
    return None


class _AwaitedGate(Struct, frozen=True, eq=False):
    """The gate for one call, from where something has to be awaited."""

    hooks: tuple[Hook, ...]
    parts: GateParts
    key: str
    record_change: RecordChange

    async def resume(self, call: ValidatedCall, encoded: bytes, before: CombinedVerdict, asked: int) -> ApprovedCall:
        """Continue with the policy at index `asked`, which has to be awaited. There are no hooks."""
        combined = await ask_all(call, self.parts, before, asked)
        if isinstance(combined, ModifiedCall):
            return await self.restart_modified(call, encoded, combined)
        return await self._approve(call, encoded, combined)

    async def restart_modified(self, call: ValidatedCall, encoded: bytes, change: ModifiedCall) -> ApprovedCall:
        """Start again with the arguments that a policy gave, as the second round."""
        refuse_changed(call, encoded)
        self.record_change(change)
        return await self.run_rounds(change.call, done=1)

    async def restart_edited(self, edited: EditedCall) -> ApprovedCall:
        """Start again with the arguments with which a human has allowed the call."""
        self.record_change(edited)
        return await self.run_rounds(edited.call, edit=edited.question)

    async def run_rounds(self, call: ValidatedCall, *, done: int = 0, edit: Question | None = None) -> ApprovedCall:
        """Continue with round `done`, until nothing changes the arguments any more.

        Args:
            edit: The answer of a human that has changed the arguments before, if there is one.
        """
        for _ in range(done, self.parts.rounds):
            encoded = canonical(call.arguments)
            changed = await hook_arguments(call, encoded, self.hooks, self.parts.host) if self.hooks else None
            if changed is not None:
                self.record_change(changed)
                call = changed.call
                continue
            combined = await ask_all(call, self.parts)
            if isinstance(combined, ModifiedCall):
                refuse_changed(call, encoded)
                self.record_change(combined)
                call = combined.call
                continue
            return await self._approve(call, encoded, combined, edit)
        why = f"its arguments were still being changed after {self.parts.rounds} rounds. Report this to the operator."
        raise CallDenied(f"{call.name} was denied: {why}", code="policy_unstable")

    async def _approve(self, call: ValidatedCall, encoded: bytes, combined: CombinedVerdict, edit: Question | None = None) -> ApprovedCall:
        approved = _approve(call, encoded, combined, self.parts, self.key, edit)
        return approved if isinstance(approved, ApprovedCall) else await self.restart_edited(approved)


def _approve(
    call: ValidatedCall, encoded: bytes, combined: CombinedVerdict, parts: GateParts, key: str, edit: Question | None = None
) -> ApprovedCall | EditedCall:
    tool, verdict, judgments = call.tool, combined.verdict, combined.judgments
    if parts.policies or judgments:
        refuse_changed(call, encoded)
    if tool.requires_actor and not call.scope.actor:
        raise ActorRequired(
            f"{tool.name} acts for somebody, and this turn names no actor. Set Scope.actor, or requires_actor=False on the tool."
        )
    if tool.category == "dangerous":
        parts.check_limits(call)
    rule: object = verdict.rule
    if not isinstance(rule, str) and not isinstance(verdict, Ask):
        raise CallDenied(f"{call.name} was denied: the policy gave {type(rule).__name__} for its rule's name.", code="policy_failed")
    named = rule if isinstance(rule, str) and rule.isascii() else parts.host.cut(rule)
    if edit is None and parts.answered and (answer := parts.find_answer_to(call, encoded)) is not None:
        edited = apply_answer(call, encoded, answer, parts.host, coerce=parts.coerce)
        if edited is not None:
            parts.spend_approval(answer.binding)
            return edited
    approval = _approval(call, encoded, verdict, judgments, parts, edit) if isinstance(verdict, Ask) else edit
    ordered = plain_bytes(call.arguments)
    if approval is None:
        return ApprovedCall(call=call, rule=named, encoded=encoded, arguments_json=ordered, key=key, judgments=judgments)
    return ApprovedCall(
        call=call,
        rule=f"{named}, allowed by {parts.host.cut(approval.by)}",
        encoded=encoded,
        arguments_json=ordered,
        key=key,
        approval=approval.approval_id,
        allowed_by=approval.by,
        allowed_despite=approval.doubt,
        judgments=judgments,
    )


def _approval(
    call: ValidatedCall, encoded: bytes, verdict: Ask, judgments: tuple[Judgment, ...], parts: GateParts, edit: Question | None
) -> Question:
    """Use up the approval of a human for exactly this call, and return it.

    Raises:
        ApprovalNeeded: There is none.
    """
    bound_to = binding(call, encoded)
    approval = edit if edit is not None and edit.binding == bound_to else parts.spend_approval(bound_to)
    if approval is None:
        question, rule = parts.host.cut(verdict.question), parts.host.cut(verdict.rule)
        same, doubt = same_call(call, encoded), parts.call_in_doubt(call, encoded)
        raise ApprovalNeeded(question, rule=rule, binding=bound_to, same_call=same, judgments=judgments, doubt=doubt)
    return approval
