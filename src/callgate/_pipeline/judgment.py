"""Have calls judged that rules alone do not settle: after all policies, in the judge's own time, and never for the better.

A judge that fails, is silent, or gives anything but a judgment has denied the call, and the judgment on record says which of these it was.
Knows no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from callgate._pipeline.host_code import HostCode
from callgate._printable import printable
from callgate._redact import NothingSecret, Redactor
from callgate.messages import Message
from callgate.protocols import CallJudge, JudgeContext, Judgment
from callgate.route import ValidatedCall

__all__ = ["Judges"]

Cut = Callable[[object, int], str]


class Judges:
    """The judges of one engine.

    Args:
        judges: In the order in which they are asked; the first deny ends it.
        host_code: Waits for them.
        redactor: Of the engine.
        cut: Redacts and cuts a text.
    """

    def __init__(self, judges: Sequence[CallJudge], host_code: HostCode, redactor: Redactor | None, cut: Cut) -> None:
        self._judges = tuple(judges)
        self._host_code = host_code
        self._redactor = redactor or NothingSecret()
        self._cut = cut
        self._messages: dict[str, Sequence[Message]] = {}

    @contextmanager
    def showing(self, run: str, messages: Sequence[Message]) -> Iterator[None]:
        """Show a run's conversation to the judges of its calls, as it is when they are asked, for as long as the block lasts."""
        self._messages[run] = messages
        try:
            yield
        finally:
            self._messages.pop(run, None)

    def concern(self, call: ValidatedCall, required_by: str | None) -> bool:
        """Whether the call has to be judged.

        Args:
            required_by: The rule that says so; None: none does.
        """
        return required_by is not None or any(judge.wants(call) for judge in self._judges)

    async def judgments(self, call: ValidatedCall, required_by: str | None) -> tuple[Judgment, ...]:
        """What the judges say, one after the other; empty where a rule wants a judgment and there is no judge."""
        found: list[Judgment] = []
        for judge in self._judges:
            if required_by is not None or judge.wants(call):
                found.append(await self._judgment(judge, call, required_by or ""))
                if found[-1].verdict == "deny":
                    break
        return tuple(found)

    async def _judgment(self, judge: CallJudge, call: ValidatedCall, required_by: str) -> Judgment:
        messages = tuple(self._messages.get(call.scope.run, ()))
        context = JudgeContext(required_by=required_by, messages=messages, redact=self._redactor.redact, cut=self._cut)
        began = time.monotonic()
        answer = await self._host_code.ask(_judged(judge, call, context), judge.timeout_s, "judge")
        found = _failure(answer.error, judge.timeout_s) if answer.error is not None else _checked(answer.value)
        duration_ms = round((time.monotonic() - began) * 1000, 1)
        return replace(found, judge=found.judge or judge.title, reason=self._cut(printable(found.reason), 1_000), duration_ms=duration_ms)


async def _judged(judge: CallJudge, call: ValidatedCall, context: JudgeContext) -> Judgment:
    return await judge.judge(call, context)


def _checked(found: object) -> Judgment:
    if isinstance(found, Judgment) and found.verdict in ("allow", "deny", "ask") and isinstance(found.reason, str):
        return found
    return Judgment(verdict="deny", reason="the judge gave no judgment", failed="malformed")


def _failure(error: BaseException, timeout_s: float) -> Judgment:
    if isinstance(error, TimeoutError):
        return Judgment(verdict="deny", reason=f"the judge gave no answer within {timeout_s:.3g} s", failed="timeout")
    return Judgment(verdict="deny", reason=f"the judge failed ({type(error).__name__})", failed="error")
