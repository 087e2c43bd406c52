"""What the turns of an agent are made of, each part made anew for each turn, or not at all where the agent does without.

Beside `runs`, which says when a turn begins and how it ends. Here settings become parts: the tools that are offered, the system text, the
guard against circles, what compacts, what deliberates. Runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from callgate._runners.host_awaits import HostAwaits
from callgate._turn_queue import QueuedTurn
from callgate.agent.account import Account
from callgate.agent.course import TurnParts
from callgate.agent.events import AgentEvent
from callgate.agent.exits import Exits
from callgate.agent.given import check_exits
from callgate.agent.history import History
from callgate.agent.intake import raw_call
from callgate.agent.record import Phase, RunRecord
from callgate.agent.restart import ContextRestarts, Enrichment
from callgate.agent.settings import Settings
from callgate.agent.stuck import StuckGuard, StuckLimits
from callgate.calls import Scope
from callgate.engine import Engine
from callgate.errors import UsageError
from callgate.messages import ToolCall, UserMessage
from callgate.models.model import Model, StreamingContext
from callgate.models.wire.request import ModelRequest, ToolSpec
from callgate.stream import StreamLimits

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.compaction import Compaction, Compactor
    from callgate.agent.deliberate import Deliberation, Exposure
    from callgate.agent.output import OutputType
    from callgate.agent.resume import GoesOn

__all__ = ["Mode", "Parts", "Start"]


class Mode(Struct, frozen=True):
    """What a run says of deliberate mode."""

    deliberate: bool | None = None
    expose: tuple[str, ...] = ()


class Start(Struct, frozen=True, kw_only=True, eq=False):
    """A turn that is about to begin, or to go on."""

    place: QueuedTurn
    history: History
    scope: Scope
    on_event: Callable[[AgentEvent], None] | None
    exposure: Exposure | None
    """What deliberate mode offers in it; None where it is off."""
    task: UserMessage | None = None
    """What the user says; None where it goes on."""
    phase: Phase = "deliberate"
    goes_on: GoesOn | None = None
    """From where; None: it begins."""

    @property
    def turn_scope(self) -> Scope:
        """The scope, with the allowlist of the turn if it has one."""
        return self.exposure.scope(self.scope) if self.exposure is not None else self.scope


class Parts:
    """What one agent makes its turns of; `Agent` makes what is declared here."""

    model: Model
    engine: Engine
    settings: Settings
    _instructions: str | Callable[[int | None], str]
    _bios: bool
    _exits: dict[str, ToolSpec]
    _limits: StreamLimits
    _stuck: StuckLimits | None
    _output: OutputType | None
    _deliberation: Deliberation | None
    _compaction: Compaction | None
    _request: ModelRequest
    _guards: HostAwaits

    def _parts(self, start: Start, record: RunRecord) -> TurnParts:
        """What one turn works with."""
        goes_on, offered = start.goes_on, start.turn_scope
        context = StreamingContext(offered.conversation, reply_to=start.place.reply_to, extra=offered.extra)
        scope = replace(offered, streaming=context)
        tools = self._specs(scope)
        return TurnParts(
            model=self.model,
            engine=self.engine,
            request=replace(self._request, tools=tools, calls_per_message=self.engine.limits.calls_per_message),
            history=start.history,
            scope=scope,
            context=context,
            settings=self.settings,
            limits=self._limits,
            guards=self._guards,
            account=Account(self.settings.budget, self.settings.prices, self.engine.clock, goes_on.spent if goes_on else None),
            record=record,
            exits=self._exit_calls(),
            head=partial(self._head, len(tools) > len(self._exits)) if self._bios or self._instructions else None,
            tell=start.on_event,
            guard=self._guard(scope, goes_on),
            exposure=start.exposure,
            enrichment=self._enrichment(goes_on),
            compactor=self._compactor(scope.conversation),
        )

    def _head(self, offers_tools: bool, left: int | None) -> str:
        """The system text of the next pass."""
        given = self._instructions
        own = given(left) if callable(given) else given
        if not isinstance(own, str):
            raise UsageError(
                f"The function of Agent(instructions=...) returned {type(own).__name__!r}; it must return text, the system prompt."
            )
        if not self._bios:
            return own
        from callgate.agent.bios import bios as bios_text

        has_tools = offers_tools and not (left == 0 and self.settings.when_spent == "answer")
        exits, asks = tuple(self._exits.values()), self.settings.after_exit_calls == "ask"
        text = bios_text(at_ns=self.engine.clock.wall_ns(), left=left, name=self.model.name, exits=exits, has_tools=has_tools, asks=asks)
        return f"{text}\n\n{own}" if own else text

    def _exposure(self, message: UserMessage, history: History, scope: Scope, mode: Mode, *, leaves_trace: bool) -> Exposure | None:
        if self._deliberation is None and not mode.deliberate and not mode.expose:
            return None
        return self._planner().begin(
            message, history.messages, scope, active=mode.deliberate, expose=mode.expose, leaves_trace=leaves_trace
        )

    def _planner(self) -> Deliberation:
        """Deliberate mode's planner, made when it is first needed."""
        if self._deliberation is None:
            from callgate.agent.deliberate import Deliberate, Deliberation

            self._deliberation = Deliberation(Deliberate(active=False), self.engine.tools)
        return self._deliberation

    def _enrichment(self, goes_on: GoesOn | None) -> Enrichment:
        owner = self.engine.restart if isinstance(self.engine.restart, ContextRestarts) else None
        return Enrichment(owner, goes_on.added, goes_on.restarted) if goes_on is not None else Enrichment(owner)

    def _guard(self, scope: Scope, goes_on: GoesOn | None) -> StuckGuard | None:
        if self._stuck is None:
            return None
        may_end = self.settings.rules.failures != "strict"
        guard = StuckGuard(self._stuck, partial(self._asked, scope), goes_on.repeats if goes_on is not None else (), may_end=may_end)
        for calls, results, finals in goes_on.rounds if goes_on is not None else ():
            guard.told(calls, results, finals)
        return guard

    def _asked(self, scope: Scope, call: ToolCall) -> tuple[str, bytes] | None:
        return self.engine.asked(raw_call(call, "sealed", self.model.provider), scope)

    def _compactor(self, conversation: str) -> Compactor | None:
        if self._compaction is None:
            return None
        from callgate.agent.compaction import Compactor

        return Compactor(self._compaction, self._guards, conversation)

    def _specs(self, scope: Scope) -> tuple[ToolSpec, ...]:
        """The tools that the turn offers, and the exit tools, which nothing hides."""
        allowed = scope.allowed_tools if scope.deliberate else None
        tools = [
            ToolSpec(name=tool.name, description=tool.description, schema=tool.schema.source)
            for tool in self.engine.tools
            if allowed is None or tool.name in allowed or not allowed.isdisjoint(tool.tool.aliases)
        ]
        return (*tools, *self._exits.values())

    def _exit_calls(self) -> Exits:
        if not self._exits:
            return Exits()
        check_exits(self._exits, self.engine)
        return Exits(self._exits, (name for bound in self.engine.tools for name in (bound.name, *bound.tool.aliases)))
