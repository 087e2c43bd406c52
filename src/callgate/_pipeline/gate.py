"""Decide whether a validated call may run.

Runs after `validate`, so that hooks and policies see the arguments that the tool will get, and before `cache`, so that
a cached result cannot bypass a deny. If the arguments are changed, they are validated and the gate starts again, for a
limited number of rounds. The gate never waits for a human: a question becomes a pending approval. It is asked last, so
that no human is asked about a call that a limit will refuse. If a policy fails, the call is denied.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import cached_property
from typing import Any, Never, Protocol

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import is_own_failure
from callgate._json import canonical, plain_bytes
from callgate._pipeline.approval_answers import Edited, as_answered
from callgate._pipeline.ask_judges import Judges
from callgate._pipeline.call_hooks import HookHost, failed_with, hook_arguments
from callgate._pipeline.engine_policies import AskedPolicy
from callgate._pipeline.required_approval import tool_question
from callgate._pipeline.validate import Modified, modified
from callgate._run_state.approvals import Question, binding, same_call
from callgate.errors import ActorRequired, ApprovalNeeded, CallDenied
from callgate.hooks import Hook
from callgate.protocols import (
    Allow,
    Ask,
    Deny,
    Judgment,
    JudgmentRequired,
    Modify,
    PathFilter,
    PathPolicy,
    Verdict,
)
from callgate.stage_types import ApprovedCall, ValidatedCall

__all__ = ["GateParts", "PolicyRecheck", "Verdicts", "call_to_ask_about", "gate"]


class Standing(Struct, frozen=True):
    """The combined verdict of the policies that were asked so far."""

    verdict: Allow | Ask = Allow(rule="default")
    required_by: str | None = None
    """The rule that requires a judgment of the call; None if none does."""
    judgments: tuple[Judgment, ...] = ()


_BY_DEFAULT = Standing()


class GateParts(Protocol):
    """The policies, judges, limits and approvals that the gate uses."""

    policies: tuple[AskedPolicy, ...]
    waits: bool
    """Whether one of the policies always has to be awaited."""
    judges: Judges
    rounds: int
    policy_timeout_s: float
    answered: Mapping[str, Question]
    """The answers of humans that are not used up."""
    coerce: bool
    """Whether the arguments of humans are converted, as those of the model are."""

    @property
    def host(self) -> HookHost: ...

    def check_limits(self, call: ValidatedCall) -> None:
        """Raise `DangerousLimitReached` if a limit refuses this dangerous call. Does not count the call."""
        ...

    def answer_to(self, call: ValidatedCall, encoded: bytes) -> Question | None:
        """Return the human's answer about exactly this call, if it is not used up; else None."""
        ...

    def call_in_doubt(self, call: ValidatedCall, encoded: bytes) -> str:
        """Return the uid of an earlier identical call of the run whose outcome is unknown; empty if there is none."""
        ...

    def spend_approval(self, binding: str) -> Question | None:
        """Use up the approval that is bound to this hash, and return it; None if there is none."""
        ...


class Verdicts(Protocol):
    """Records the gate's verdicts on one call that precede the last one."""

    def modified(self, change: Modified) -> None:
        """Record that the call is judged again with these arguments."""
        ...


def gate(
    call: ValidatedCall, hooks: tuple[Hook, ...], parts: GateParts, key: str, verdicts: Verdicts
) -> ApprovedCall | Coroutine[Any, Any, ApprovedCall]:
    """Return the approved call with the rule that allowed it, or a coroutine if something has to be awaited.

    Args:
        call: The call. Its `arguments` match the tool's input schema.
        hooks: The hooks that may change or refuse the arguments of this tool, in order.
        parts: Policies, limits and approvals.
        key: The call's idempotency key.
        verdicts: Records each change of the arguments.

    Raises:
        CallDenied: A hook or policy refused the call, or failed.
        ActorRequired, DangerousLimitReached: A limit refused the call.
        ApprovalNeeded: A human has to decide.
    """
    if hooks or parts.waits:
        return _run_rounds(call, hooks, parts, key, verdicts)
    encoded = canonical(call.arguments)
    standing = _BY_DEFAULT
    for asked, policy in enumerate(parts.policies):
        given = _ask_at_once(policy, call, parts)
        if given is None:
            return _continue_waiting(call, encoded, standing, asked, parts, key, verdicts)
        answer = _combine(call, standing, given, parts)
        if isinstance(answer, Modified):
            _refuse_changed(call, encoded)
            verdicts.modified(answer)
            return _run_rounds(answer.call, hooks, parts, key, verdicts, done=1)
        standing = answer
    if call.tool.approval is not None or (
        (parts.judges.present or standing.required_by is not None) and parts.judges.concern(call, standing.required_by)
    ):
        return _continue_waiting(call, encoded, standing, len(parts.policies), parts, key, verdicts)
    approved = _approve(call, encoded, standing, parts, key)
    return approved if isinstance(approved, ApprovedCall) else _restart_edited(approved, hooks, parts, key, verdicts)


async def _refusal(call: ValidatedCall, parts: GateParts) -> str:
    """Return why the policies would not allow this call unchanged and without a human; empty if they would."""
    try:
        standing = await _judge(call, parts, started=True)
    except CallDenied as error:
        return str(error)
    if isinstance(standing, Modified):
        return "a policy would change its arguments."
    verdict = standing.verdict
    return f"a human has to decide about it first: {parts.host.cut(verdict.question)}" if isinstance(verdict, Ask) else ""


async def call_to_ask_about(call: ValidatedCall, parts: GateParts) -> ValidatedCall | None:
    """Return the call with its final arguments if the policies want a human to decide about it and none has, otherwise None.

    Hooks are not run, and nothing is recorded.
    """
    for _ in range(parts.rounds):
        try:
            standing = await _judge(call, parts)
        except CallDenied:
            return None
        if not isinstance(standing, Modified):
            asks = isinstance(standing.verdict, Ask) and parts.answer_to(call, canonical(call.arguments)) is None
            return call if asks else None
        call = standing.call
    return None


async def _continue_waiting(
    call: ValidatedCall, encoded: bytes, before: Standing, asked: int, parts: GateParts, key: str, verdicts: Verdicts
) -> ApprovedCall:
    """Continue the gate with the policy at index `asked`, which has to be awaited. There are no hooks."""
    standing = await _judge(call, parts, before, asked)
    if isinstance(standing, Modified):
        _refuse_changed(call, encoded)
        verdicts.modified(standing)
        return await _run_rounds(standing.call, (), parts, key, verdicts, done=1)
    approved = _approve(call, encoded, standing, parts, key)
    return approved if isinstance(approved, ApprovedCall) else await _restart_edited(approved, (), parts, key, verdicts)


async def _restart_edited(edited: Edited, hooks: tuple[Hook, ...], parts: GateParts, key: str, verdicts: Verdicts) -> ApprovedCall:
    """Start the gate again with the arguments with which a human has allowed the call."""
    verdicts.modified(edited)
    return await _run_rounds(edited.call, hooks, parts, key, verdicts, edit=edited.question)


async def _run_rounds(
    call: ValidatedCall,
    hooks: tuple[Hook, ...],
    parts: GateParts,
    key: str,
    verdicts: Verdicts,
    *,
    done: int = 0,
    edit: Question | None = None,
) -> ApprovedCall:
    """Continue the gate with round `done`, until nothing changes the arguments any more.

    Args:
        edit: The answer of a human that has changed the arguments before, if there is one.
    """
    for _ in range(done, parts.rounds):
        encoded = canonical(call.arguments)
        changed = await hook_arguments(call, encoded, hooks, parts.host) if hooks else None
        if changed is not None:
            verdicts.modified(changed)
            call = changed.call
            continue
        standing = await _judge(call, parts)
        if isinstance(standing, Modified):
            _refuse_changed(call, encoded)
            verdicts.modified(standing)
            call = standing.call
            continue
        approved = _approve(call, encoded, standing, parts, key, edit)
        return approved if isinstance(approved, ApprovedCall) else await _restart_edited(approved, hooks, parts, key, verdicts)
    raise CallDenied(
        f"{call.name} was denied: its arguments were still being changed after {parts.rounds} rounds. Report this to the operator.",
        code="policy_unstable",
    )


async def _judge(
    call: ValidatedCall, parts: GateParts, standing: Standing = _BY_DEFAULT, asked: int = 0, *, started: bool = False
) -> Standing | Modified:
    """Return the combined verdict of all policies, the tool's own requirement and the judges, or the call as a policy has changed it.

    Args:
        standing: The combined verdict of the policies that were asked already.
        asked: How many policies were asked already.
        started: Whether the call runs, so that a human has allowed it if its tool requires approval of every call.
    """
    for policy in parts.policies[asked:]:
        answer = _ask_at_once(policy, call, parts)
        if answer is None:
            answer = await _await_verdict(policy, call, parts)
        together = _combine(call, standing, answer, parts)
        if isinstance(together, Modified):
            return together
        standing = together
    required = call.tool.approval
    if required is not None and not isinstance(standing.verdict, Ask) and not (started and required.asks is None):
        question = await tool_question(call, parts.host, parts.policy_timeout_s)
        standing = standing if question is None else Standing(question, standing.required_by)
    return await _apply_judges(call, standing, parts) if parts.judges.concern(call, standing.required_by) else standing


async def _apply_judges(call: ValidatedCall, standing: Standing, parts: GateParts) -> Standing:
    """Return the verdict combined with those of the judges.

    A deny of a judge ends the call, a question is used if no policy asks one, and an allow changes nothing.
    """
    judgments = await parts.judges.judgments(call, standing.required_by)
    if not judgments:
        raise CallDenied(
            f"{call.name} was denied: {parts.host.cut(standing.required_by)} wants it judged, and there is no judge. Tell the operator.",
            code="policy_failed",
        )
    last, verdict = judgments[-1], standing.verdict
    if last.verdict == "deny":
        reason = last.reason if not last.failed else f"{last.reason}. A call that could not be judged does not run."
        raise CallDenied(f"{call.name} was denied: {reason}", code="judge_failed" if last.failed else "judge_denied", judgments=judgments)
    question = next((one for one in judgments if one.verdict == "ask"), None)
    if question is not None and not isinstance(verdict, Ask):
        verdict = Ask(question=question.reason, rule=f"judge {question.judge}")
    if isinstance(verdict, Allow) and standing.required_by is not None:
        verdict = Allow(rule=standing.required_by)
    return Standing(verdict, standing.required_by, judgments)


def _ask_at_once(policy: AskedPolicy, call: ValidatedCall, parts: GateParts) -> Any:
    """Return a policy's verdict; None if the policy has to be awaited."""
    try:
        return policy.judge(call)
    except BaseException as error:
        if not is_own_failure(error):
            raise
        raise _policy_failure(call, error, parts) from error


async def _await_verdict(policy: AskedPolicy, call: ValidatedCall, parts: GateParts) -> Verdict:
    """Await a policy's verdict. If the policy raises or does not answer in time, the call is denied."""
    found = await parts.host.ask(_decide(policy, call), parts.policy_timeout_s, "policy")
    if found.error is not None:
        raise _policy_failure(call, found.error, parts) from found.error
    return found.value  # type: ignore[no-any-return]


async def _decide(policy: AskedPolicy, call: ValidatedCall) -> Verdict:
    return await policy.decide(call)


def _policy_failure(call: ValidatedCall, error: BaseException, parts: GateParts) -> CallDenied:
    parts.host.policy_failed(call, failed_with(error, parts.host), error)
    return CallDenied(f"{call.name} was denied: the policy failed ({type(error).__name__}).", code="policy_failed")


def _refuse_changed(call: ValidatedCall, encoded: bytes) -> None:
    try:
        changed = canonical(call.arguments) != encoded
    except Exception:  # what stands there now is not even JSON
        changed = True
    if changed:
        raise CallDenied(f"{call.name} was denied: a policy changed the arguments in place instead of by a verdict.", code="policy_failed")


def _combine(call: ValidatedCall, before: Standing, verdict: Verdict, parts: GateParts) -> Standing | Modified:
    """Combine one more verdict with the earlier ones.

    The first deny or change takes precedence, then a question, then an allow. A rule that requires a judgment is noted
    in addition.
    """
    match verdict:
        case Allow() | Ask():
            return before if isinstance(before.verdict, Ask) else Standing(verdict, before.required_by)
        case JudgmentRequired():
            return Standing(before.verdict, before.required_by or verdict.rule)
        case Deny():
            rule = parts.host.cut(verdict.rule)
            raise CallDenied(f"{call.name} was denied: {parts.host.cut(verdict.reason)}", details={"rule": rule} if rule else None)
        case Modify():
            rule = parts.host.cut(verdict.rule)
            changed = modified(call, verdict.arguments, verdict.reason, parts.host, {"rule": rule} if rule else None)
            if canonical(changed.arguments) != canonical(call.arguments):  # as JSON: to Python, True and 1 are equal
                return Modified(call=changed, rule=rule, reason=parts.host.cut(verdict.reason))
            return before if isinstance(before.verdict, Ask) else Standing(Allow(rule=verdict.rule), before.required_by)
        case unknown:
            raise _no_verdict(call, unknown)


def _no_verdict(call: ValidatedCall, given: Never) -> CallDenied:
    """Return the denial of a call for which a policy of the host returned something that is not a verdict."""
    return CallDenied(f"{call.name} was denied: the policy returned {type(given).__name__}, which is not a verdict.", code="policy_failed")


def _approve(
    call: ValidatedCall, encoded: bytes, standing: Standing, parts: GateParts, key: str, edit: Question | None = None
) -> ApprovedCall | Edited:
    tool, verdict, judgments = call.tool, standing.verdict, standing.judgments
    if parts.policies or judgments:
        _refuse_changed(call, encoded)
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
    if edit is None and parts.answered and (answer := parts.answer_to(call, encoded)) is not None:
        edited = as_answered(call, encoded, answer, parts.host, coerce=parts.coerce)
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


class PolicyRecheck(Struct, dict=True, eq=False):
    """Asks the policies about resources that a running call meets, such as a file that it finds or an address it is
    redirected to.

    The gate has judged the arguments; the same policies judge the resource, as part of the same call. Nothing that was
    refused to the call itself becomes possible. See `ToolContext.may_visit` and `ToolContext.refusal`.
    """

    call: ValidatedCall
    parts: GateParts

    @cached_property
    def _filters(self) -> tuple[PathFilter, ...]:
        filters = (policy.path_filter(self.call) for policy in self.parts.policies if isinstance(policy, PathPolicy))
        return tuple(allows for allows in filters if allows is not None)

    def may_visit(self, path: str, size_bytes: int) -> bool:
        return all(allows(path, size_bytes) for allows in self._filters)

    async def refusal(self, changed: Mapping[str, object]) -> str:
        return await _refusal(replace(self.call, arguments={**self.call.arguments, **changed}), self.parts)
