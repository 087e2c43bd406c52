"""Make the parts of a turn from the agent's configuration.

The parts are new for each turn: the offered tools, the system text, the budget, the detection of repetitions, compaction, deliberate mode.
A part that the agent does not use is None. Runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from callgate._conversation_queue import QueuedTurn
from callgate.agent.agent_config import AgentConfig, check_exits
from callgate.agent.budget import BudgetTracker
from callgate.agent.context_restarts import ContextRestarts, Enrichment
from callgate.agent.exit_tools import ExitTools
from callgate.agent.history import History
from callgate.agent.repetition import StuckGuard
from callgate.agent.run_events import AgentEvent
from callgate.agent.run_recorder import Phase, RunRecorder
from callgate.agent.run_result import Exposed
from callgate.agent.turn_state import TurnParts
from callgate.calls import Scope
from callgate.errors import UsageError
from callgate.messages import ToolCall, UserMessage
from callgate.models.model_protocol import StreamingContext
from callgate.models.wire.request import ToolSpec
from callgate.provider_responses import raw_call, tool_specs

if TYPE_CHECKING:  # loaded when first used: most agents need none of these
    from callgate.agent.compaction import Compactor
    from callgate.agent.deliberate_mode import Deliberation, Exposure
    from callgate.agent.resume_plan import ResumePlan

__all__ = ["TurnFactory", "TurnStart"]


class TurnStart(Struct, frozen=True, kw_only=True, eq=False):
    """The values of a turn that are known before it begins or is resumed."""

    place: QueuedTurn
    history: History
    scope: Scope
    on_event: Callable[[AgentEvent], None] | None
    exposure: Exposure | None
    """The tools that deliberate mode offers in the turn; None if the mode is off."""
    task: UserMessage | None = None
    """The user's message; None if the turn is resumed."""
    phase: Phase = "deliberate"
    plan: ResumePlan | None = None
    """How the turn is resumed; None if it is a new turn."""

    @property
    def turn_scope(self) -> Scope:
        """The scope with the turn's allowlist, if deliberate mode is on."""
        return self.exposure.scope(self.scope) if self.exposure is not None else self.scope


class TurnFactory:
    """Makes the parts of one agent's turns.

    Args:
        config: The agent's configuration.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._deliberation = config.deliberation

    def make_parts(self, start: TurnStart, recorder: RunRecorder) -> TurnParts:
        """Make the parts of one turn."""
        config, plan, offered = self._config, start.plan, start.turn_scope
        engine, settings = config.engine, config.settings
        context = StreamingContext(offered.conversation, reply_to=start.place.reply_to, extra=offered.extra)
        scope = replace(offered, streaming=context)
        tools = self._list_tools(scope)
        return TurnParts(
            model=config.model,
            engine=engine,
            request=replace(config.request, tools=tools, calls_per_message=engine.limits.calls_per_message),
            history=start.history,
            scope=scope,
            context=context,
            settings=settings,
            limits=config.stream_limits,
            host_awaits=config.host_awaits,
            budget=BudgetTracker(settings.budget, settings.prices, engine.clock, plan.spent if plan else None),
            recorder=recorder,
            exits=self.make_exit_tools(),
            write_system_text=partial(self._write_system_text, len(tools) > len(config.exits))
            if config.system_text or config.instructions
            else None,
            on_event=start.on_event,
            stuck_guard=self._make_stuck_guard(scope, plan),
            exposure=start.exposure,
            enrichment=self._make_enrichment(plan),
            compactor=self._make_compactor(scope.conversation),
        )

    def _write_system_text(self, offers_tools: bool, left: int | None) -> str:
        """Return the system text of the next request to the model."""
        config, given = self._config, self._config.instructions
        own = given(left) if callable(given) else given
        if not isinstance(own, str):
            raise UsageError(
                f"The function of Agent(instructions=...) returned {type(own).__name__!r}; it must return text, the system prompt."
            )
        if not config.system_text:
            return own
        from callgate.agent.system_prompt import system_text

        has_tools = offers_tools and not (left == 0 and config.settings.when_spent == "answer")
        exits, asks = tuple(config.exits.values()), config.settings.after_exit_calls == "ask"
        text = system_text(
            at_ns=config.engine.clock.wall_ns(), left=left, name=config.model.name, exits=exits, has_tools=has_tools, asks=asks
        )
        return f"{text}\n\n{own}" if own else text

    def plan_exposure(
        self, message: UserMessage, history: History, scope: Scope, active: bool | None, expose: tuple[str, ...], *, leaves_trace: bool
    ) -> Exposure | None:
        """Plan the tools that deliberate mode offers in a turn. Return None if the mode is off."""
        if self._deliberation is None and not active and not expose:
            return None
        return self._planner().begin(message, history.messages, scope, active=active, expose=expose, leaves_trace=leaves_trace)

    def restore_exposure(self, exposed: Exposed | None, *, leaves_trace: bool) -> Exposure | None:
        """Return the tools that deliberate mode offered when the resumed turn began; None if the mode was off."""
        return self._planner().expose(exposed, leaves_trace=leaves_trace) if exposed is not None else None

    def _planner(self) -> Deliberation:
        """Return deliberate mode's planner, which is made on first use."""
        if self._deliberation is None:
            from callgate.agent.deliberate_mode import Deliberate, Deliberation

            self._deliberation = Deliberation(Deliberate(active=False), self._config.engine.tools)
        return self._deliberation

    def _make_enrichment(self, plan: ResumePlan | None) -> Enrichment:
        owner = self._config.engine.restart if isinstance(self._config.engine.restart, ContextRestarts) else None
        return Enrichment(owner, plan.added, plan.restarted) if plan is not None else Enrichment(owner)

    def _make_stuck_guard(self, scope: Scope, plan: ResumePlan | None) -> StuckGuard | None:
        if self._config.stuck is None:
            return None
        may_end = self._config.settings.rules.failures != "strict"
        guard = StuckGuard(
            self._config.stuck, partial(self._identify_call, scope), plan.repeats if plan is not None else (), may_end=may_end
        )
        for one in plan.rounds if plan is not None else ():
            guard.count_results(one.calls, one.results, one.finals)
        return guard

    def _identify_call(self, scope: Scope, call: ToolCall) -> tuple[str, bytes] | None:
        return self._config.engine.asked(raw_call(call, "sealed", self._config.model.provider), scope)

    def _make_compactor(self, conversation: str) -> Compactor | None:
        if self._config.compaction is None:
            return None
        from callgate.agent.compaction import Compactor

        return Compactor(self._config.compaction, self._config.host_awaits, conversation)

    def _list_tools(self, scope: Scope) -> tuple[ToolSpec, ...]:
        """Return the tools that the turn offers, and all exit tools."""
        allowed = scope.allowed_tools if scope.deliberate else None
        return (*tool_specs(self._config.engine.tools, allowed), *self._config.exits.values())

    def make_exit_tools(self) -> ExitTools:
        """Return the exit tools, with the names of all registered tools, so that inexact names can be assigned."""
        if not self._config.exits:
            return ExitTools()
        check_exits(self._config.exits, self._config.engine)
        return ExitTools(self._config.exits, (name for bound in self._config.engine.tools for name in (bound.name, *bound.tool.aliases)))
