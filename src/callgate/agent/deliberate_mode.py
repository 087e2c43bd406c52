"""Deliberate mode: a turn offers only the tools that its message asks for.

`plan` is a pure function: it takes the text of a message and returns an allowlist of tools. The `resolve` stage of the engine applies the
allowlist to each call; this module only makes it, and writes the reasons to the thought log. `tool_retention` keeps a tool that was used
with success exposed for a few turns. `trigger_phrases` compares phrases with the text. Knows no model and runs no tool.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from callgate._abort_signals import FAILURES
from callgate._option_checks import Options, Whole
from callgate.agent.run_events import Notice
from callgate.agent.run_result import Exposed, Match
from callgate.agent.tool_retention import Retention
from callgate.agent.trigger_phrases import Trigger, Wording, compile_triggers, first_match
from callgate.argument_checks import matching_name
from callgate.calls import Answered, Outcome, Restarted, Scope, Text, ToolResult
from callgate.errors import UsageError
from callgate.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from callgate.tools import ToolRegistry

__all__ = ["AGAIN", "Deliberate", "Deliberation", "Exposure", "plan"]

log = logging.getLogger("callgate")

AGAIN: tuple[str, ...] = (
    r"/\b(do|run|try|make|send|play|show) (it|that|this|them|those|one|the same)( \w+)? again\b/",
    r"/\b(once|one) more( time)?\b/",
    r"/\bsame (but|again|thing|one|with|for|as)\b/",
    r"/\A\W*(again|another( one)?|repeat|redo|retry|encore|the same)\b/",
    r"/\b(repeat|redo|retry) (it|that|this|them|the last)\b/",
)
"""English phrases that ask for something that was done before. Give your own for other languages."""
_LOOK_BACK = 8
_MOST_LOOKED_AT = 256


class Deliberate(Options, frozen=True, kw_only=True):
    """The operator's settings of deliberate mode for one agent. Tools only declare their triggers."""

    active: bool = True
    """Whether the mode is on for runs that do not specify it."""
    turns: Whole = 4
    """The number of further turns for which a tool stays exposed after a success; 0 to 10."""
    always: frozenset[str] = frozenset()
    """Tools that are offered in every turn."""
    triggers: Mapping[str, tuple[str, ...]] = {}
    """Additional phrases by tool name, in the format of `Tool.triggers`."""
    again: tuple[str, ...] = AGAIN
    """Phrases by which a message asks for the tools that were used shortly before."""
    thought_log: Callable[[str, Notice], None] | None = None
    """Called with the conversation and each hidden notice. Must not show it to users. Exceptions from it are logged."""


def plan(
    text: str,
    triggers: Mapping[str, Sequence[Trigger]],
    *,
    more: Mapping[str, Sequence[Trigger]] | None = None,
    forced: Iterable[str] = (),
    retained: Iterable[str] = (),
    recent: Iterable[str] = (),
    again: Sequence[Trigger] = (),
) -> Exposed:
    """Return the tools that a turn offers, and the phrase by which the message matched each of them.

    Args:
        text: The user's message.
        triggers: The triggers that each tool declares. A tool without an entry is never offered.
        more: The operator's triggers.
        forced: Tools to offer whatever the text says.
        retained: Tools to offer because they were used with success in an earlier turn.
        recent: Tools to offer if the text asks for something that was done before.
        again: The phrases that ask for something that was done before.
    """
    wording = Wording.of(text)
    repeated = first_match(again, wording)
    recent = frozenset(recent) if repeated is not None else frozenset()
    matches: dict[str, Match] = {}
    for name, own in triggers.items():
        if (found := first_match(own, wording)) is not None:
            matches[name] = Match(tool=name, phrase=found.text, source="always" if found.kind == "always" else "tool")
        elif more and (found := first_match(more.get(name, ()), wording)) is not None:
            matches[name] = Match(tool=name, phrase=found.text, source="operator")
        elif repeated is not None and name in recent:
            matches[name] = Match(tool=name, phrase=repeated.text, source="follow_up")
    allowed = frozenset(matches) | frozenset(forced) | frozenset(retained)
    return Exposed(allowed=allowed & triggers.keys(), matches=matches)


class ThoughtLog:
    """Writes notices to the operator's thought log. If the log raises, the exception is logged and ignored.

    Args:
        write: The operator's log; None: nothing is written.
    """

    def __init__(self, write: Callable[[str, Notice], None] | None) -> None:
        self._write = write

    def note(self, conversation: str, notice: Notice) -> None:
        if self._write is not None:
            try:
                self._write(conversation, notice)
            except FAILURES:
                log.warning("The thought log did not take a notice", exc_info=True)


class Exposure:
    """The tools that one turn offers. Records when one of them is used.

    Args:
        exposed: The tools, and why they are offered.
        tools: All registered tools.
        thoughts: Is told why a tool was offered, when it is used.
        retention: Keeps tools that succeed exposed; None if the turn leaves no trace.
    """

    def __init__(self, exposed: Exposed, tools: ToolRegistry, thoughts: ThoughtLog, retention: Retention | None) -> None:
        self.exposed = exposed
        self._tools = tools
        self._thoughts = thoughts
        self._retention = retention

    def scope(self, scope: Scope) -> Scope:
        """Return the scope with this turn's allowlist."""
        return replace(scope, deliberate=True, allowed_tools=self.exposed.allowed)

    def record_use(self, conversation: str, result: ToolResult) -> None:
        """Record a call's result: keep its tool exposed if it succeeded, and tell the thought log why the tool was offered."""
        name = _name_meant(self._tools, result.name)
        if name not in self.exposed.allowed:
            return
        if self._retention is not None and result.success:
            self._retention.extend(conversation, name)
        match = self.exposed.matches.get(name)
        if match is not None:
            self._thoughts.note(conversation, _notice(match))

    def notices(self, calls: Sequence[ToolCall], outcomes: Sequence[Outcome | None]) -> Iterator[Notice]:
        """Yield a notice for each of these calls that says why its tool was offered, for the listener of the run."""
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, (Answered, Restarted)):
                name = _name_meant(self._tools, outcome.result.name if isinstance(outcome, Answered) else call.name)
                if name in self.exposed.allowed and (match := self.exposed.matches.get(name)) is not None:
                    yield _notice(match)


class Deliberation:
    """Deliberate mode of one agent: the compiled phrases, and the retained tools of each conversation.

    Raises:
        UsageError: A trigger cannot be used.
    """

    def __init__(self, settings: Deliberate, tools: ToolRegistry) -> None:
        self._settings = settings
        self._retention = Retention(settings.turns)
        self._thoughts = ThoughtLog(settings.thought_log)
        self._tools = tools
        self._again = compile_triggers(settings.again, "Deliberate.again") if settings.active else None
        self._more = {name: compile_triggers(given, f"Deliberate.triggers[{name!r}]") for name, given in settings.triggers.items()}
        self._known: dict[str, tuple[object, tuple[Trigger, ...]]] = {}
        self._registered_names(self._more, "Deliberate.triggers")
        self._registered_names(settings.always, "Deliberate.always")
        self._triggers()

    def begin(
        self,
        message: UserMessage,
        history: Sequence[Message],
        scope: Scope,
        *,
        active: bool | None = None,
        expose: Iterable[str] = (),
        leaves_trace: bool = True,
    ) -> Exposure | None:
        """Plan a turn. Return None if the mode is off, or if the scope already has an allowlist from the host.

        Args:
            message: The user's message.
            history: The conversation before it.
            scope: The scope of the turn.
            active: On or off for this turn; None: as configured.
            expose: Tools that this turn offers whatever the message says.
            leaves_trace: Whether the turn counts for `Retention`.

        Raises:
            UsageError: A trigger cannot be used, or no tool has a name in `expose`.
        """
        forced = self._registered_names((*expose, *self._settings.always), "run(expose=...)")
        planned = scope.deliberate and scope.allowed_tools is not None
        if planned or not (self._settings.active if active is None else active):
            return None
        keep = self._retention
        retained = keep.begin_turn(scope.conversation) if leaves_trace else keep.names(scope.conversation)
        exposed = plan(
            _text(message),
            self._triggers(),
            more=self._more,
            forced=forced,
            retained=retained,
            recent=filter(None, (_name_meant(self._tools, name) for name in _recently_used(history))),
            again=self._repeat_triggers(),
        )
        return self.expose(exposed, leaves_trace=leaves_trace)

    def expose(self, exposed: Exposed, *, leaves_trace: bool) -> Exposure:
        """Return the exposure of a turn that offers these tools, such as one that is resumed with those that it offered when it began."""
        return Exposure(exposed, self._tools, self._thoughts, self._retention if leaves_trace else None)

    def _repeat_triggers(self) -> tuple[Trigger, ...]:
        """Return the compiled phrases that ask for a repeat; compiled on first use if the mode is off by default."""
        if self._again is None:
            self._again = compile_triggers(self._settings.again, "Deliberate.again")
        return self._again

    def _triggers(self) -> dict[str, tuple[Trigger, ...]]:
        """Return every tool's compiled triggers; each is compiled once, and again if the tool was replaced."""
        known: dict[str, tuple[object, tuple[Trigger, ...]]] = {}
        for bound in self._tools:
            declared = bound.tool.triggers
            kept = self._known.get(bound.name)
            if kept is None or kept[0] is not declared:
                kept = (declared, compile_triggers(declared, f"tool '{bound.name}' ({bound.tool.where()})"))
            known[bound.name] = kept
        self._known = known
        return {name: compiled for name, (_, compiled) in known.items()}

    def _registered_names(self, names: Iterable[str], where: str) -> frozenset[str]:
        """Return the registered names of these tools. Raise `UsageError` if a name belongs to no tool."""
        found: set[str] = set()
        for name in names:
            tool = self._tools.get(name)
            if tool is None:
                raise UsageError(f"{where} has '{name[:80]}', and no tool has this name. Register it first, or correct the name.")
            found.add(tool.name)
        return frozenset(found)


def _name_meant(tools: ToolRegistry, written: str) -> str:
    """Return the registered name of the tool that a model meant; empty if there is none."""
    tool = tools.get(written) or tools.get(matching_name(written, tools.names()) or "")
    return tool.name if tool is not None else ""


def _text(message: UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in message.content if isinstance(part, Text))


def _recently_used(history: Sequence[Message]) -> frozenset[str]:
    """Return the tools that were used with success in the last few messages; results do not count as messages."""
    names: set[str] = set()
    seen = 0
    for index in range(len(history) - 1, max(-1, len(history) - 1 - _MOST_LOOKED_AT), -1):
        message = history[index]
        if isinstance(message, ToolMessage) and not message.is_error:
            names.add(message.name)
        seen += isinstance(message, (UserMessage, AssistantMessage))
        if seen >= _LOOK_BACK:
            break
    return frozenset(names)


def _notice(match: Match) -> Notice:
    phrase, tool = (" ".join(text.replace("`", "'").split()) for text in (match.phrase, match.tool))
    why = {
        "tool": f"the message matches its trigger `{phrase}`",
        "operator": f"the message matches the operator's trigger `{phrase}`",
        "follow_up": f"the message asks for what was done before (`{phrase}`)",
        "always": f"its trigger `{phrase}` offers it in every turn",
    }
    return Notice("trigger", f"Deliberate mode offered `{tool}`: {why[match.source]}.", hidden=True)
