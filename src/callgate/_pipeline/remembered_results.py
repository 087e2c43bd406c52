"""Give a call that cannot be recorded the stored result of the same call, if this engine remembers that it ran before.

After the route, and only where a journal has failed: the call is refused because its repetition cannot be recorded, and "it was not run"
would make a model repeat what was done. Runs nothing and records nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from callgate._json import canonical, plain_bytes
from callgate._pipeline.call_preparation import CallPreparation
from callgate._pipeline.normalise import Normaliser
from callgate._pipeline.run_states import RunStates
from callgate._run_state.event_bodies import arguments_hash, decode_result
from callgate._run_state.idempotency import KeyedCall, call_key
from callgate._run_state.settlements import EARLIER
from callgate.calls import Answered, Outcome, RawCall, Scope, ToolResult
from callgate.errors import CallAborted, CallFailed, OutcomeUnknown
from callgate.stage_types import ValidatedCall

__all__ = ["RememberedResults"]


class RememberedResults:
    """The results that one engine remembers of calls of its runs."""

    def __init__(self, run_states: RunStates, preparation: CallPreparation, normaliser: Normaliser) -> None:
        self._run_states = run_states
        self._preparation = preparation
        self._normaliser = normaliser

    def replace_unrecorded(self, outcome: Outcome, raw: RawCall, scope: Scope) -> Outcome:
        """Return the outcome of a call, or what is remembered of the same call if it could not be recorded and was not run.

        Args:
            outcome: The outcome of the call.
            raw: The call.
            scope: Its scope, with a run.
        """
        if not isinstance(outcome, Answered) or outcome.result.failure_class != "record_failed" or outcome.result.status != "error":
            return outcome
        try:
            call = self._preparation.valid(raw, scope)
        except (CallFailed, CallAborted):
            return outcome
        before = self._find_same(call)
        if before is None or before.uid == outcome.result.uid or not before.entered:
            return outcome
        result = self._result_of_lost(call, before) if before.result is None else _as_repeated(call, before.result)
        metadata = replace(result.metadata, recorded=False, record_failure=outcome.result.metadata.record_failure)
        return Answered(replace(result, uid=outcome.result.uid, metadata=metadata))

    def _find_same(self, call: ValidatedCall) -> KeyedCall | None:
        """Return the same call as this engine remembers it; None if it does not."""
        run = self._run_states.remembered(call.scope.run)
        asked = arguments_hash(canonical(call.arguments))
        before = None if run is None else run.keyed_calls.get(call_key(call, asked))
        return before if before is not None and (before.tool, before.arguments or asked) == (call.tool.name, asked) else None

    def _result_of_lost(self, call: ValidatedCall, before: KeyedCall) -> ToolResult:
        """Return the result of a call that ran before and whose first result is not in memory."""
        name = call.tool.name
        error = OutcomeUnknown(
            f"{name} was started before as {before.uid}, and its result cannot be read at the moment. It may have taken effect. It was not"
            " run again. Do not repeat the call; tell the operator.",
            code="record_failed",
            details={EARLIER: before.uid},
        )
        return self._normaliser.refusal(call.raw, call.uid, name, error)


def _as_repeated(call: ValidatedCall, first: ToolResult) -> ToolResult:
    own = decode_result(plain_bytes(first))  # a copy, because callers may change it
    return replace(own, id=call.raw.id, metadata=replace(first.metadata, replayed=True))
