"""Find out how the engine of a recorded run read the arguments of its calls: whether it converted and repaired them.

A run that was resumed may have gone on with another engine. The settings are not on record, but a refusal is: the
settings that give its text with the tools of today are those that the engine had. Pure; runs before the repetition.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from callgate._engine_limits import Limits
from callgate._pipeline.call_preparation import ArgumentSettings
from callgate._pipeline.parse import parse
from callgate._pipeline.resolve import resolve
from callgate._pipeline.validate import validate
from callgate.errors import CallAborted, CallFailed
from callgate.replay import Replay, ReplayedCall
from callgate.tools import ToolRegistry

__all__ = ["RecordedSettings"]


class RecordedSettings:
    """The settings of the engines of a recorded run.

    Args:
        then: The run.
        tools: The tools of the repetition.
        resumed: The positions at which the run was resumed.
    """

    def __init__(self, then: Replay, tools: ToolRegistry, resumed: Iterable[int]) -> None:
        self._tools = tools
        self._usual = ArgumentSettings(repair=any(call.repairs for call in then.calls))
        self._calls = [call for call in then.calls if not call.parent]
        agents = {one.position for one in then.passes} | set(resumed)
        self._moments = sorted(agents or {call.position for call in self._calls})

    def at(self, position: int) -> ArgumentSettings:
        """Return the settings for the calls from this position of the record to the next pass, resumption or call."""
        end = next((moment for moment in self._moments if moment > position), None)
        found = [self._find_settings(call) for call in self._calls if call.position >= position and (end is None or call.position < end)]
        return ArgumentSettings(
            coerce=all(one.coerce for one in found), repair=all(one.repair for one in found) if found else self._usual.repair
        )

    def _find_settings(self, call: ReplayedCall) -> ArgumentSettings:
        refused = call.decision is not None and call.decision.word == "refused"
        if not refused or call.result is None:
            return self._usual
        for coerce, repair in product((True, False), dict.fromkeys((self._usual.repair, not self._usual.repair))):
            settings = ArgumentSettings(coerce=coerce, repair=repair)
            if self._refusal_text(call, settings) == call.result.error:
                return settings
        return self._usual

    def _refusal_text(self, call: ReplayedCall, settings: ArgumentSettings) -> str | None:
        """Return the text with which a call is refused under these settings; None if it is not."""
        try:
            validate(
                resolve(parse(call.raw, call.uid, Limits(), repair=settings.repair), self._tools, call.scope),
                call.scope,
                coerce=settings.coerce,
            )
        except (CallFailed, CallAborted) as error:
            return str(error)
        return None
