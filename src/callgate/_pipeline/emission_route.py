"""What the calls of one message need of the engine: admission to the run, and the two halves of the route."""

from __future__ import annotations

from typing import Protocol

from callgate._abort_signals import AbortSignal
from callgate._pipeline.call_state import CallState
from callgate._run_state.run_recovery import UnfinishedCall
from callgate.calls import Outcome, RawCall, Scope
from callgate.errors import CallFailed, RecordFailed, RunHeld
from callgate.stage_types import ValidatedCall

__all__ = ["Preparation", "Route"]


class Preparation(Protocol):
    """The first half of the route."""

    async def parse_large(self, state: CallState) -> None: ...
    def prepare(self, state: CallState, refusal: CallFailed | None = None) -> ValidatedCall | Outcome: ...


class Route(Protocol):
    """The engine's interface for an emission: admission to the run, and the two halves of the route."""

    @property
    def preparation(self) -> Preparation: ...
    def admit(self, raw: RawCall, scope: Scope, signal: AbortSignal, *, cause: int, unfinished: UnfinishedCall | None) -> CallState: ...
    async def complete(self, state: CallState, call: ValidatedCall) -> Outcome: ...
    async def end_unstarted(self, state: CallState, call: ValidatedCall, why: str) -> Outcome: ...
    def refuse_unopened(self, raw: RawCall, scope: Scope, error: RunHeld | RecordFailed, *, log: bool = True) -> Outcome: ...
    def replace_unrecorded(self, state: CallState, outcome: Outcome) -> Outcome: ...
