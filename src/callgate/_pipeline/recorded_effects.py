"""Make the key of a call's effect, and find the earlier call with this key and its result in the journal.

For tools with `key=`. `effect_claims` asks before a call starts. The route asks when a policy or the tool wants a human to decide: a call
will not run if an earlier one has a stored result or an outcome that nobody knows, so no human is asked about it. Claims nothing and starts
nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._json import canonical, plain_bytes
from callgate._pipeline.call_events import record_event, record_verdict
from callgate._pipeline.call_state import CallState
from callgate._pipeline.engine_context import EngineContext
from callgate._pipeline.result_notes import content_and_notes, note_texts
from callgate._pipeline.unknown_outcomes import ask_verify
from callgate._run_state.earlier_effect import EarlierEffect, effect_run
from callgate._run_state.event_bodies import Reason, decode_reason, decode_result
from callgate._run_state.recorder import off_loop
from callgate._run_state.settlements import how_to_free, in_doubt_error
from callgate._runners.exception_results import describe
from callgate._runners.offload_to_threads import WorkAbandoned
from callgate._runners.return_values import ReadingTimeout
from callgate.calls import Metadata, Note, Text, ToolResult
from callgate.errors import ApprovalNeeded, CallNotStarted, RecordFailed, ToolRaised
from callgate.protocols import NamesWriters
from callgate.stage_types import ValidatedCall
from callgate.tools.effect_key import EffectKeyOf

__all__ = ["RecordedEffects"]

_MOST_SHOWN: Final = 200
"""Characters of a key that are shown and recorded."""


class RecordedEffects:
    """The effects that the journal of one engine has recorded, by key."""

    def __init__(self, context: EngineContext) -> None:
        self._journal = context.journal
        self._recorder = context.recorder
        self._offload = context.offload
        self._host_timeout_s = context.limits.hook_timeout_s

    async def key_of(self, call: ValidatedCall, kill: AbortSignal, within_s: float) -> EffectKeyOf:
        """Return the key of a call. A function of the host that makes it runs in a thread, within the time of a hook.

        Its failure is logged, for the tool's author.

        Raises:
            ArgumentsInvalid, ToolRaised: The key of the call cannot be made.
            CallNotStarted: The call was killed.
        """
        try:
            return await self._key_of(call, kill, within_s)
        except ToolRaised as error:
            cause = error.__cause__
            raised = "" if cause is None or isinstance(cause, WorkAbandoned) else f" It raised {': '.join(describe(cause))}."
            self._recorder.log.warning("%s%s", error, raised)
            raise

    async def _key_of(self, call: ValidatedCall, kill: AbortSignal, within_s: float) -> EffectKeyOf:
        effect_key = call.tool.effect_key
        assert effect_key is not None
        make = partial(effect_key.from_call, call.arguments, call.scope)
        if not effect_key.is_function:
            return make()
        if self._offload.refusal:
            raise _no_key(call, f"was not called: {self._offload.refusal.rstrip('.')}")
        timeout_s = min(self._host_timeout_s, within_s)
        try:
            return await self._offload.run(make, ReadingTimeout(timeout_s, kill))
        except WorkAbandoned as error:
            if kill.reason is not None:
                raise CallNotStarted.because(kill.reason) from error
            raise _no_key(call, f"did not return within {timeout_s:.3g} s. Tell the operator") from error

    def key_text(self, key: EffectKeyOf) -> str:
        """Return the key as text for people, models and the record."""
        return self._recorder.cut(key.text, _MOST_SHOWN)

    async def find_earlier(self, tool: str, run: str, uid: str) -> EarlierEffect | None:
        """Return what the journal says of the call that claimed a key last.

        Args:
            run: The run that has the claims of the key.
            uid: The call that asks.

        Returns:
            None if there is no claim, or if it is that of the call that asks, resumed.

        Raises:
            RecordFailed: The journal cannot be read.
        """
        try:
            return await off_loop(self._journal, partial(self._read, run, uid))
        except Exception as error:
            raise unusable(tool, error) from error

    def _read(self, run: str, uid: str) -> EarlierEffect | None:
        journal = self._journal
        for event in journal.read(run=run, limit=1, newest_first=True):
            if event.call != uid:
                writer = str((decode_reason(event.body).details or {}).get("writer", ""))
                has_ended = journal.has_ended if isinstance(journal, NamesWriters) else _never
                return EarlierEffect.of(event.call, writer, list(journal.read(call=event.call)), has_ended)
        return None

    # Calls about which a human would be asked

    async def has_answer(self, call: ValidatedCall, kill: AbortSignal) -> bool:
        """Return whether an earlier call keeps this one from running if its policies let it; see `replay`."""
        return call.tool.effect_key is not None and (await self._find_stored(call, kill))[1] is not None

    async def replay(self, state: CallState, call: ValidatedCall, asks: ApprovalNeeded) -> ToolResult | None:
        """Return the stored result of an earlier call with the same key, instead of asking a human about this call.

        The verdict `ask` is recorded, and that nobody was asked because this call does not run. An earlier call whose outcome is not
        known has no result, and this call would not run either: the model is told that at once.

        Args:
            call: The call with its final arguments. No policy has denied it.
            asks: The question that a human would be asked.

        Returns:
            None if a human has to be asked: no earlier call keeps this one from running, or it belongs to another principal.

        Raises:
            OutcomeUnknown: It is not known whether the earlier call had an effect, and its tool cannot verify it.
        """
        if call.tool.effect_key is None or state.doubtful:
            return None
        key, earlier = await self._find_stored(call, state.kill)
        if earlier is None:
            return None
        record_verdict(state, "ask", call.tool.name, rule=asks.rule, reason=asks.question, judgments=asks.judgments)
        if earlier.state == "unknown":
            raise in_doubt_error(call.tool.name, earlier.uid, f"had the same key of its effect ({self.key_text(key)})")
        return self.replay_result(state, call, canonical(call.arguments), self.key_text(key), earlier, details={"asked": "nobody"})

    async def _find_stored(self, call: ValidatedCall, kill: AbortSignal) -> tuple[EffectKeyOf, EarlierEffect | None]:
        """Return the key of a call, and the earlier call that keeps it from running whatever a human says; None if there is none."""
        key = await self.key_of(call, kill, self._host_timeout_s)
        earlier = await self.find_earlier(call.tool.name, effect_run(key.tool, key.digest), call.uid)
        # A human might not want to show the principal what was done for another one.
        if earlier is None or earlier.state == "nothing" or earlier.principal != call.scope.principal:
            return key, None
        return key, None if earlier.state == "unknown" and await self._may_run(call, earlier, kill) else earlier

    async def _may_run(self, call: ValidatedCall, earlier: EarlierEffect, kill: AbortSignal) -> bool:
        """Return whether a call may run or get a result although the outcome of the earlier one is not known yet."""
        if earlier.may_end or earlier.doubt is None:
            return earlier.may_end
        found = await ask_verify(call.tool, earlier.arguments, earlier.doubt.tool_key, self._host_timeout_s, kill)
        return found.happened is not None

    # The result of an earlier call

    def replay_result(
        self,
        state: CallState,
        call: ValidatedCall,
        encoded: bytes,
        key: str,
        earlier: EarlierEffect,
        *,
        joined: bool = False,
        details: dict[str, object] | None = None,
    ) -> ToolResult:
        """Record that a call gets the result of an earlier one, and return this result.

        Args:
            encoded: The final arguments of the call, as canonical JSON.
            joined: Whether the call has waited for the earlier one.
            details: Further facts for the record.
        """
        facts = {"uid": earlier.uid, "effect_key": key} | (details or {})
        record_event(state, "call.replayed", Reason(reason="joined" if joined else "replayed", details=facts))
        metadata = Metadata(replayed=not joined, joined=joined)
        others = earlier.had_other_arguments(encoded)
        if earlier.state == "happened" or earlier.result is None:
            name, had = call.tool.name, _same_key(key, others=others)
            said = f"{name} took effect before, as {earlier.uid} {had}. Its result was not kept. Nothing was run."
            return ToolResult(id=state.raw.id, uid=state.uid, name=name, status="ok", content=(Text(text=said),), metadata=metadata)
        own = decode_result(plain_bytes(earlier.result))  # a copy, because callers may change it
        content, notes = own.content, own.metadata.notes
        if others or own.status != "ok" or not earlier.is_the_call(state):
            note = Note(kind="replayed", text=_note(own, key, earlier, others=others))
            content, _earlier_notes = content_and_notes(own)
            notes = (note, *call.notes)
            if others or own.status != "ok" or state.parent is None:  # a tool that made the call reads the result as data
                content = (*content, Text(text=f"Note: {note.text}"), *note_texts(call.notes))
        metadata = replace(own.metadata, replayed=not joined, joined=joined, notes=notes)
        return replace(own, id=state.raw.id, uid=state.uid, content=content, metadata=metadata)


def _note(result: ToolResult, key: str, earlier: EarlierEffect, *, others: bool) -> str:
    """Return what a model is told that may take the result of an earlier call for that of a second effect."""
    did = "did it before" if result.status == "ok" else "tried it before"
    had, then = _same_key(key, others=others), "" if result.status == "ok" else f" {how_to_free(earlier.uid)}"
    return f"Nothing was run for this call: {earlier.uid} {did}, {had}; it ended at {earlier.ended_at}. This is its result.{then}"


def _same_key(key: str, *, others: bool) -> str:
    return f"with the same key of its effect ({key}){' and other arguments' if others else ''}"


def _never(writer: str) -> bool:
    return False


def unusable(tool: str, error: Exception) -> RecordFailed:
    """Return the error for a call if the record of the key of its effect cannot be read or written."""
    text = f"{tool} was not run: the record of the key of its effect cannot be used"
    return RecordFailed(f"{text} ({error}). Tell the operator.", told=f"{text}. Tell the operator.")


def _no_key(call: ValidatedCall, why: str) -> ToolRaised:
    return ToolRaised(f"{call.raw.name} was not run: the function that makes the key of its effect {why}.", code="effect_key")
