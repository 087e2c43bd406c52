"""Ask the policies, the tool and the judges about a call, and combine their verdicts.

The first deny or change takes precedence, then a question, then an allow. If a policy fails, does not answer in time, changes the arguments
in place or returns no verdict, the call is denied. `gate` acts on the combined verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Never, Protocol

from msgspec import Struct

from callgate._abort_signals import is_own_failure
from callgate._json import canonical
from callgate._pipeline.ask_judges import Judges
from callgate._pipeline.engine_policies import AskedPolicy
from callgate._pipeline.host_code import RunsHostCode, describe_failure
from callgate._pipeline.tool_question import tool_question
from callgate._pipeline.validate import ModifiedCall, modify_call
from callgate._run_state.approvals import Question
from callgate.errors import CallDenied
from callgate.protocols import (
    Allow,
    Ask,
    Deny,
    Judgment,
    JudgmentRequired,
    Modify,
    Verdict,
)
from callgate.stage_types import ValidatedCall

__all__ = ["BY_DEFAULT", "CombinedVerdict", "GateParts", "ask_all", "ask_at_once", "combine", "refuse_changed"]


class CombinedVerdict(Struct, frozen=True):
    """The combined verdict of the policies that were asked so far."""

    verdict: Allow | Ask = Allow(rule="default")
    required_by: str | None = None
    """The rule that requires a judgment of the call; None if none does."""
    judgments: tuple[Judgment, ...] = ()


BY_DEFAULT = CombinedVerdict()


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
    def host(self) -> RunsHostCode: ...

    def check_limits(self, call: ValidatedCall) -> None:
        """Raise `DangerousLimitReached` if a limit refuses this dangerous call. Does not count the call."""
        ...

    def find_answer_to(self, call: ValidatedCall, encoded: bytes) -> Question | None:
        """Return the human's answer about exactly this call, if it is not used up; else None."""
        ...

    def call_in_doubt(self, call: ValidatedCall, encoded: bytes) -> str:
        """Return the uid of an earlier identical call of the run whose outcome is unknown; empty if there is none."""
        ...

    def spend_approval(self, binding: str) -> Question | None:
        """Use up the approval that is bound to this hash, and return it; None if there is none."""
        ...


async def ask_all(
    call: ValidatedCall, parts: GateParts, combined: CombinedVerdict = BY_DEFAULT, asked: int = 0, *, started: bool = False
) -> CombinedVerdict | ModifiedCall:
    """Return the combined verdict of all policies, the tool's own requirement and the judges, or the call as a policy has changed it.

    Args:
        combined: The combined verdict of the policies that were asked already.
        asked: How many policies were asked already.
        started: Whether the call runs, so that a human has allowed it if its tool requires approval of every call.
    """
    for policy in parts.policies[asked:]:
        answer = ask_at_once(policy, call, parts)
        if answer is None:
            answer = await _await_verdict(policy, call, parts)
        together = combine(call, combined, answer, parts)
        if isinstance(together, ModifiedCall):
            return together
        combined = together
    required = call.tool.approval
    if required is not None and not isinstance(combined.verdict, Ask) and not (started and required.asks is None):
        question = await tool_question(call, parts.host, parts.policy_timeout_s)
        combined = combined if question is None else CombinedVerdict(question, combined.required_by)
    return await _apply_judges(call, combined, parts) if parts.judges.concern(call, combined.required_by) else combined


async def _apply_judges(call: ValidatedCall, combined: CombinedVerdict, parts: GateParts) -> CombinedVerdict:
    """Return the verdict combined with those of the judges.

    A deny of a judge ends the call, a question is used if no policy asks one, and an allow changes nothing.
    """
    judgments = await parts.judges.judgments(call, combined.required_by)
    if not judgments:
        raise CallDenied(
            f"{call.name} was denied: {parts.host.cut(combined.required_by)} wants it judged, and there is no judge. Tell the operator.",
            code="policy_failed",
        )
    last, verdict = judgments[-1], combined.verdict
    if last.verdict == "deny":
        reason = last.reason if not last.failed else f"{last.reason}. A call that could not be judged does not run."
        raise CallDenied(f"{call.name} was denied: {reason}", code="judge_failed" if last.failed else "judge_denied", judgments=judgments)
    question = next((one for one in judgments if one.verdict == "ask"), None)
    if question is not None and not isinstance(verdict, Ask):
        verdict = Ask(question=question.reason, rule=f"judge {question.judge}")
    if isinstance(verdict, Allow) and combined.required_by is not None:
        verdict = Allow(rule=combined.required_by)
    return CombinedVerdict(verdict, combined.required_by, judgments)


def ask_at_once(policy: AskedPolicy, call: ValidatedCall, parts: GateParts) -> Any:
    """Return a policy's verdict; None if the policy has to be awaited."""
    try:
        return policy.judge(call)
    except BaseException as error:
        if not is_own_failure(error):
            raise
        raise _policy_failure(call, error, parts) from error


async def _await_verdict(policy: AskedPolicy, call: ValidatedCall, parts: GateParts) -> Verdict:
    """Await a policy's verdict. If the policy raises or does not answer in time, the call is denied."""
    answer = await parts.host.ask(_decide(policy, call), parts.policy_timeout_s, "policy")
    if answer.error is not None:
        raise _policy_failure(call, answer.error, parts) from answer.error
    return answer.value  # type: ignore[no-any-return]


async def _decide(policy: AskedPolicy, call: ValidatedCall) -> Verdict:
    return await policy.decide(call)


def _policy_failure(call: ValidatedCall, error: BaseException, parts: GateParts) -> CallDenied:
    parts.host.policy_failed(call, describe_failure(error, parts.host), error)
    return CallDenied(f"{call.name} was denied: the policy failed ({type(error).__name__}).", code="policy_failed")


def refuse_changed(call: ValidatedCall, encoded: bytes) -> None:
    try:
        changed = canonical(call.arguments) != encoded
    except Exception:  # what stands there now is not even JSON
        changed = True
    if changed:
        raise CallDenied(f"{call.name} was denied: a policy changed the arguments in place instead of by a verdict.", code="policy_failed")


def combine(call: ValidatedCall, before: CombinedVerdict, verdict: Verdict, parts: GateParts) -> CombinedVerdict | ModifiedCall:
    """Combine one more verdict with the earlier ones.

    The first deny or change takes precedence, then a question, then an allow. A rule that requires a judgment is noted
    in addition.
    """
    match verdict:
        case Allow() | Ask():
            return before if isinstance(before.verdict, Ask) else CombinedVerdict(verdict, before.required_by)
        case JudgmentRequired():
            return CombinedVerdict(before.verdict, before.required_by or verdict.rule)
        case Deny():
            rule = parts.host.cut(verdict.rule)
            raise CallDenied(f"{call.name} was denied: {parts.host.cut(verdict.reason)}", details={"rule": rule} if rule else None)
        case Modify():
            rule = parts.host.cut(verdict.rule)
            changed = modify_call(call, verdict.arguments, verdict.reason, parts.host, {"rule": rule} if rule else None)
            if canonical(changed.arguments) != canonical(call.arguments):  # as JSON: to Python, True and 1 are equal
                return ModifiedCall(call=changed, rule=rule, reason=parts.host.cut(verdict.reason))
            return before if isinstance(before.verdict, Ask) else CombinedVerdict(Allow(rule=verdict.rule), before.required_by)
        case unknown:
            raise _no_verdict(call, unknown)


def _no_verdict(call: ValidatedCall, value: Never) -> CallDenied:
    """Return the denial of a call for which a policy of the host returned something that is not a verdict."""
    return CallDenied(f"{call.name} was denied: the policy returned {type(value).__name__}, which is not a verdict.", code="policy_failed")
