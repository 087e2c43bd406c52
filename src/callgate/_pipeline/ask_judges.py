"""Ask judges about calls that rules alone cannot decide. They are asked after all policies, within their own time limit.

A judge can only restrict: it cannot allow a call that a policy denied. A judge that fails, times out or returns no valid judgment denies
the call, and the recorded judgment says which of these happened. Knows no model.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import asdict, replace

from callgate._abort_signals import is_own_failure
from callgate._option_checks import Seconds, check
from callgate._pipeline.host_code import RunsHostCode
from callgate._secret_redaction import NothingSecret, Redactor
from callgate._terminal_text import printable
from callgate.messages import Message
from callgate.protocols import CallJudge, JudgeContext, Judgment
from callgate.stage_types import ValidatedCall

__all__ = ["Judges"]

Cut = Callable[[object, int], str]


class Judges:
    """The judges of one engine.

    Args:
        judges: In the order in which they are asked. The first denial ends the sequence.
        host: Runs the judges with a time limit.
    """

    def __init__(self, judges: Sequence[CallJudge], host: RunsHostCode) -> None:
        self._judges = tuple(judges)
        for judge in self._judges:
            check(type(judge).__name__, "timeout_s", judge.timeout_s, Seconds)
        self._host = host
        self._redactor: Redactor = host.redactor or NothingSecret()
        self._cut = host.cut
        self.present = bool(self._judges)
        """Whether the engine has a judge."""
        self._messages: dict[str, Sequence[Message]] = {}

    @contextmanager
    def show_messages(self, run: str, messages: Sequence[Message]) -> Iterator[None]:
        """Show a run's conversation, as it is whenever a judge is asked, to the judges of the run's calls until the block ends."""
        self._messages[run] = messages
        try:
            yield
        finally:
            self._messages.pop(run, None)

    def concern(self, call: ValidatedCall, required_by: str | None) -> bool:
        """Return whether the call has to be judged.

        Args:
            required_by: The rule that requires it; None: none does.
        """
        return required_by is not None or any(_wants(judge, call) is not False for judge in self._judges)

    async def judgments(self, call: ValidatedCall, required_by: str | None) -> tuple[Judgment, ...]:
        """Ask the judges one after the other and return their judgments. Empty if a rule requires one but the engine has no judge."""
        found: list[Judgment] = []
        for judge in self._judges:
            wants = required_by is not None or _wants(judge, call)
            if wants is not False:
                found.append(await self._judgment(judge, call, required_by or "") if wants is True else _complete(wants, judge, self._cut))
                if found[-1].verdict == "deny":
                    break
        return tuple(found)

    async def _judgment(self, judge: CallJudge, call: ValidatedCall, required_by: str) -> Judgment:
        messages = tuple(self._messages.get(call.scope.run, ()))
        context = JudgeContext(required_by=required_by, messages=messages, redact=self._redactor.redact, cut=self._cut)
        began = time.monotonic()
        answer = await self._host.ask(_ask(judge, call, context), judge.timeout_s, "judge")
        found = _failure(answer.error, judge.timeout_s) if answer.error is not None else _check_judgment(answer.value)
        duration_ms = round((time.monotonic() - began) * 1000, 1)
        return replace(_complete(found, judge, self._cut), duration_ms=duration_ms)


def _complete(found: Judgment, judge: CallJudge, cut: Cut) -> Judgment:
    """Return a judgment as it is recorded and reported, with the judge's name and a shortened reason."""
    return replace(found, judge=found.judge or judge.title, reason=cut(printable(found.reason), 1_000))


def _wants(judge: CallJudge, call: ValidatedCall) -> bool | Judgment:
    """Return whether the judge wants to judge this call. If its answer is not a bool, return a denial instead."""
    try:
        wants: object = judge.wants(call)
    except BaseException as error:
        if not is_own_failure(error):
            raise
        return _failure(error, judge.timeout_s)
    if isinstance(wants, bool):
        return wants
    if inspect.iscoroutine(wants):
        wants.close()
    return Judgment(verdict="deny", reason="the judge did not say whether it judges this call", failed="malformed")


async def _ask(judge: CallJudge, call: ValidatedCall, context: JudgeContext) -> Judgment:
    return await judge.judge(call, context)


def _check_judgment(found: object) -> Judgment:
    try:
        judgment = msgspec.convert(asdict(found), Judgment) if isinstance(found, Judgment) else None
    except msgspec.ValidationError:
        judgment = None
    if judgment is None or (judgment.failed and judgment.verdict != "deny"):
        return Judgment(verdict="deny", reason="the judge gave no judgment", failed="malformed")
    return judgment


def _failure(error: BaseException, timeout_s: float) -> Judgment:
    if isinstance(error, TimeoutError):
        return Judgment(verdict="deny", reason=f"the judge gave no answer within {timeout_s:.3g} s", failed="timeout")
    return Judgment(verdict="deny", reason=f"the judge failed ({type(error).__name__})", failed="error")
