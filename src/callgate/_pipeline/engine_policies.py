"""What the gate of one engine uses: its policies and judges, the limit of dangerous calls, and the answers of humans.

Policies that answer at once are asked without being awaited. Decides nothing; `gate` combines the verdicts.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeGuard

from callgate._engine_limits import Limits
from callgate._json import canonical
from callgate._pipeline.ask_judges import Judges
from callgate._pipeline.host_code import RunsHostCode
from callgate._pipeline.run_states import RunStates
from callgate._run_state.approvals import Approvals, Question
from callgate.calls import Scope
from callgate.errors import DangerousLimitReached
from callgate.protocols import CallJudge, InstantPolicy, PathFilter, PathPolicy, Policy, Verdict
from callgate.stage_types import ValidatedCall

__all__ = ["AskedPolicy", "EnginePolicies", "policies_to_ask"]


class AskedPolicy(Protocol):
    """A policy that returns its verdict at once if it can, and otherwise has to be awaited."""

    def judge(self, call: ValidatedCall) -> Verdict | None:
        """Return the verdict; None if `decide` has to be awaited."""
        ...

    async def decide(self, call: ValidatedCall) -> Verdict: ...


class EnginePolicies:
    """What the gate of one engine uses: policies and judges, the limit of dangerous calls, and the approvals.

    Args:
        policies: The policies in the order in which they are asked. The judges among them are asked last.
        host: Runs the policies.
    """

    def __init__(
        self,
        policies: Iterable[Policy | CallJudge],
        host: RunsHostCode,
        approvals: Approvals,
        runs: RunStates,
        limits: Limits,
        *,
        coerce: bool,
    ) -> None:
        asked = tuple(policies)
        self.policies, self.waits = policies_to_ask(one for one in asked if not isinstance(one, CallJudge))
        self.judges = Judges([one for one in asked if isinstance(one, CallJudge)], host)
        self.coerce = coerce
        self.rounds = limits.policy_rounds
        self.policy_timeout_s = limits.policy_timeout_s
        self.host = host
        self.answered: Mapping[str, Question] = approvals.answered
        self.find_answer_to = approvals.find_answer_to
        self.spend_approval = approvals.spend
        self._runs = runs
        self._dangerous_per_tick = limits.dangerous_per_tick

    def call_in_doubt(self, call: ValidatedCall, encoded: bytes) -> str:
        doubt = self._runs.state(call.scope.run).in_doubt.find(call.tool.name, encoded)
        return "" if doubt is None else doubt.uid

    def has_happened(self, call: ValidatedCall) -> bool:
        """Return whether an operator has said that an identical call of the run happened, and no call has been told."""
        return self._runs.state(call.scope.run).in_doubt.find_confirmed(call.tool.name, canonical(call.arguments)) is not None

    def check_limits(self, call: ValidatedCall) -> None:
        most = self._dangerous_per_tick
        if most is None:
            return
        if self._runs.state(call.scope.run).dangerous.get(_tick(call.scope), 0) >= most:
            raise DangerousLimitReached(
                f"{call.tool.name} was not run: the limit is {most} dangerous call{'s' if most != 1 else ''} per tick, and this tick has"
                " had that many. Go on with safe tools, or wait for the next tick."
            )

    def count_dangerous(self, call: ValidatedCall) -> str:
        """Count a dangerous call that is about to start, and return its tick; empty if dangerous calls are not counted.

        Raises:
            DangerousLimitReached: Other calls have reached the limit first.
        """
        if self._dangerous_per_tick is None:
            return ""
        self.check_limits(call)
        tick, ticks = _tick(call.scope), self._runs.state(call.scope.run).dangerous
        ticks[tick] = ticks.get(tick, 0) + 1
        return tick


def policies_to_ask(policies: Iterable[Policy]) -> tuple[tuple[AskedPolicy, ...], bool]:
    """Return the policies as the gate asks them, and whether one of them always has to be awaited."""
    asked = tuple(one if _is_instant(one) else _Waiting(one) for one in policies)
    return asked, any(isinstance(one, _Waiting) for one in asked)


def _is_instant(policy: Policy) -> TypeGuard[InstantPolicy]:
    """Return whether a policy answers at once.

    A policy whose `judge` is a coroutine function does not, whatever it declares.
    """
    return isinstance(policy, InstantPolicy) and bool(policy.never_waits) and not inspect.iscoroutinefunction(policy.judge)


class _Waiting:
    """A policy that always has to be awaited."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.decide = policy.decide

    def path_filter(self, call: ValidatedCall) -> PathFilter | None:
        return self._policy.path_filter(call) if isinstance(self._policy, PathPolicy) else None

    def judge(self, call: ValidatedCall) -> None:
        return None


def _tick(scope: Scope) -> str:
    return f"{scope.conversation}/{scope.tick or scope.turn}"
