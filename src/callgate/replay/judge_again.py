"""Judge the calls of a recorded run again, by other rules or with changed tools.

Each recorded call passes the engine's own parse, resolve, validate and gate stages. The new decision is compared with the recorded one and
discarded; nothing in this package runs an approved call. A human's approval counts again for exactly the call that it was given for.
Decisions of a limit or the agent loop are not judged again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from callgate._engine_limits import Limits
from callgate._json import canonical, decode, plain_bytes
from callgate._option_checks import check
from callgate._pipeline.ask_judges import Judges
from callgate._pipeline.call_hooks import HookChain
from callgate._pipeline.engine_options import check_policies
from callgate._pipeline.engine_policies import AskedPolicy, policies_to_ask
from callgate._pipeline.gate import gate
from callgate._pipeline.host_code import HostAnswer, HostAwaits
from callgate._pipeline.parse import parse
from callgate._pipeline.resolve import resolve
from callgate._pipeline.validate import ModifiedCall, validate
from callgate._run_in_thread import in_thread
from callgate._run_state.approvals import Question, older_binding
from callgate._run_state.event_bodies import MOST_CHARS, clean
from callgate.errors import ApprovalNeeded, CallAborted, CallDenied, CallFailed, DangerousLimitReached
from callgate.hooks import Hook
from callgate.protocols import CallJudge, Judgment, Policy
from callgate.replay.rebuild_run import Replay
from callgate.replay.recorded_tools import changed_tools, tools_of
from callgate.replay.run_calls import Decision, ReplayedCall
from callgate.stage_types import ValidatedCall
from callgate.tools import Tool, ToolRegistry

__all__ = ["Change", "ComparedVerdict", "JudgedRun", "change_between", "judge_again"]

Change = Literal["", "verdict", "arguments", "words", "rule"]
_DIFFERS = frozenset({"verdict", "arguments"})


class ComparedVerdict(Struct, frozen=True, kw_only=True):
    """One call with its recorded and its new decision."""

    call: ReplayedCall
    now: Decision | None = None
    """The new decision; None if the call was not judged, and `unjudged` says why."""
    unjudged: str = ""
    change: Change = ""
    """The most serious difference: `verdict`, final `arguments`, `words` of a refusal or question, or only the `rule`."""
    beyond: bool = False
    """Whether an earlier message has a call that differs. The model might then not have made this call."""

    @property
    def differs(self) -> bool:
        """Whether the run would have gone differently."""
        return self.change in _DIFFERS


class JudgedRun(Struct, frozen=True, kw_only=True):
    """The result of judging a run's calls again."""

    run: str
    calls: tuple[ComparedVerdict, ...]
    changed: tuple[str, ...] = ()
    """The tools that have changed since the run was recorded."""
    has_model: bool = False

    @property
    def differences(self) -> tuple[ComparedVerdict, ...]:
        return tuple(one for one in self.calls if one.differs)

    @property
    def follows(self) -> str:
        """What the first difference would have changed, as far as the record shows it; empty without a difference."""
        first = next(iter(self.differences), None)
        if first is None:
            return ""
        told = f"Call {first.call.short}: {_describe_consequence(first)}"
        if not self.has_model:
            return f"{told} What the host's own loop would have done then is not recorded."
        return f"{told} From here on the run would have gone differently: the model's later messages answered another result."


async def judge_again(
    replay: Replay,
    tools: Iterable[Tool],
    policies: Sequence[Policy | CallJudge] | None = None,
    *,
    hooks: Iterable[Hook] = (),
    limits: Limits | None = None,
    coerce: bool = True,
) -> JudgedRun:
    """Judge a recorded run's calls again. Starts no tool.

    Args:
        tools: The tools as they are now. Those that the run did not have are left out.
        policies: Replace the run's policies; None keeps every recorded verdict, so that only the tools are new.
        hooks: Hooks before calls; the run's own are not recorded.
        limits: Limits of arguments, rounds and waits; None for the defaults.
        coerce: See `Engine`; the value that the run's engine had.

    Raises:
        UsageError: A tool that the run called is not among `tools`, a rule names something that no tool has, or `limits` has the wrong
        type.
    """
    check("judge_again", "limits", limits, Limits | None)
    tools = tuple(tools)
    registry = tools_of(replay, tools)
    check_policies(policies or (), tuple(ToolRegistry(tools)))
    judging = _RunJudging(replay, registry, policies, tuple(hooks), limits or Limits(), coerce)
    compared: list[ComparedVerdict] = []
    first: ReplayedCall | None = None
    for call in replay.calls:
        one = await judging.compare(call)
        beyond = first is not None and bool(replay.passes) and call.scope.iteration > first.scope.iteration
        compared.append(ComparedVerdict(call=call, now=one.now, unjudged=one.unjudged, change=one.change, beyond=beyond))
        first = first or (call if one.differs else None)
    return JudgedRun(run=replay.run, calls=tuple(compared), changed=changed_tools(replay, registry), has_model=bool(replay.passes))


class _NoJudge(Exception):
    """Raised when a rule has the verdict `judge` and no judge was given."""


class _Judges(Judges):
    """The given judges.

    If there are none, a call for which a rule requires a judge is not judged, instead of being denied.
    """

    async def judgments(self, call: ValidatedCall, required_by: str | None) -> tuple[Judgment, ...]:
        found = await super().judgments(call, required_by)
        if not found:
            raise _NoJudge
        return found


class _ReplayHost:
    """Runs hooks, policies and judges; records nothing. Redacts nothing, because the record is redacted already."""

    redactor = None

    def __init__(self, limits: Limits) -> None:
        self._guards = HostAwaits()
        self._grace_s = limits.grace_s
        self.hook_timeout_s = limits.hook_timeout_s

    async def ask(self, answer: Awaitable[Any], timeout_s: float, name: str) -> HostAnswer:
        return await self._guards.ask(answer, timeout_s=timeout_s, grace_s=self._grace_s, name=name)

    async def in_thread(self, work: Callable[[], Any], timeout_s: float) -> HostAnswer:
        return await self.ask(in_thread(work), timeout_s, "host function")

    def hook_failed(self, hook: Hook, call: ValidatedCall, why: str) -> None:
        """Do nothing, because the failure of an observer changes nothing."""

    def approval_check_failed(self, call: ValidatedCall, why: str, error: BaseException) -> None:
        """Do nothing, because the question names the failure."""

    def policy_failed(self, call: ValidatedCall, why: str, error: BaseException) -> None:
        """Do nothing, because the verdict says that the policy failed."""

    def cut(self, text: object, chars: int = MOST_CHARS) -> str:
        return clean(text, None, chars)


class _ReplayGate(Struct, kw_only=True, eq=False):
    """What the gate needs from an engine, for one recorded call."""

    then: Decision
    """The recorded decision."""
    approval: Question | None
    """The approval that the call used."""
    policies: tuple[AskedPolicy, ...]
    waits: bool
    judges: Judges
    rounds: int
    policy_timeout_s: float
    host: _ReplayHost
    answered: Mapping[str, Question] = {}
    coerce: bool = False
    """No answer of a human is applied here; see `find_answer_to`."""

    def check_limits(self, call: ValidatedCall) -> None:
        """Raise the recorded error if a limit on dangerous calls refused this call; else allow it.

        The limits on the calls of a tick are not rules and are not recorded.
        """
        if self.then.code == DangerousLimitReached.code:
            raise DangerousLimitReached(self.then.said)

    def find_answer_to(self, call: ValidatedCall, encoded: bytes) -> None:
        """Return None: a recorded call that a human denied or changed is not judged; see `_is_by_host_code`."""

    def call_in_doubt(self, call: ValidatedCall, encoded: bytes) -> str:
        """Return nothing: what a human was told beside the question changes no verdict."""
        return ""

    def spend_approval(self, binding: str) -> Question | None:
        """Return the approval that this call used, if it was given for the same call."""
        used = self.approval
        return replace(used, binding=binding) if used is not None and older_binding(used.binding) == older_binding(binding) else None


class _RunJudging:
    """Judges the calls of one run again."""

    def __init__(
        self,
        replay: Replay,
        registry: ToolRegistry,
        policies: Sequence[Policy | CallJudge] | None,
        hooks: tuple[Hook, ...],
        limits: Limits,
        coerce: bool,
    ) -> None:
        given = policies or ()
        asked, waits = policies_to_ask(one for one in given if not isinstance(one, CallJudge))
        host = _ReplayHost(limits)
        self._make_gate = partial(
            _ReplayGate,
            policies=asked,
            waits=waits,
            judges=_Judges([one for one in given if isinstance(one, CallJudge)], host),
            rounds=limits.policy_rounds,
            policy_timeout_s=limits.policy_timeout_s,
            host=host,
        )
        self._registry = registry
        self._only_tools = policies is None
        self._hooks = hooks
        self._limits = limits
        self._coerce = coerce
        self._repair = any(call.repairs for call in replay.calls)
        by = {approval: by for approval, allowed, by in replay.answers if allowed}
        self._approvals = {
            call.approval: Question(
                approval_id=call.approval, run="", binding=call.binding, expires_at=0, allowed=True, by=by[call.approval]
            )
            for call in replay.calls
            if call.ended == "asked" and call.approval in by
        }
        """The approvals that humans gave, by id."""

    async def compare(self, call: ReplayedCall) -> ComparedVerdict:
        if call.lost:
            return ComparedVerdict(call=call, unjudged=f"it is not fully recorded: {call.lost}")
        if call.decision is None:
            return ComparedVerdict(call=call, unjudged=call.undecided)
        if not self._hooks and not self._only_tools and _is_by_host_code(call.decision):
            return ComparedVerdict(call=call, unjudged="the host's own code decided on it, and code is not recorded: give the hooks")
        try:
            now = await self._decide(call, call.decision)
        except _NoJudge:
            return ComparedVerdict(call=call, unjudged="a rule has the verdict judge, and no judge was given")
        return ComparedVerdict(call=call, now=now, change=change_between(call.decision, now))

    async def _decide(self, call: ReplayedCall, then: Decision) -> Decision:
        try:
            parsed = parse(call.raw, call.uid, self._limits, repair=self._repair)
            valid = validate(resolve(parsed, self._registry, call.scope), call.scope, coerce=self._coerce)
            return self._repeat_decision(valid, then) if self._only_tools else await self._ask_policies(valid, call, then)
        except ApprovalNeeded as question:
            return Decision(word="ask", rule=question.rule, said=str(question))
        except CallDenied as error:
            return Decision(word="deny", rule=str((error.details or {}).get("rule", "")), said=str(error), code=error.code)
        except (CallFailed, CallAborted) as error:
            return Decision(word="refused", said=str(error), code=error.code)

    async def _ask_policies(self, valid: ValidatedCall, call: ReplayedCall, then: Decision) -> Decision:
        before = HookChain.of(self._hooks, valid.tool).before
        approval = self._approvals.get(call.approval) if call.ended != "asked" else None
        answer = gate(valid, before, self._make_gate(then=then, approval=approval), "", _ignore_change)
        approved = await answer if isinstance(answer, Coroutine) else answer
        return Decision(word="allow", rule=approved.rule, arguments=approved.arguments_json, notes=approved.call.notes)

    def _repeat_decision(self, valid: ValidatedCall, then: Decision) -> Decision:
        """Return the recorded decision, for the call with the arguments that are validated now."""
        if then.word == "refused":
            return Decision(word="allow", said="its arguments are accepted now", arguments=plain_bytes(valid.arguments), notes=valid.notes)
        if then.word != "allow" or any(note.kind == "modified" for note in then.notes):
            return then
        return Decision(word="allow", rule=then.rule, arguments=plain_bytes(valid.arguments), notes=valid.notes)


def _ignore_change(change: ModifiedCall) -> None:
    """Ignore that the gate continues with other arguments: only the final verdict counts."""


def _is_by_host_code(then: Decision) -> bool:
    """Whether a hook refused the call, or a hook or a policy in code changed its arguments."""
    return then.code in ("hook_denied", "hook_failed") or any(note.kind == "modified" for note in then.notes)


def change_between(then: Decision, now: Decision) -> Change:
    """Return the most serious difference between two decisions on one call."""
    if then.word != now.word or (then.word == "refused" and then.code != now.code):
        return "verdict"
    if then.word == "allow" and canonical(decode(then.arguments)) != canonical(decode(now.arguments)):
        return "arguments"
    if then.word != "allow" and _comparable_text(then) != _comparable_text(now):
        return "words"
    return "rule" if then.rule_id != now.rule_id else ""


def _comparable_text(decision: Decision) -> str:
    """Return the text without the rule's file and line, so that a moved rule causes no difference."""
    return decision.said.replace(decision.rule, decision.rule_id) if decision.rule else decision.said


def _describe_consequence(one: ComparedVerdict) -> str:
    assert one.now is not None
    assert one.call.decision is not None
    match one.now.word:
        case "allow" if one.change == "arguments":
            return "it would have run with other arguments, so its recorded result does not apply."
        case "allow":
            return "it would have run; its result is unknown, because a replay starts no tool."
        case "ask":
            return "the run would have waited for a human here."
        case _ if one.call.decision.word == "allow":
            return "it would not have run, and the model would have read the reason instead of a result."
        case _:
            return "it would have been refused for another reason, which the model would have read."
