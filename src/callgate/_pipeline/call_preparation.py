"""Parse, resolve and validate a call: the first half of its route, which has no effect other than recording events.

All calls of a message are prepared before the first of them has an effect. The other functions answer questions about a call that is
neither recorded nor run.
"""

from __future__ import annotations

import logging
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import FAILURES, AbortSignal
from callgate._json import canonical
from callgate._pipeline.call_events import record_received
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.engine_policies import EnginePolicies
from callgate._pipeline.gate import call_to_ask_about
from callgate._pipeline.outcomes import Outcomes
from callgate._pipeline.parse import check_name, parse, try_parse
from callgate._pipeline.recorded_effects import RecordedEffects
from callgate._pipeline.redacted_quotes import redact_error, redact_notes
from callgate._pipeline.resolve import resolve
from callgate._pipeline.validate import validate
from callgate.calls import Outcome, RawCall, Scope
from callgate.errors import CallAborted, CallFailed
from callgate.stage_types import ValidatedCall
from callgate.tools import ToolRegistry

__all__ = ["ArgumentSettings", "CallPreparation"]

log = logging.getLogger("callgate")


class ArgumentSettings(Struct, frozen=True, kw_only=True):
    """How the arguments of calls are read."""

    coerce: bool = True
    """Whether to convert arguments of a wrong type if this loses nothing."""
    repair: bool = False
    """Whether to repair complete but malformed JSON arguments."""


class CallPreparation:
    """Prepares the calls of one engine.

    Args:
        tools: The tools that calls may name.
        policies: Those that may ask a human about a call.
        recorded_effects: Knows the calls whose effect a call would repeat.
        outcomes: Ends calls that cannot be prepared.
        settings: How arguments are read. Only the repetition of a recorded run replaces them, where that run went on
            with another engine.
    """

    def __init__(
        self,
        context: EngineContext,
        tools: ToolRegistry,
        policies: EnginePolicies,
        recorded_effects: RecordedEffects,
        outcomes: Outcomes,
        settings: ArgumentSettings,
    ) -> None:
        self._tools = tools
        self._policies = policies
        self._recorded_effects = recorded_effects
        self._outcomes = outcomes
        self._control = context.control
        self._limits = context.limits
        self._offload = context.offload
        self._redactor = context.redactor
        self._recorder = context.recorder
        self.settings = settings

    async def parse_large(self, state: CallState) -> None:
        """Parse large arguments in a thread, and keep the result or the error for `prepare`."""
        work = partial(try_parse, state.raw, state.uid, self._limits, repair=self.settings.repair)
        state.parsed = await self._offload.run(work)

    def prepare(self, state: CallState, refusal: CallFailed | None = None) -> ValidatedCall | Outcome:
        """Parse, resolve and validate a call. Has no effect other than recording events.

        The name is checked first, then a pending stop, before anything else of the call is read. A call that was handed in before and has a
        result passes, because a stop starts nothing, and keeps no result from the model.

        Args:
            refusal: The error with which the loop refuses the call, or None.
        """
        name = state.raw.name
        try:
            record_received(state)
            if refusal is not None or state.stopped or self._control.stops:
                check_name(state.raw)
                if refusal is not None or not self._has_ended(state):
                    state.check_stop(self._control)
            if refusal is not None:
                return self._outcomes.end_with_error(state, refusal, name)
            repair, arguments = self.settings.repair, state.arguments
            parsed = state.parsed or parse(state.raw, state.uid, self._limits, repair=repair, arguments=arguments)
            state.parsed = None
            if isinstance(parsed, BaseException):
                raise parsed
            for note in parsed.notes:
                self._recorder.argument_log.warning("Tool call %s: %s", name, note.text)
            if log.isEnabledFor(logging.INFO):
                state.logs = True
                reasoning = state.raw.reasoning
                self._recorder.log.info("Tool call: %s%s%s", name, " - " if reasoning else "", reasoning)
            resolved = resolve(parsed, self._tools, state.scope)
            name = resolved.tool.name
            call = validate(resolved, state.scope, coerce=self.settings.coerce)
            if call.notes and self._redactor is not None:
                again = partial(self.valid, scope=state.scope)
                call = replace(call, notes=redact_notes(state.raw, call.notes, again, self._redactor))
            return call
        except FAILURES as error:
            if isinstance(error, CallFailed) and self._redactor is not None:
                again = partial(self.valid, scope=state.scope)
                error = redact_error(state.raw, error, again, self._redactor, self._limits.arguments_bytes)
            return self._outcomes.end_with_error(state, error, name)
        except BaseException as error:
            self._outcomes.end_with_caller(state, error)
            raise

    def _has_ended(self, state: CallState) -> bool:
        """Return whether a call is valid, was handed in before, and has ended."""
        try:
            return state.has_ended_before(self.valid(state.raw, state.scope))
        except (CallFailed, CallAborted):
            return False

    def asked(self, raw: RawCall, scope: Scope) -> tuple[str, bytes] | None:
        """Return the name of a call's tool, and its valid arguments as canonical JSON; None if the call is invalid.

        The call is neither recorded nor run.
        """
        try:
            call = self.valid(raw, scope)
            return call.tool.name, canonical(call.arguments)
        except (CallFailed, CallAborted):
            return None

    @property
    def may_ask(self) -> bool:
        """Whether there is a policy, a judge or a tool that may ask a human."""
        return bool(self._policies.policies) or self._policies.judges.present or self._tools.may_ask

    async def asks_human(self, raw: RawCall, scope: Scope) -> bool:
        """Return whether a human has to decide about a valid call, and none has. The call is neither recorded nor run."""
        try:
            call = self.valid(raw, scope)
        except (CallFailed, CallAborted):
            return False
        asked = await call_to_ask_about(call, self._policies)
        if asked is None or self._policies.has_happened(asked):
            return False
        return not await self._recorded_effects.has_answer(asked, AbortSignal())

    def valid(self, raw: RawCall, scope: Scope) -> ValidatedCall:
        """Return the valid call as `prepare` does, without recording events."""
        resolved = resolve(parse(raw, "", self._limits, repair=self.settings.repair), self._tools, scope)
        return validate(resolved, scope, coerce=self.settings.coerce)
