"""`Judge`: asks a model whether a call may run, within a budget for each run.

Reads are judged only if a rule requires it. Judgments are never reused. The gate enforces the deadline and denies a call whose judge fails.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import Control
from callgate._option_checks import Count, Options, Seconds, Whole, by_name, check, refused
from callgate._runners.await_host_code import HostAwaits
from callgate.judging.judge_answer import AS_TEXT, SCHEMA, VERDICT, judgment_of
from callgate.judging.judge_prompt import INSTRUCTIONS, PromptTooLarge, document
from callgate.messages import SystemMessage, UserMessage
from callgate.models.model_protocol import Model, StreamingContext
from callgate.models.wire.request import ModelRequest
from callgate.protocols import JudgeContext, Judgment
from callgate.stage_types import ValidatedCall
from callgate.stream import StreamLimits, StreamResult, stream_once

__all__ = ["Judge", "JudgeLimits"]

_MOST_RUNS = 10_000
_CHARS_PER_TOKEN = 3


class JudgeLimits(Options, frozen=True, kw_only=True):
    """Limits on what a judge may spend and read."""

    calls: Whole | None = 100
    """The maximum number of judgments per run; None for no limit."""
    tokens: Whole | None = None
    """The maximum tokens of all judgments of a run, input and output; estimated if the provider does not report them. None for no limit."""
    answer_tokens: Count = 4_096
    """The maximum tokens of one answer, including reasoning."""
    argument_bytes: Count = 65_536
    """The maximum size of the arguments in bytes; a call with larger arguments is denied."""
    messages: Whole = 20
    """The number of latest messages that the judge is shown."""
    message_chars: Count = 4_000
    """The maximum characters of each message and of the tool's description."""


class _JudgeSpend(Struct):
    calls: int = 0
    tokens: int = 0


class Judge:
    """A policy that asks a model; see `docs/how-to/have-a-model-judge-calls.md`.

    Pass it to an engine as one of its policies. It is asked last, about calls with effects and about calls with the rule verdict `judge`.
    It can deny a call or ask a human; it cannot allow a call that a rule denies or asks about.

    Args:
        model: A `Model`, or `"provider:model"`.
        instructions: The operator's instructions, added after callgate's own.
        reads: Whether to judge calls with the effect `none` too.
        limits: Limits per run and per call.
        timeout_s: The maximum time of one judgment, in seconds.
    """

    @by_name
    def __init__(
        self,
        model: Model | str,
        *,
        instructions: str = "",
        reads: bool = False,
        limits: JudgeLimits = JudgeLimits(),  # noqa: B008
        timeout_s: float = 20.0,
    ) -> None:
        check("Judge", "instructions", instructions, str)
        check("Judge", "reads", reads, bool)
        check("Judge", "limits", limits, JudgeLimits)
        check("Judge", "timeout_s", timeout_s, Seconds)
        self.model = _model_of(model)
        self.timeout_s = timeout_s
        self._limits = limits
        self._reads = reads
        self._instructions = f"{INSTRUCTIONS}\n\nThe operator of this agent says:\n{instructions}" if instructions.strip() else INSTRUCTIONS
        self._spent: OrderedDict[str, _JudgeSpend] = OrderedDict()

    @property
    def title(self) -> str:
        return f"{self.model.provider}:{self.model.name}"

    def wants(self, call: ValidatedCall) -> bool:
        """Return whether to judge this call even if no rule requires it: a write or command, or a read with `reads=True`."""
        return self._reads or call.tool.effect != "none" or call.tool.category == "dangerous"

    async def judge(self, call: ValidatedCall, context: JudgeContext) -> Judgment:
        """Ask the model about this call."""
        spent = self._of_run(call.scope.run)
        over = self._over(spent)
        if over:
            return Judgment(verdict="deny", reason=f"the judge's budget for this run is used up ({over})", failed="budget")
        limits = self._limits
        try:
            text = document(
                call, context, argument_chars=limits.argument_bytes, messages=limits.messages, message_chars=limits.message_chars
            )
        except PromptTooLarge as error:
            return Judgment(verdict="deny", reason=str(error), failed="too_large")
        request = self._request(text)
        reserved = (len(self._instructions) + len(text)) // _CHARS_PER_TOKEN
        spent.calls += 1
        spent.tokens += reserved
        result = await self._answer(request)
        used = result.usage
        total = used.input_tokens + used.output_tokens if used is not None else reserved + _size_of(result) // _CHARS_PER_TOKEN
        spent.tokens += total - reserved
        found = judgment_of(result, native_tools=self.model.native_tools)
        return replace(found, input_tokens=used.input_tokens, output_tokens=used.output_tokens) if used is not None else found

    async def close(self) -> None:
        """Close the model's connections. An engine does not close its judge, because several engines may share one."""
        close = getattr(self.model, "close", None)
        if close is not None:
            await close()

    def _request(self, text: str) -> ModelRequest:
        native = self.model.native_tools
        return ModelRequest(
            model=self.model.name,
            messages=(SystemMessage(self._instructions + ("" if native else AS_TEXT)), UserMessage(text)),
            tools=(VERDICT,) if native else (),
            tool_choice=VERDICT.name if native else "auto",
            max_tokens=self._limits.answer_tokens,
            output_schema=None if native else SCHEMA,
        )

    async def _answer(self, request: ModelRequest) -> StreamResult:
        guards = HostAwaits()
        try:
            limits = StreamLimits(idle_s=self.timeout_s + 1.0)
            return await stream_once(self.model, request, StreamingContext(), control=Control(), limits=limits, guards=guards)
        finally:
            await guards.close()

    def _of_run(self, run: str) -> _JudgeSpend:
        spent = self._spent.setdefault(run, _JudgeSpend())
        self._spent.move_to_end(run)
        if len(self._spent) > _MOST_RUNS:
            self._spent.popitem(last=False)
        return spent

    def _over(self, spent: _JudgeSpend) -> str:
        """Return a text that names the limit of the budget that has been reached; empty if none has been."""
        limits = self._limits
        if limits.calls is not None and spent.calls >= limits.calls:
            return f"{limits.calls} judgments"
        if limits.tokens is not None and spent.tokens >= limits.tokens:
            return f"{limits.tokens:,} tokens"
        return ""


def _size_of(result: StreamResult) -> int:
    return len(result.text) + sum(len(call.arguments) for call in result.calls)


def _model_of(model: Model | str) -> Model:
    if isinstance(model, str):
        from callgate.models.providers import model as from_name

        return from_name(model)
    if isinstance(model, type) or not all(hasattr(model, name) for name in ("provider", "name", "native_tools", "stream")):
        raise refused("Judge", "model", model, "a Model, or 'provider:model'")
    return model
