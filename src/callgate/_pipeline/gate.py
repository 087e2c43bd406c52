"""Decide whether a validated call may run.

After `validate`, so that hooks and policies see the arguments the tool will get. Before `cache`, so that a cached result cannot bypass
a deny. Any change of the arguments is validated and starts the gate again, for a bounded number of rounds. Never waits for a human: a
question becomes a pending approval, asked last, so that nobody is asked for what a limit will refuse. Fails closed.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, Protocol

from callgate._json import canonical
from callgate._pipeline.again import Question
from callgate._pipeline.approvals import binding
from callgate._pipeline.hooks import hook_arguments
from callgate._pipeline.record import clean
from callgate._pipeline.validate import revalidate
from callgate._signals import is_own_failure
from callgate.calls import Note
from callgate.errors import ActorRequired, ApprovalNeeded, CallDenied, CallFailed
from callgate.hooks import Hook
from callgate.protocols import Allow, Ask, Deny, Modify, Verdict
from callgate.route import ApprovedCall, ValidatedCall

__all__ = ["Gate", "Judge", "gate"]

_BY_DEFAULT = Allow(rule="default")


class Judge(Protocol):
    """A policy that answers in bounded time: at once, or when it is waited for."""

    def judge(self, call: ValidatedCall) -> Verdict | Coroutine[Any, Any, Verdict]: ...


class Gate(Protocol):
    """What the gate needs from the engine."""

    policies: tuple[Judge, ...]
    rounds: int
    hook_timeout_s: float

    def hook_failed(self, hook: Hook, why: str) -> None: ...
    def check_limits(self, call: ValidatedCall) -> None:
        """Raise where a limit will refuse this dangerous call; takes no slot."""
        ...

    def spend_approval(self, binding: str) -> Question | None:
        """The approval of exactly this call, now used up; None where nobody gave one."""
        ...


async def gate(call: ValidatedCall, hooks: tuple[Hook, ...], deps: Gate, key: str) -> ApprovedCall:
    """Return `call`, as it was finally approved, with the rule that let it through.

    Args:
        call: Its `arguments` match the tool's input schema.
        hooks: Those before this tool, in order.
        deps: Policies, limits and approvals.
        key: The call's idempotency key.

    Raises:
        CallDenied: A hook or policy refused, or one of them failed.
        ActorRequired, DangerousLimitReached: A limit refused.
        ApprovalNeeded: A human has to decide.
    """
    for _ in range(deps.rounds):
        encoded = canonical(call.arguments)
        changed, hook = await hook_arguments(call, encoded, hooks, deps) if hooks else (None, None)
        if changed is not None and hook is not None:
            call = _modified(call, changed, f"the hook '{hook.title}' changed the arguments")
            continue
        if not deps.policies:
            return _approve(call, encoded, _BY_DEFAULT, deps, key)
        verdict = await _judge(call, deps.policies)
        if canonical(call.arguments) != encoded:
            raise CallDenied(
                f"{call.name} was denied: a policy changed the arguments in place instead of by a verdict.", code="policy_failed"
            )
        if isinstance(verdict, Modify):
            call = _modified(call, verdict.arguments, verdict.reason)
            continue
        return _approve(call, encoded, verdict, deps, key)
    raise CallDenied(
        f"{call.name} was denied: its arguments were still being changed after {deps.rounds} rounds. Report this to the operator.",
        code="policy_unstable",
    )


async def _judge(call: ValidatedCall, policies: tuple[Judge, ...]) -> Allow | Ask | Modify:
    """The verdict of all policies together: the first deny or change wins, then a question, then allow."""
    question: Ask | None = None
    allowed = _BY_DEFAULT
    for policy in policies:
        try:
            answer = policy.judge(call)
            verdict = await answer if type(answer) is CoroutineType else answer
        except BaseException as error:
            if not is_own_failure(error):
                raise
            raise CallDenied(f"{call.name} was denied: the policy failed ({type(error).__name__}).", code="policy_failed") from error
        match verdict:
            case Allow():
                allowed = verdict
            case Ask():
                question = question or verdict
            case Deny():
                rule = clean(verdict.rule)
                raise CallDenied(f"{call.name} was denied: {clean(verdict.reason)}", details={"rule": rule} if rule else None)
            case Modify():
                if verdict.arguments != call.arguments:
                    return verdict
                allowed = Allow(rule=verdict.rule)
            case _:
                raise CallDenied(f"{call.name} was denied: the policy gave no verdict.", code="policy_failed")
    return question or allowed


def _modified(call: ValidatedCall, arguments: dict[str, object], reason: str) -> ValidatedCall:
    """The call with other arguments, validated again, with a note that the model will see."""
    try:
        fresh = revalidate(call, arguments)
    except CallFailed as error:
        raise CallDenied(
            f"{call.name} was denied: {reason}, and the new arguments are not valid: {error}", code="modification_invalid"
        ) from error
    changed = ", ".join(sorted(name for name in {*call.arguments, *arguments} if call.arguments.get(name) != arguments.get(name)))
    note = Note(kind="modified", text=f"The arguments were changed before the call ran ({clean(changed)[:500]}): {clean(reason)}.")
    return ValidatedCall(
        uid=fresh.uid, raw=fresh.raw, tool=fresh.tool, scope=fresh.scope, arguments=fresh.arguments, notes=(*fresh.notes, note)
    )


def _approve(call: ValidatedCall, encoded: bytes, verdict: Allow | Ask, deps: Gate, key: str) -> ApprovedCall:
    tool = call.tool
    if tool.requires_actor and not call.scope.actor:
        raise ActorRequired(
            f"{tool.name} acts for somebody, and this turn names no actor. Set Scope.actor, or requires_actor=False on the tool."
        )
    if tool.category == "dangerous":
        deps.check_limits(call)
    if not isinstance(verdict, Ask):
        rule = verdict.rule
        return ApprovedCall(call=call, rule=rule if rule.isascii() else clean(rule), encoded=encoded, key=key)
    bound_to = binding(call, encoded)
    approval = deps.spend_approval(bound_to)
    if approval is None:
        raise ApprovalNeeded(clean(verdict.question), rule=clean(verdict.rule), binding=bound_to)
    rule = f"{clean(verdict.rule)}, allowed by {clean(approval.by)}"
    return ApprovedCall(call=call, rule=rule, encoded=encoded, key=key, approval=approval.approval_id, allowed_by=approval.by)
