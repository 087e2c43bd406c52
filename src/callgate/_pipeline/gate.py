"""Decide whether a validated call may run.

After `validate`, so that hooks and policies see the arguments the tool will get. Before `cache`, so that a cached result cannot bypass
a deny. Any change of the arguments is validated and starts the gate again, for a bounded number of rounds. Never waits for a human: a
question becomes a pending approval, asked last, so that nobody is asked for what a limit will refuse. Fails closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, Protocol

from msgspec import Struct

from callgate._abort_signals import is_own_failure
from callgate._json import canonical
from callgate._pipeline.approvals import Question, binding
from callgate._pipeline.hooks import hook_arguments
from callgate._pipeline.host_code import HostAnswer
from callgate._pipeline.judgment import Judges
from callgate._pipeline.validate import Modified, modified
from callgate._redact import Redactor
from callgate.errors import ActorRequired, ApprovalNeeded, CallDenied
from callgate.hooks import Hook
from callgate.protocols import Allow, Ask, Deny, Judgment, JudgmentRequired, Modify, Verdict
from callgate.route import ApprovedCall, ValidatedCall

__all__ = ["Gate", "Judge", "Verdicts", "gate", "refusal"]


class Standing(Struct, frozen=True):
    """What the policies that were asked so far say together."""

    verdict: Allow | Ask = Allow(rule="default")
    required_by: str | None = None
    """The rule that wants the call judged; None: none does."""
    judgments: tuple[Judgment, ...] = ()


_BY_DEFAULT = Standing()


class Judge(Protocol):
    """A policy that answers at once where it can, and else when it is waited for."""

    def judge(self, call: ValidatedCall) -> Verdict | None:
        """The verdict; None: `decide` has to be awaited."""
        ...

    async def decide(self, call: ValidatedCall) -> Verdict: ...


class Gate(Protocol):
    """What the gate needs from the engine."""

    policies: tuple[Judge, ...]
    waits: bool
    """Whether one of them always has to be waited for."""
    judges: Judges
    rounds: int
    policy_timeout_s: float
    hook_timeout_s: float

    @property
    def redactor(self) -> Redactor | None: ...

    def hook_failed(self, hook: Hook, call: ValidatedCall, why: str) -> None: ...
    def cut(self, text: object, chars: int = ...) -> str:
        """The first characters of a text, redacted before it is cut."""
        ...

    async def ask(self, answer: Awaitable[Any], timeout_s: float, name: str) -> HostAnswer: ...
    def check_limits(self, call: ValidatedCall) -> None:
        """Raise where a limit will refuse this dangerous call; takes no slot."""
        ...

    def spend_approval(self, binding: str) -> Question | None:
        """The approval of exactly this call, now used up; None where nobody gave one."""
        ...


class Verdicts(Protocol):
    """What is recorded of the gate's verdicts on one call before the last one."""

    def modified(self, change: Modified) -> None:
        """The call goes on with these arguments, and is judged again."""
        ...


def gate(
    call: ValidatedCall, hooks: tuple[Hook, ...], deps: Gate, key: str, verdicts: Verdicts
) -> ApprovedCall | Coroutine[Any, Any, ApprovedCall]:
    """Give `call`, as it was finally approved, with the rule that let it through: at once, or when something has been waited for.

    Args:
        call: Its `arguments` match the tool's input schema.
        hooks: Those that may change or refuse the arguments of this tool, in order.
        deps: Policies, limits and approvals.
        key: The call's idempotency key.
        verdicts: Hears of each change of the arguments.

    Raises:
        CallDenied: A hook or policy refused, or one of them failed.
        ActorRequired, DangerousLimitReached: A limit refused.
        ApprovalNeeded: A human has to decide.
    """
    if hooks or deps.waits:
        return _rounds(call, hooks, deps, key, verdicts)
    encoded = canonical(call.arguments)
    standing = _BY_DEFAULT
    for asked, policy in enumerate(deps.policies):
        given = _asked(policy, call)
        if given is None:
            return _after_waiting(call, encoded, standing, asked, deps, key, verdicts)
        answer = _together(call, standing, given, deps)
        if isinstance(answer, Modified):
            _refuse_changed(call, encoded)
            verdicts.modified(answer)
            return _rounds(answer.call, hooks, deps, key, verdicts, done=1)
        standing = answer
    if deps.judges.concern(call, standing.required_by):
        return _after_waiting(call, encoded, standing, len(deps.policies), deps, key, verdicts)
    return _approve(call, encoded, standing, deps, key)


async def refusal(call: ValidatedCall, deps: Gate) -> str:
    """Why the policies would not let this call run as it is, without a human; empty where they would."""
    try:
        standing = await _judge(call, deps)
    except CallDenied as error:
        return str(error)
    if isinstance(standing, Modified):
        return "a policy would change its arguments."
    verdict = standing.verdict
    return f"a human has to decide about it first: {deps.cut(verdict.question)}" if isinstance(verdict, Ask) else ""


async def _after_waiting(
    call: ValidatedCall, encoded: bytes, before: Standing, asked: int, deps: Gate, key: str, verdicts: Verdicts
) -> ApprovedCall:
    """The gate from policy number `asked` on, which has to be waited for; there are no hooks."""
    standing = await _judge(call, deps, before, asked)
    if isinstance(standing, Modified):
        _refuse_changed(call, encoded)
        verdicts.modified(standing)
        return await _rounds(standing.call, (), deps, key, verdicts, done=1)
    return _approve(call, encoded, standing, deps, key)


async def _rounds(call: ValidatedCall, hooks: tuple[Hook, ...], deps: Gate, key: str, verdicts: Verdicts, *, done: int = 0) -> ApprovedCall:
    """The gate from round `done` on, until nothing changes the arguments any more."""
    for _ in range(done, deps.rounds):
        encoded = canonical(call.arguments)
        changed = await hook_arguments(call, encoded, hooks, deps) if hooks else None
        if changed is not None:
            verdicts.modified(changed)
            call = changed.call
            continue
        standing = await _judge(call, deps)
        if isinstance(standing, Modified):
            _refuse_changed(call, encoded)
            verdicts.modified(standing)
            call = standing.call
            continue
        return _approve(call, encoded, standing, deps, key)
    raise CallDenied(
        f"{call.name} was denied: its arguments were still being changed after {deps.rounds} rounds. Report this to the operator.",
        code="policy_unstable",
    )


async def _judge(call: ValidatedCall, deps: Gate, standing: Standing = _BY_DEFAULT, asked: int = 0) -> Standing | Modified:
    """What all policies and judges say together, or the call as a policy changed it; the first `asked` policies gave `standing`."""
    for policy in deps.policies[asked:]:
        answer = _asked(policy, call)
        if answer is None:
            answer = await _answered(policy, call, deps)
        together = _together(call, standing, answer, deps)
        if isinstance(together, Modified):
            return together
        standing = together
    return await _judged(call, standing, deps) if deps.judges.concern(call, standing.required_by) else standing


async def _judged(call: ValidatedCall, standing: Standing, deps: Gate) -> Standing:
    """The same with what the judges say: a deny ends the call, a question stands if there is none already, an allow changes nothing."""
    judgments = await deps.judges.judgments(call, standing.required_by)
    if not judgments:
        raise CallDenied(
            f"{call.name} was denied: {deps.cut(standing.required_by)} wants it judged, and there is no judge. Tell the operator.",
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


def _asked(policy: Judge, call: ValidatedCall) -> Any:
    """What a policy says; None where it has to be waited for."""
    try:
        return policy.judge(call)
    except BaseException as error:
        if not is_own_failure(error):
            raise
        raise _failed(call, error) from error


async def _answered(policy: Judge, call: ValidatedCall, deps: Gate) -> Verdict:
    """What a policy says in time: its silence is a failure, and that is a deny, whether it stops or not."""
    found = await deps.ask(_decided(policy, call), deps.policy_timeout_s, "policy")
    if found.error is not None:
        raise _failed(call, found.error) from found.error
    return found.value  # type: ignore[no-any-return]


async def _decided(policy: Judge, call: ValidatedCall) -> Verdict:
    return await policy.decide(call)


def _failed(call: ValidatedCall, error: BaseException) -> CallDenied:
    return CallDenied(f"{call.name} was denied: the policy failed ({type(error).__name__}).", code="policy_failed")


def _refuse_changed(call: ValidatedCall, encoded: bytes) -> None:
    try:
        changed = canonical(call.arguments) != encoded
    except Exception:  # what stands there now is not even JSON
        changed = True
    if changed:
        raise CallDenied(f"{call.name} was denied: a policy changed the arguments in place instead of by a verdict.", code="policy_failed")


def _together(call: ValidatedCall, before: Standing, verdict: Verdict, deps: Gate) -> Standing | Modified:
    """One more verdict: the first deny or change wins, then a question, then allow; who wants the call judged is noted beside that."""
    match verdict:
        case Allow() | Ask():
            return before if isinstance(before.verdict, Ask) else Standing(verdict, before.required_by)
        case JudgmentRequired():
            return Standing(before.verdict, before.required_by or verdict.rule)
        case Deny():
            rule = deps.cut(verdict.rule)
            raise CallDenied(f"{call.name} was denied: {deps.cut(verdict.reason)}", details={"rule": rule} if rule else None)
        case Modify():
            rule = deps.cut(verdict.rule)
            changed = modified(call, verdict.arguments, verdict.reason, deps, {"rule": rule} if rule else None)
            if canonical(changed.arguments) != canonical(call.arguments):  # as JSON: to Python, True and 1 are equal
                return Modified(call=changed, rule=rule, reason=deps.cut(verdict.reason))
            return before if isinstance(before.verdict, Ask) else Standing(Allow(rule=verdict.rule), before.required_by)
        case _:
            raise CallDenied(f"{call.name} was denied: the policy gave no verdict.", code="policy_failed")


def _approve(call: ValidatedCall, encoded: bytes, standing: Standing, deps: Gate, key: str) -> ApprovedCall:
    tool, verdict, judgments = call.tool, standing.verdict, standing.judgments
    if deps.policies or judgments:
        _refuse_changed(call, encoded)
    if tool.requires_actor and not call.scope.actor:
        raise ActorRequired(
            f"{tool.name} acts for somebody, and this turn names no actor. Set Scope.actor, or requires_actor=False on the tool."
        )
    if tool.category == "dangerous":
        deps.check_limits(call)
    if not isinstance(verdict, Ask):
        rule = verdict.rule
        if not isinstance(rule, str):
            raise CallDenied(f"{call.name} was denied: the policy gave {type(rule).__name__} for its rule's name.", code="policy_failed")
        return ApprovedCall(call=call, rule=rule if rule.isascii() else deps.cut(rule), encoded=encoded, key=key, judgments=judgments)
    bound_to = binding(call, encoded)
    approval = deps.spend_approval(bound_to)
    if approval is None:
        raise ApprovalNeeded(deps.cut(verdict.question), rule=deps.cut(verdict.rule), binding=bound_to, judgments=judgments)
    rule = f"{deps.cut(verdict.rule)}, allowed by {deps.cut(approval.by)}"
    return ApprovedCall(
        call=call, rule=rule, encoded=encoded, key=key, approval=approval.approval_id, allowed_by=approval.by, judgments=judgments
    )
