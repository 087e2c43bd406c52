"""Find the calls of one message that repeat an earlier one of it, and give them its result instead of a second run.

Two calls with the model's same id, tool and arguments are one call. Identical calls with different ids run, each for itself, unless their
tool has a key of its effect: a human is asked about them once, and a denial of the first one is the result of all.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from callgate._abort_signals import AbortSignal
from callgate._json import canonical
from callgate._pipeline.emission_calls import EmissionCall
from callgate._run_state.approvals import REFUSED_BY_ANSWER
from callgate.calls import Answered
from callgate.stage_types import ValidatedCall

__all__ = ["DuplicateCalls"]


class _SameIdCalls(Struct, eq=False):
    """The calls of one message that the model gave the same id, in order."""

    entries: list[EmissionCall] = []
    _seen: int = 0
    _firsts: dict[tuple[str, bytes], EmissionCall] = {}

    def first_like(self, call: ValidatedCall) -> EmissionCall:
        """Return the first call of the same tool with the same arguments."""
        for entry in self.entries[self._seen :]:
            self._seen += 1
            if entry.call is not None:
                self._firsts.setdefault(_likeness(entry.call), entry)
        return self._firsts[_likeness(call)]


class DuplicateCalls(Struct, eq=False):
    """Finds the duplicates among the calls of one message."""

    entries: Sequence[EmissionCall]
    """The calls of the message; it grows while the message is streaming."""
    kill: AbortSignal
    """Ends the wait for the earlier call."""
    _ids: dict[str, _SameIdCalls] = {}
    """The calls by their id from the model."""
    _indexed: int = 0
    """How many of the calls are among them."""
    _effects: dict[tuple[str, bytes], EmissionCall] = {}
    """The first call with each effect, for tools whose effects have keys."""

    def ask_once(self, entry: EmissionCall, call: ValidatedCall) -> ValidatedCall:
        """Return the call so that a human is asked once about it and all identical calls of the message, which have the same effect."""
        first = self._effects.setdefault(_likeness(call), entry)
        if first is entry:
            return call
        entry.same_effect = first
        return replace(call, asked_with=first.state.raw.id)

    async def join_refused(self, entry: EmissionCall, first: EmissionCall) -> None:
        """Wait for the first call with the same effect. If a human has denied it, or it was refused because of an earlier call with an
        unknown outcome, give this one its result: a yes would not let it start either.
        """
        await first.wait_end(self.kill)
        if not isinstance(first.outcome, Answered):
            return
        result = first.outcome.result
        if result.code in REFUSED_BY_ANSWER or (result.status == "unknown" and not first.state.started):
            entry.state.first = result

    async def join_same_id(self, entry: EmissionCall, call: ValidatedCall) -> None:
        """Give a duplicate of an earlier call of the message (same id, tool and arguments) the result of the earlier one."""
        for other in self.entries[self._indexed :]:
            self._ids.setdefault(other.state.raw.id, _SameIdCalls()).entries.append(other)
        self._indexed = len(self.entries)
        same_id = self._ids[entry.state.raw.id]
        if len(same_id.entries) == 1 or (first := same_id.first_like(call)) is entry:
            return
        entry.state.duplicate = True
        if call.tool.effect == "none":
            await first.wait_end(self.kill)
            entry.state.first = first.outcome.result if isinstance(first.outcome, Answered) else None


def _likeness(call: ValidatedCall) -> tuple[str, bytes]:
    """Return what is the same for all calls of one tool with the same arguments."""
    return call.tool.identity, canonical(call.arguments)
